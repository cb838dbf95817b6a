"""The rules and the previews of replays: next step, cost and repeated effects (docs/invariants.md: resume)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import ConfigDict

from maestro.domain.deliveries import IN_DOUBT, Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import Job, JobEdits, JobStatus, JobStep, is_background, job_edits
from maestro.domain.jobs.steps import StepKind, finished_results, next_step, retried_steps, step_kind, step_numbers
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.messages import Address
from maestro.domain.tags.actions import Action, ActionState
from maestro.domain.tags.grammar import TagName
from maestro.domain.tools import ToolRun, ToolState
from maestro.domain.values import View

START_STEP = "start"
"""The step that a preview names for a job that would start from the beginning."""

END_STEP = "end"
"""The step that a preview names if every step of a job is done, so that the job only has to be closed."""

SENDING_STEPS = (StepKind.DELIVER, END_STEP)
"""The steps after which no model call, tool call or action follows."""


class ReplayMode(StrEnum):
    """The way in which a job is replayed.

    Resume continues the job at its failed step and keeps the results of finished steps. Restart answers again in a new
    job, linked to the old one. What-if shows an answer and acts on nothing (docs/decisions.md: what-if).
    """

    RESUME = "resume"
    RESTART = "restart"
    WHAT_IF = "what-if"


RESUMABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})


def replay_refusal(
    job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job] = (), *, held: bool = False
) -> str | None:
    """Return why a job cannot be replayed in this mode, as a sentence for operators; None if it can.

    ``newest`` is the latest job for the same message or task: the job itself or a restart of it. ``led_to`` are the
    jobs that the job's answer started. ``held`` means that a chunk (part) of the answer is unconfirmed and was not sent
    again; a resume sends it. A message is answered once, so only the newest job may be resumed. No restart begins while
    the newest job or a job in ``led_to`` is open. A what-if sends nothing, so any number may run.
    """
    if job.erased:
        return f"the texts of job {job.id} were deleted with its conversation, so there is nothing to answer."
    if job.calls_deleted and mode is ReplayMode.RESUME:
        return f"the answers that job {job.id} got were deleted (retention.callsDays); restart the job instead."
    if not job.status.ended:
        return f"job {job.id} is {job.status}; only an ended job can be replayed. Cancel it first, or wait."
    if job.what_if and mode is not ReplayMode.RESUME:
        return f"job {job.id} is a what-if; ask again what job {job.restarted_from} would answer."
    if job.what_if:
        resumable = job.status in RESUMABLE
        return None if resumable else f"job {job.id} is {job.status}; there is no failed step to resume."
    if mode is ReplayMode.WHAT_IF:
        return find_what_if_refusal(job)
    return _duplicate_refusal(job, newest, mode, led_to) or _state_refusal(job, mode, held=held)


def _duplicate_refusal(job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job]) -> str | None:
    """Return why another job makes this replay a duplicate, as a sentence for operators; None if none does."""
    if newest.id != job.id and (mode is ReplayMode.RESUME or not newest.status.ended):
        work = "message" if job.inbox_id is not None else "task"
        return f"the {work} of job {job.id} is answered by job {newest.id} now, which is {newest.status}."
    open_job = next((other for other in led_to if not other.status.ended), None)
    if mode is ReplayMode.RESTART and open_job is not None:
        return f"job {open_job.id}, which this job started, is {open_job.status} still. Cancel that first, or wait."
    return None


def _state_refusal(job: Job, mode: ReplayMode, *, held: bool) -> str | None:
    has_held_chunk = held and job.status is JobStatus.COMPLETED
    if mode is ReplayMode.RESUME and job.status not in RESUMABLE and not has_held_chunk:
        return f"job {job.id} is {job.status}; there is no failed step to resume. Use restart to answer again."
    answers_nothing = job.inbox_id is None or job.lane is None
    if mode is ReplayMode.RESTART and job.parent_id is None and answers_nothing and not is_background(job):
        return f"job {job.id} answers no message, so there is nothing to answer again."
    return None


def find_what_if_refusal(job: Job) -> str | None:
    if is_script(job):
        return f"job {job.id} runs a script and asks no model, so there is no answer to show."
    if job.notice or (job.inbox_id is None and job.parent_id is None and not is_background(job)):
        return f"job {job.id} answers no message, so there is nothing to answer."
    return None


def is_script(job: Job) -> bool:
    """Return whether a job only runs a script or fills a template, without a model call."""
    return is_background(job) and not job.task


def edits_refusal(job: Job, mode: ReplayMode, edits: JobEdits) -> str | None:
    """Return why an operator's edits cannot apply to a replay, with what to do instead; None if they can."""
    if not edits.any:
        return None
    if mode is ReplayMode.RESUME:
        return "edits need the mode restart or what-if: a resumed job keeps its results."
    if is_script(job):
        return f"job {job.id} runs a script and asks no model: change the script instead."
    if job.parent_id is not None and edits.agent is not None:
        return f"job {job.id} is a task of its agent: change the model or the prompt, or restart job {job.parent_id}."
    if job.parent_id is not None and not job.task and edits.prompt is not None:
        return (
            f"job {job.id} continues with the results of other agents, so it has no text to change: "
            f"restart job {job.parent_id}."
        )
    return None


def effective_edits(job: Job, newest: Job, mode: ReplayMode, edits: JobEdits | None) -> JobEdits:
    """Return the edits of a replay: ``edits``, or if None, the stored edits of ``newest`` (restart) or of ``job``."""
    return edits if edits is not None else job_edits(newest if mode is ReplayMode.RESTART else job)


def new_restart(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return a new job that restarts ``job`` from the beginning; ``edits`` None means the edits of ``job``."""
    copied = {"kind", "priority", "lane", "inbox_id", *Address.model_fields}
    if job.parent_id is not None:  # A delegated task is not routed, so its agent is copied.
        copied |= {"agent_id", "client_id", "conversation_id", "parent_id", "depth", "task", "hears"}
    if is_background(job):
        copied |= {"agent_id", "client_id", "task", "schedule", "slot", "webhook_id"}
    edited = job.edits if edits is None else edits.text
    return Job(**job.model_dump(include=copied), id=new_id, restarted_from=job.id, edits=edited, created_at=now)


def new_what_if(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return a new what-if job, which only shows an answer; no job waits for it, so it has no lane (queue)."""
    copied = {"kind", "priority", "inbox_id", "agent_id", "client_id", "conversation_id", "task", *Address.model_fields}
    edited = job.edits if edits is None else edits.text
    fields = job.model_dump(include=copied)
    return Job(**fields, id=new_id, restarted_from=job.id, edits=edited, what_if=True, created_at=now)


def build_what_if_input(what_if: Job, job: Job) -> Job:
    """Return a copy of the original job with the agent and the edits of the what-if; the copy is never stored."""
    return Job(**job.model_dump() | what_if.model_dump(include={"agent_id", "client_id", "edits", "what_if"}))


class EffectKind(StrEnum):
    """The kind of an effect that is visible outside of the job."""

    SEND = "send"
    ACTION = "action"
    TASK = "task"
    TOOL = "tool"
    STEP = "step"


class Effect(View):
    """An effect that a replay has outside of the job: a message, a tag, a task or a tool call.

    ``count`` is how many there are, 0 if unknown. ``again`` means that the effect happened before, ``kept`` that it
    stays and is not repeated.
    """

    kind: EffectKind
    text: str
    count: int
    again: bool = False
    kept: bool = False


class ReplayPreview(View):
    """A preview of a replay: the effects and the cost if the replay began now.

    If the replay is not ``possible``, ``problem`` is the reason and the other fields are empty. ``step`` is where the
    job would continue, ``start`` for a new job. The results of the ``kept`` steps are used again. ``modelCalls`` counts
    the model calls that are certain; ``more`` means that others may follow. ``firstCalls`` counts the calls answered
    before, which cost ``firstCostUsd``. ``costUsd`` is the estimated cost of the certain calls. Unknown costs are null.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    mode: ReplayMode
    possible: bool
    problem: str = ""
    step: str = ""
    kept: tuple[str, ...] = ()
    model_calls: int = 0
    more: bool = False
    cost_usd: float | None = 0.0
    first_calls: int = 0
    first_cost_usd: float | None = None
    effects: tuple[Effect, ...] = ()
    edits: JobEdits | None = None


@dataclass(frozen=True)
class ReplayEvidence:
    """The stored rows of a job to replay; ``tasks`` counts its delegated tasks that started, ``withheld`` the rest."""

    job: Job
    steps: Sequence[JobStep] = ()
    calls: Sequence[LLMCall] = ()
    deliveries: Sequence[Delivery] = ()
    actions: Sequence[Action] = ()
    tools: Sequence[ToolRun] = ()
    withheld: int = 0
    tasks: int = 0

    @property
    def chunks(self) -> Sequence[Delivery]:
        """The chunks (parts) of the job's answer or notice, sent or not."""
        return [chunk for chunk in self.deliveries if chunk.purpose is DeliveryPurpose.ANSWER or self.job.notice]

    @property
    def answered(self) -> Sequence[LLMCall]:
        """The model calls with a stored answer."""
        return [call for call in self.calls if call.state is CallState.ANSWERED]


def build_preview(evidence: ReplayEvidence, mode: ReplayMode, edits: JobEdits) -> ReplayPreview:
    """Return the preview of a replay; ``edits`` are the operator's changes that would apply."""
    answered = evidence.answered
    costs = [call.cost_usd for call in answered if call.cost_usd is not None]
    first_cost = sum(costs) if answered and len(costs) == len(answered) else None
    if mode is ReplayMode.RESUME:
        done = finished_results(evidence.steps)
        # A completed job is only resumed to send unconfirmed chunks again, so it continues with the delivery.
        is_completed = evidence.job.status is JobStatus.COMPLETED
        step = StepKind.DELIVER if is_completed else next_step(evidence.job, done) or END_STEP
        calls, more = _resumed_calls(evidence, step)
        cost = first_cost / len(answered) * calls if first_cost is not None else None
        effects = _resume_effects(evidence)
    else:
        done, step = {}, START_STEP
        calls, more = (0, False) if evidence.job.notice or is_script(evidence.job) else (1, True)
        cost = first_cost if not edits.any else None
        what_if_effects = _tool_call_effects(evidence, "it may be called again if it changes nothing")
        effects = _restart_effects(evidence) if mode is ReplayMode.RESTART else what_if_effects
    return ReplayPreview(
        mode=mode,
        possible=True,
        step=step,
        kept=tuple(done),
        model_calls=calls,
        more=more,
        cost_usd=cost if calls else 0.0,
        first_calls=len(answered),
        first_cost_usd=first_cost,
        effects=tuple(effects),
        edits=edits if edits.any else None,
    )


def _resumed_calls(evidence: ReplayEvidence, step: str) -> tuple[int, bool]:
    """Return how many model calls a resume certainly pays for, and whether others may follow."""
    compacts_again = StepKind.COMPACTION in retried_steps(evidence.job, finished_results(evidence.steps))
    if evidence.job.notice or is_script(evidence.job) or step in (StepKind.TAGS, StepKind.SHOW, *SENDING_STEPS):
        return 0, compacts_again
    if step_kind(step) is not StepKind.MODEL:
        return 1, True
    (number,) = step_numbers(step)
    stored = [call for call in evidence.answered if call.purpose is CallPurpose.ANSWER and call.number == number]
    # A stored answer is not paid for again. If it calls tools, a paid call with the tools' results follows.
    return (0, compacts_again) if stored and not stored[0].tool_calls else (1, True)


def _resume_effects(evidence: ReplayEvidence) -> Iterator[Effect]:
    if evidence.job.status is JobStatus.COMPLETED:
        unconfirmed = sum(chunk.state is DeliveryState.UNCONFIRMED for chunk in evidence.deliveries)
        text = "unconfirmed parts are sent again, although the platform may have them"
        yield Effect(kind=EffectKind.SEND, text=text, count=unconfirmed, again=True)
        return
    done = finished_results(evidence.steps)
    step = next_step(evidence.job, done) or END_STEP
    for optional in retried_steps(evidence.job, done):
        yield Effect(kind=EffectKind.STEP, text=f"{optional} is tried again; the answer does not depend on it", count=1)
    if step not in SENDING_STEPS:
        yield from _tool_effects(evidence.tools)
        if step != StepKind.SHOW:
            yield Effect(kind=EffectKind.ACTION, text="the tags of the answer are carried out", count=0)
    if not evidence.job.what_if and step != END_STEP:
        yield from _delivery_effects(evidence)
    if evidence.withheld:
        yield Effect(kind=EffectKind.TASK, text="withheld tasks for other agents start", count=evidence.withheld)


def _tool_effects(tools: Sequence[ToolRun]) -> Iterator[Effect]:
    for run in tools:
        if run.state is ToolState.STARTED:
            text = f"{run.tool} was interrupted: it is called again if the tool is safe to repeat"
            yield Effect(kind=EffectKind.TOOL, text=text, count=run.attempts, again=True)
        if run.state is ToolState.WAITING:
            yield Effect(kind=EffectKind.TOOL, text=f"{run.tool} is called, or a user is asked for approval", count=1)


def _delivery_effects(evidence: ReplayEvidence) -> Iterator[Effect]:
    """Yield the effects on the answer's chunks (parts): those to send, those maybe sent twice, and those that stay."""
    if not evidence.chunks:
        text = "the answer is passed on to the agent that waits for it" if evidence.job.hears else "the answer is sent"
        yield Effect(kind=EffectKind.SEND, text=text, count=1)
        return
    states = Counter(chunk.state for chunk in evidence.chunks)
    doubtful = sum(states[state] for state in IN_DOUBT)
    unsent = states[DeliveryState.PENDING] + states[DeliveryState.ABANDONED] + states[DeliveryState.FAILED]
    if sent := states[DeliveryState.SENT]:
        yield Effect(kind=EffectKind.SEND, text="parts that were sent stay", count=sent, kept=True)
    if doubtful:
        text = (
            "unconfirmed parts are sent again if the platform can tell whether it has them, "
            "or if the account's onAmbiguous allows it"
        )
        yield Effect(kind=EffectKind.SEND, text=text, count=doubtful, again=True)
    if unsent:
        yield Effect(kind=EffectKind.SEND, text="parts of the answer are sent", count=unsent)


def _restart_effects(evidence: ReplayEvidence) -> Iterator[Effect]:
    sent = sum(chunk.state is DeliveryState.SENT or chunk.state in IN_DOUBT for chunk in evidence.chunks)
    if sent:
        text = "parts of the older answer stay in the channel; in the conversation the new answer counts"
        yield Effect(kind=EffectKind.SEND, text=text, count=sent, kept=True)
    yield Effect(kind=EffectKind.SEND, text="a new answer is sent", count=max(sent, 1), again=sent > 0)
    done = Counter(action.tag for action in evidence.actions if action.state is ActionState.DONE)
    for tag, count in done.items():
        if tag != TagName.DELEGATE:
            text = f"{tag} was carried out and stays; the tags of the new answer are carried out too"
            yield Effect(kind=EffectKind.ACTION, text=text, count=count, again=True)
    if evidence.tasks:
        text = "tasks were passed on to other agents; the new answer may pass them on again"
        yield Effect(kind=EffectKind.TASK, text=text, count=evidence.tasks, again=True)
    yield from _tool_call_effects(evidence, "the model may call it again")


def _tool_call_effects(evidence: ReplayEvidence, expectation: str) -> Iterator[Effect]:
    for tool, count in Counter(run.tool for run in evidence.tools if run.attempts).items():
        yield Effect(kind=EffectKind.TOOL, text=f"{tool} was called; {expectation}", count=count, again=True)

"""The preview of a batch: which jobs would run, from which step, and the estimated cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from maestro.domain.jobs.batches import BatchAction
from maestro.domain.jobs.filters import error_pattern
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, StepState, job_edits
from maestro.domain.jobs.replay import END_STEP, START_STEP, edits_refusal, is_script, replay_refusal
from maestro.domain.jobs.steps import OPTIONAL, next_step
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.values import View


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """An attempt at a model call of a job, with its state and its cost."""

    purpose: CallPurpose
    number: int
    state: CallState
    asks_tools: bool
    cost_usd: float | None


@dataclass(frozen=True)
class BatchCandidate:
    """A job to which a batch would apply its action, with the rows that the preview of the job needs.

    ``newest`` is the latest job for the same message. ``led_to`` are the jobs that the answer of the job started.
    ``step`` is the last step of the job and the state of that step. ``done`` maps finished steps to their results; it
    is empty if the last step alone tells where a resume continues. ``calls`` are the model calls of the job, oldest
    first.
    """

    job: Job
    newest: Job
    led_to: Sequence[Job] = ()
    step: tuple[str, StepState] | None = None
    done: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[CallAttempt] = ()


@dataclass(frozen=True)
class Prices:
    """The average costs in USD of recent model calls: by agent id, by model name, and of all calls."""

    agents: Mapping[int, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    overall: float | None = None


@dataclass(frozen=True)
class JobPreview:
    """The effect of a batch on one job; ``problem`` is why the batch would refuse the job, empty if it would not."""

    job_id: str
    lane: str
    problem: str = ""
    step: str = ""
    calls: int = 0
    cost_usd: float | None = 0.0


class RefusedGroup(View):
    """Jobs refused for one reason, in which ``*`` stands for parts that differ; ``example`` is the id of one job."""

    reason: str
    count: int
    example: str


class StepCount(View):
    """The number of jobs that would continue at a step; ``start``: from the beginning, ``end``: every step is done."""

    step: str
    count: int


class BatchPreview(View):
    """A preview of a batch: the effects and the cost if the batch began now.

    ``matching`` counts the selected jobs, ``possible`` those that would not be refused. ``modelCalls`` is the estimated
    number of calls to pay for, ``costUsd`` the estimated cost of these. ``unknownCost`` counts the calls without a
    known price, which ``costUsd`` leaves out.
    """

    action: BatchAction
    matching: int
    possible: int
    refused: tuple[RefusedGroup, ...]
    steps: tuple[StepCount, ...]
    model_calls: int
    cost_usd: float | None
    unknown_cost: int


@dataclass(frozen=True)
class JobPreviews:
    """A builder of the previews of a batch's jobs, in batch order; ``agents`` maps slugs of active agents to ids.

    ``restarted`` maps the newest job for a message or task to the job of the batch that answers it again.
    """

    action: BatchAction
    prices: Prices
    edits: JobEdits = NO_EDITS
    agents: Mapping[str, int | None] = field(default_factory=dict)
    restarted: dict[str, str] = field(default_factory=dict)

    def preview_job(self, candidate: BatchCandidate) -> JobPreview:
        """Return the preview of a job as the job would be after the preceding jobs of the batch."""
        job, lane = candidate.job, candidate.job.lane or ""
        problem = self._refusal_reason(candidate)
        if problem:
            return JobPreview(job.id, lane, problem)
        if self.action is BatchAction.RESTART:
            self.restarted[candidate.newest.id] = job.id
        calls, step = calls_to_pay(self.action, job, candidate.calls), continuation_step(self.action, candidate)
        return JobPreview(job.id, lane, "", step, calls, self._estimated_cost(candidate, calls))

    def _refusal_reason(self, candidate: BatchCandidate) -> str:
        job, mode = candidate.job, self.action.mode
        if mode is None:
            return f"job {job.id} is {job.status} already; there is nothing to cancel" if job.status.ended else ""
        before = self.restarted.get(candidate.newest.id)
        if before is not None:
            return f"job {before} of this batch answers the same input."
        if job.what_if:
            return f"job {job.id} is a what-if; replay it alone, not in a batch."
        problem = replay_refusal(job, candidate.newest, mode, candidate.led_to) or edits_refusal(job, mode, self.edits)
        if problem or self.action is not BatchAction.RESTART or self.edits.any:
            return problem or ""
        slug = job_edits(candidate.newest).agent
        return f"agent: {slug}, chosen for the last restart, is not active" if slug and slug not in self.agents else ""

    def _estimated_cost(self, candidate: BatchCandidate, calls: int) -> float | None:
        """Return the estimated cost of a number of calls in US dollars, None when unknown.

        The average of the job's past calls counts, unless the batch changes the model or the agent.
        """
        if not calls:
            return 0.0
        answered = (call.cost_usd for call in candidate.calls if call.state is CallState.ANSWERED)
        paid = [cost for cost in answered if cost is not None]
        if paid and not (self.edits.model or self.edits.agent):
            return sum(paid) / len(paid) * calls
        agent_id = self.agents.get(self.edits.agent or "") or candidate.job.agent_id or 0
        model = self.edits.model
        price = self.prices.models.get(model) if model else self.prices.agents.get(agent_id, self.prices.overall)
        return price * calls if price is not None else None


def calls_to_pay(action: BatchAction, job: Job, calls: Sequence[CallAttempt]) -> int:
    """Return the estimated number of model calls that an action on a job will pay for.

    A restart makes as many calls as the job made before, at least one. A resume makes one call, or none if the last
    stored answer calls no tools.
    """
    if action is BatchAction.CANCEL or job.notice or is_script(job):
        return 0
    answered = {(call.purpose, call.number) for call in calls if call.state is CallState.ANSWERED}
    if action is BatchAction.RESTART:
        return max(1, len(answered))
    answers = [call for call in calls if call.purpose is CallPurpose.ANSWER]
    last = max((call.number for call in answers), default=0)
    held = [call for call in answers if call.number == last and call.state is CallState.ANSWERED]
    return 0 if held and not held[0].asks_tools else 1


def continuation_step(action: BatchAction, candidate: BatchCandidate) -> str:
    """Return the step at which a job would continue; for a cancellation, the last step of the job."""
    if action is BatchAction.RESTART:
        return START_STEP
    step, state = candidate.step or ("", StepState.DONE)
    if action is BatchAction.CANCEL:
        return step or START_STEP
    if continues_at_last_step(step, state):
        return step
    return next_step(candidate.job, candidate.done) or END_STEP


def continues_at_last_step(step: str, state: StepState) -> bool:
    """Return whether a resume continues at the job's last step; if not, it continues after the finished steps."""
    return state is not StepState.DONE and step not in OPTIONAL


def build_batch_preview(action: BatchAction, previews: Sequence[JobPreview]) -> BatchPreview:
    """Return the preview of a batch from the previews of its jobs: counts, sums and the reasons of refusals."""
    possible = [preview for preview in previews if not preview.problem]
    costs = [preview.cost_usd for preview in possible if preview.calls and preview.cost_usd is not None]
    steps = Counter(preview.step for preview in possible)
    refused: dict[str, list[str]] = {}
    for preview in previews:
        if preview.problem:
            refused.setdefault(error_pattern(preview.problem), []).append(preview.job_id)
    largest_first = sorted(refused.items(), key=lambda group: -len(group[1]))
    return BatchPreview(
        action=action,
        matching=len(previews),
        possible=len(possible),
        refused=tuple(RefusedGroup(reason=reason, count=len(ids), example=ids[0]) for reason, ids in largest_first),
        steps=tuple(StepCount(step=step, count=count) for step, count in steps.most_common()),
        model_calls=sum(preview.calls for preview in possible),
        cost_usd=sum(costs) if costs or not any(preview.calls for preview in possible) else None,
        unknown_cost=sum(preview.calls for preview in possible if preview.cost_usd is None),
    )

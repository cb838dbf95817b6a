"""A job as operators see it, on the API and on the command line alike: values made from rows, camelCase in JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from maestro.domain.deliveries import Delivery
from maestro.domain.jobs.flow import RouteOutcome
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, JobKind, JobStatus, JobStep, StepState, edits_of
from maestro.domain.jobs.steps import StepKind
from maestro.domain.jobs.timeline import (
    ActionView,
    CallPage,
    CallView,
    DeliveryView,
    JobQuestionView,
    StepView,
    ToolRunView,
    ToolTexts,
    WouldActView,
    call_view,
    delivery_view,
    excerpt,
    step_view,
    tool_view,
    would_act_view,
)
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.llm.substitution import Substitution
from maestro.domain.tags.actions import Action
from maestro.domain.tags.grammar import Tag, parse_answer
from maestro.domain.values import View


class JobSummary(View):
    """A line of the list; ``attempts`` counts the failures of the step at hand, ``run`` the resumptions from 1.

    A run of a heartbeat or a cron has its ``schedule``, such as cron-3, and its ``slot``, the time that was planned;
    none that was begun beside the schedule. ``webhook`` is the path by which a delivery came, null where that is gone.
    The ``excerpt`` is of the message, or of what the agent is told instead. ``edits`` is what an operator changed in a
    restart, null for nothing; a ``whatIf`` only shows what would be answered, and acts on nothing.
    """

    id: str
    kind: JobKind
    status: JobStatus
    agent: str | None
    platform: str
    account: str
    channel: str
    thread: str
    user: str
    excerpt: str
    priority: int
    schedule: str | None
    slot: datetime | None
    webhook: str | None
    run: int
    attempts: int
    error: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    restarted_from: str | None
    merged_into: str | None
    parent_id: str | None
    edits: JobEdits | None
    what_if: bool


class JobPage(View):
    """Jobs, newest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[JobSummary, ...]
    next: str | None


class JobDetail(JobSummary):
    """Everything about a job; ``temporal_url`` is its workflow in Temporal's Web UI, where there is one.

    ``task`` is what another agent asked for, whose job is ``parent_id``, or what a job without a person is told, and
    ``said`` what such a job answered. ``led_to`` are the jobs that hang on this one.
    It answers in the place of the ``merged`` ones too. ``erased`` says that its texts went with its conversation.
    ``interrupted_cost_usd`` is what calls that a crash cut off are estimated to have cost beside ``cost_usd``.
    ``route`` says by which rule the agent answers, or why nobody does. ``whatIfs`` asked what this job would answer
    now, and ``wouldAct`` is what such a one would have acted on. ``substitution`` is not null when another model or
    account answered than the agent's first choice.
    """

    conversation_id: int | None
    route: str
    restarted_by: tuple[str, ...]
    what_ifs: tuple[str, ...]
    cost_usd: float | None
    interrupted_cost_usd: float | None
    steps: tuple[StepView, ...]
    calls: tuple[CallView, ...]
    deliveries: tuple[DeliveryView, ...]
    actions: tuple[ActionView, ...]
    substitution: Substitution | None = None
    would_act: tuple[WouldActView, ...]
    tools: tuple[ToolRunView, ...]
    questions: tuple[JobQuestionView, ...]
    depth: int
    task: str
    said: str
    led_to: tuple[str, ...]
    merged: tuple[str, ...]
    erased: bool
    temporal_url: str | None = None

    def linked(self, ui_url: str, namespace: str) -> "JobDetail":
        """Return this with the link to its workflow, if there is a Web UI."""
        url = f"{ui_url.rstrip('/')}/namespaces/{namespace}/workflows/{self.id}" if ui_url else None
        return self.model_copy(update={"temporal_url": url})


@dataclass(frozen=True)
class ListedJob:
    """A job's row with what other tables say of it.

    These are the agent's slug, the user's name, the beginning of the message, and the path of the webhook.
    """

    job: Job
    agent: str | None
    user: str | None
    text: str | None
    webhook: str | None


@dataclass(frozen=True)
class JobRecord:
    """Every row about a job."""

    listed: ListedJob
    steps: Sequence[JobStep] = ()
    calls: Sequence[LLMCall] = ()
    deliveries: Sequence[Delivery] = ()
    restarts: Sequence[Job] = ()
    actions: Sequence[Action] = ()
    tools: Sequence[ToolTexts] = ()
    questions: Sequence[JobQuestionView] = ()
    led_to: Sequence[str] = ()
    merged: Sequence[str] = ()
    substitution: Substitution | None = None


def job_summary(listed: ListedJob) -> JobSummary:
    """Show a job in a line."""
    return JobSummary(**_summary(listed))


def job_detail(record: JobRecord) -> JobDetail:
    """Show everything about a job."""
    job = record.listed.job
    return JobDetail(
        **_summary(record.listed),
        **job.model_dump(include={"conversation_id", "depth", "task", "said", "erased"}),
        route=_route(record.steps),
        restarted_by=tuple(other.id for other in record.restarts if not other.what_if),
        what_ifs=tuple(other.id for other in record.restarts if other.what_if),
        cost_usd=total_cost(record.calls, CallState.ANSWERED, CallState.FAILED),
        interrupted_cost_usd=total_cost(record.calls, CallState.INTERRUPTED),
        steps=tuple(map(step_view, record.steps)),
        calls=tuple(map(call_view, record.calls)),
        deliveries=tuple(map(delivery_view, record.deliveries)),
        actions=tuple(map(ActionView.model_validate, record.actions)),
        substitution=record.substitution,
        would_act=tuple(would_act_view(seq, tag) for seq, tag in enumerate(_unacted(record))),
        tools=tuple(map(tool_view, record.tools)),
        questions=tuple(record.questions),
        led_to=tuple(record.led_to),
        merged=tuple(record.merged),
    )


def total_cost(calls: Sequence[LLMCall], *states: CallState) -> float | None:
    """Add up what is known of the calls that ended in these ways; None when none of them says what it cost."""
    known = [call.cost_usd for call in calls if call.state in states and call.cost_usd is not None]
    return sum(known) if known else None


def call_page(calls: Sequence[LLMCall]) -> CallPage:
    """Show the model calls of a job."""
    return CallPage(items=tuple(map(call_view, calls)))


def _summary(listed: ListedJob) -> dict[str, Any]:
    edits = edits_of(listed.job)
    return {
        **listed.job.model_dump(include=set(JobSummary.model_fields)),
        "agent": listed.agent,
        "user": listed.user or "",
        "webhook": listed.webhook,
        "excerpt": excerpt(listed.text or ""),
        "edits": edits if edits != NO_EDITS else None,
    }


def _route(steps: Sequence[JobStep]) -> str:
    """Return by which rule somebody answers, as the last look said; empty where nobody looked yet, or had to."""
    said = [step.result for step in steps if step.step == StepKind.ROUTE and step.state is StepState.DONE]
    try:
        return RouteOutcome.model_validate_json(said[-1]).reason if said else ""
    except ValidationError:
        # What another release wrote in other words must not hide the rest of the job.
        return ""


def _unacted(record: JobRecord) -> Sequence[Tag]:
    """Return the tags in the answer of a what-if."""
    answers = [call for call in record.calls if call.purpose is CallPurpose.ANSWER and call.state is CallState.ANSWERED]
    shown = record.listed.job.what_if and record.listed.job.status is JobStatus.COMPLETED
    return parse_answer(answers[-1].content).tags if shown and answers else ()

"""A job as operators see it, on the API and on the command line alike: values made from rows, camelCase in JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from maestro.domain.deliveries import Delivery, DeliveryState, Purpose
from maestro.domain.jobs.job import Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose
from maestro.domain.tags.actions import Action, ActionState
from maestro.domain.values import Value, View
from maestro.domain.words import SearchText

EXCERPT = 140
"""Characters of a message that a list shows."""


class JobFilter(Value):
    """Which jobs to show; what is empty or None does not matter.

    ``schedule`` is a heartbeat or a cron, such as cron-3, ``webhook`` the path of one, ``error`` the name of a class,
    ``q`` a part of the id, the message or the task, the user's name, the error or the reason.
    """

    status: tuple[JobStatus, ...] = ()
    kind: tuple[JobKind, ...] = ()
    agent: str | None = None
    platform: str | None = None
    schedule: str | None = None
    webhook: str | None = None
    error: str | None = None
    q: SearchText | None = None


class JobSummary(View):
    """A line of the list; ``attempts`` counts the failures of the step at hand, ``run`` the resumptions from 1.

    A run of a heartbeat or a cron has its ``schedule``, such as cron-3, and its ``slot``, the time that was planned;
    none that was begun beside the schedule. ``webhook`` is the path by which a delivery came, null where that is gone.
    The ``excerpt`` is of the message, or of what the agent is told instead.
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


class JobPage(View):
    """Jobs, newest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[JobSummary, ...]
    next: str | None


class StepView(View):
    """One attempt at one step."""

    step: str
    activity: str
    state: StepState
    attempt: int
    run: int
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None
    error: str
    detail: str


class CallView(View):
    """One attempt at one model call, without what was said; ``cost_usd`` is None when unknown.

    ``tools`` are the names of those it asked for.
    """

    id: int
    purpose: CallPurpose
    number: int
    attempt: int
    state: CallState
    provider: str
    model: str
    account: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    tools: tuple[str, ...]
    finish_reason: str
    error: str
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None


class CallPage(View):
    """The model calls of a job in the order they were made, all of them, so ``next`` is always null."""

    items: tuple[CallView, ...]
    next: str | None = None


class DeliveryView(View):
    """One chunk that went out or was meant to, without its text."""

    purpose: Purpose
    seq: int
    state: DeliveryState
    attempts: int
    platform_message_id: str
    error: str
    created_at: datetime
    sent_at: datetime | None


class ActionView(View):
    """What came of one tag of the answer; ``detail`` is what people are told, or why nothing came of it."""

    seq: int
    tag: str
    subject: str
    state: ActionState
    detail: str


class JobDetail(JobSummary):
    """Everything about a job; ``temporal_url`` is its workflow in Temporal's Web UI, where there is one.

    ``task`` is what another agent asked for, whose job is ``parent_id``, or what a job without a person is told, and
    ``said`` what such a job answered. ``led_to`` are the jobs that hang on this one.
    It answers in the place of the ``merged`` ones too. ``erased`` says that its texts went with its conversation.
    ``interrupted_cost_usd`` is what calls that a crash cut off are estimated to have cost beside ``cost_usd``.
    """

    conversation_id: int | None
    restarted_by: tuple[str, ...]
    cost_usd: float | None
    interrupted_cost_usd: float | None
    steps: tuple[StepView, ...]
    calls: tuple[CallView, ...]
    deliveries: tuple[DeliveryView, ...]
    actions: tuple[ActionView, ...]
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
class Listed:
    """A job's row with what other tables say of it.

    These are the agent's slug, the user's name, the beginning of the message, and the path of the webhook.
    """

    job: Job
    agent: str | None
    user: str | None
    text: str | None
    webhook: str | None


@dataclass(frozen=True)
class Record:
    """Every row about a job."""

    listed: Listed
    steps: Sequence[JobStep] = ()
    calls: Sequence[LLMCall] = ()
    deliveries: Sequence[Delivery] = ()
    restarted_by: Sequence[str] = ()
    actions: Sequence[Action] = ()
    led_to: Sequence[str] = ()
    merged: Sequence[str] = ()


def summary(listed: Listed) -> JobSummary:
    """Show a job in a line."""
    return JobSummary(**_summary(listed))


def detail(record: Record) -> JobDetail:
    """Show everything about a job."""
    return JobDetail(
        **_summary(record.listed),
        conversation_id=record.listed.job.conversation_id,
        restarted_by=tuple(record.restarted_by),
        cost_usd=total_cost(record.calls, CallState.ANSWERED, CallState.FAILED),
        interrupted_cost_usd=total_cost(record.calls, CallState.INTERRUPTED),
        steps=tuple(map(_step, record.steps)),
        calls=tuple(map(_call, record.calls)),
        deliveries=tuple(map(DeliveryView.model_validate, record.deliveries)),
        actions=tuple(map(ActionView.model_validate, record.actions)),
        depth=record.listed.job.depth,
        task=record.listed.job.task,
        said=record.listed.job.said,
        led_to=tuple(record.led_to),
        merged=tuple(record.merged),
        erased=record.listed.job.erased,
    )


def total_cost(calls: Sequence[LLMCall], *states: CallState) -> float | None:
    """Add up what is known of the calls that ended in these ways; None when none of them says what it cost."""
    known = [call.cost_usd for call in calls if call.state in states and call.cost_usd is not None]
    return sum(known) if known else None


def _summary(listed: Listed) -> dict[str, Any]:
    return {
        **listed.job.model_dump(include=set(JobSummary.model_fields)),
        "agent": listed.agent,
        "user": listed.user or "",
        "webhook": listed.webhook,
        "excerpt": _excerpt(listed.text or ""),
    }


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else f"{line[: EXCERPT - 1]}…"


def call_page(calls: Sequence[LLMCall]) -> CallPage:
    """Show the model calls of a job."""
    return CallPage(items=tuple(map(_call, calls)))


def _call(row: LLMCall) -> CallView:
    wanted = TOOL_CALLS.validate_json(row.tool_calls) if row.tool_calls else ()
    return CallView(**row.model_dump(include=set(CallView.model_fields)), tools=tuple(call.name for call in wanted))


def _step(row: JobStep) -> StepView:
    took = row.finished_at - row.started_at if row.finished_at else None
    return StepView(
        **row.model_dump(include=set(StepView.model_fields)),
        duration_ms=took // timedelta(milliseconds=1) if took is not None else None,
    )

"""The API models of a job and of its parts, made from rows; camelCase in JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.flow import RouteOutcome
from maestro.domain.jobs.job import Job, JobEdits, JobKind, JobStatus, JobStep, StepState, job_edits
from maestro.domain.jobs.steps import StepKind
from maestro.domain.llm.calls import CallState, LLMCall, Substitution
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose
from maestro.domain.messages import ReceiptState
from maestro.domain.tags.actions import Action, ActionState
from maestro.domain.tags.grammar import Tag, TagName, parse_answer
from maestro.domain.tools import ToolRun, ToolState
from maestro.domain.values import Page, View

LONG_EXCERPT = 500
"""The most characters of a text on the page of one job."""


class StepView(View):
    """One attempt at one step; ``process`` is the process that made it, such as worker@host:4711."""

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
    process: str


class CallView(View):
    """One attempt at one model call; ``tools`` are those that the model called, ``cost_usd`` is None when unknown."""

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
    """All model calls of a job, oldest first; ``next`` is always null."""

    items: tuple[CallView, ...]
    next: str | None = None


class ToolRunView(View):
    """One tool call; ``number`` is the model call that requested it, ``place`` its index in that answer, from 0.

    ``arguments`` and ``result`` are excerpts of the tool's input and output, empty after these were deleted.
    """

    number: int
    place: int
    tool: str
    state: ToolState
    attempts: int
    arguments: str
    result: str
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None


class JobQuestionView(View):
    """A question of a job to a user, or an approval, asked by the tool call with this ``number`` and ``place``."""

    id: int
    number: int
    place: int
    kind: str
    status: str
    text: str
    tool: str
    answer: str
    answered_by: str
    asked_at: datetime
    answered_at: datetime | None
    expires_at: datetime


class DeliveryView(View):
    """One chunk (part) of a message; ``excerpt`` is the beginning of its text, or of the file ``filename``.

    ``repeats`` counts the sends after an unconfirmed one, each of which may have made a duplicate on the platform.
    ``standing`` is the last state that the platform reported.
    """

    purpose: DeliveryPurpose
    seq: int
    state: DeliveryState
    attempts: int
    excerpt: str
    filename: str
    platform_message_id: str
    error: str
    repeats: int
    standing: ReceiptState
    created_at: datetime
    sent_at: datetime | None


class ActionView(View):
    """One tag of the answer and its result; ``detail`` is the sentence for the user, or why nothing was done."""

    seq: int
    tag: str
    subject: str
    state: ActionState
    detail: str


class WouldActView(View):
    """A tag in the answer of a what-if, which is not carried out; ``complete`` is false without a closing tag."""

    seq: int
    tag: TagName
    subject: str
    options: tuple[str, ...]
    text: str
    complete: bool


def call_view(row: LLMCall) -> CallView:
    tools = TOOL_CALLS.validate_json(row.tool_calls) if row.tool_calls else ()
    return CallView.from_row(row, tools=tuple(tool.name for tool in tools))


def tool_view(row: ToolRun, arguments: str, result: str) -> ToolRunView:
    """Return the view of a tool call, with the beginnings of its arguments and of its result."""
    texts = {"arguments": first_line(arguments, LONG_EXCERPT), "result": first_line(result, LONG_EXCERPT)}
    return ToolRunView.from_row(row, **texts, duration_ms=duration_ms(row.started_at, row.finished_at))


def first_line(text: str, max_chars: int = 140) -> str:
    """Return the beginning of a text on one line, at most ``max_chars`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def duration_ms(began: datetime, ended: datetime | None) -> int | None:
    """Return the milliseconds from ``began`` to ``ended``, None without an end; 0 if the clock was set back."""
    return max(0, (ended - began) // timedelta(milliseconds=1)) if ended is not None else None


class JobSummary(View):
    """One job in a list; ``attempts`` counts the failures of the current step, ``run`` the workflow runs from 1.

    A job of a heartbeat or a cron has its ``schedule``, such as cron-3, and the planned time as ``slot``; an operator's
    extra run has no slot. ``webhook`` is the path of the webhook, null if the webhook was deleted. ``excerpt`` is the
    beginning of the message or of the task. ``edits`` are an operator's changes for a restart, null without any. A
    ``whatIf`` job only shows an answer and acts on nothing.
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


class JobPage(Page[JobSummary]):
    """A page of jobs, newest first."""


class JobDetail(JobSummary):
    """Everything about a job; ``temporal_url`` links to its workflow in Temporal's Web UI, null without a Web UI.

    ``task`` is the task that the job ``parent_id`` delegated, or that of a background job; ``said`` is the answer of a
    background job. ``led_to`` are the jobs that this job started. ``merged`` are the jobs whose messages this job
    answers. ``erased`` means that the texts of the job were deleted with its conversation. ``interrupted_cost_usd`` is
    the estimated cost of interrupted calls, which ``cost_usd`` leaves out. ``route`` is the routing rule that chose the
    agent, or why no agent answers. ``whatIfs`` are the what-ifs of this job. ``wouldAct`` are the tags of a what-if's
    answer, which are not carried out. ``substitution`` is not null if another model or account answered than the
    agent's first choice. ``callsDeleted`` means that the texts of the model and tool calls were deleted because of
    their age. ``process`` is the process that created the job. ``trace_id`` is the id of the job's trace in
    OpenTelemetry, null if traces are not exported; ``trace_url`` links to it.
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
    calls_deleted: bool
    process: str
    temporal_url: str | None = None
    trace_id: str | None = None
    trace_url: str | None = None


@dataclass(frozen=True)
class ListedJob:
    """A job's row, with the agent's slug, the user's name, the beginning of the message and the webhook's path."""

    job: Job
    agent: str | None
    user: str | None
    text: str | None
    webhook: str | None


@dataclass(frozen=True)
class JobRecord:
    """A job with the rows of all tables that belong to it."""

    listed: ListedJob
    steps: Sequence[JobStep] = ()
    calls: Sequence[LLMCall] = ()
    deliveries: Sequence[Delivery] = ()
    restarts: Sequence[Job] = ()
    actions: Sequence[Action] = ()
    tools: Sequence[ToolRunView] = ()
    questions: Sequence[JobQuestionView] = ()
    led_to: Sequence[str] = ()
    merged: Sequence[str] = ()
    substitution: Substitution | None = None


def job_summary(listed: ListedJob) -> JobSummary:
    return JobSummary.from_row(listed.job, **_joined_values(listed))


def job_detail(record: JobRecord) -> JobDetail:
    return JobDetail.from_row(
        record.listed.job,
        **_joined_values(record.listed),
        route=_route_reason(record.steps),
        restarted_by=tuple(other.id for other in record.restarts if not other.what_if),
        what_ifs=tuple(other.id for other in record.restarts if other.what_if),
        cost_usd=total_cost(record.calls, CallState.ANSWERED, CallState.FAILED),
        interrupted_cost_usd=total_cost(record.calls, CallState.INTERRUPTED),
        steps=tuple(
            StepView.from_row(step, duration_ms=duration_ms(step.started_at, step.finished_at)) for step in record.steps
        ),
        calls=tuple(map(call_view, record.calls)),
        deliveries=tuple(
            DeliveryView.from_row(chunk, excerpt=first_line(chunk.content, LONG_EXCERPT)) for chunk in record.deliveries
        ),
        actions=tuple(map(ActionView.model_validate, record.actions)),
        substitution=record.substitution,
        would_act=tuple(
            WouldActView(
                subject=tag.key, text=tag.body, tag=tag.name, options=tag.options, complete=tag.complete, seq=seq
            )
            for seq, tag in enumerate(_what_if_tags(record))
        ),
        tools=tuple(record.tools),
        questions=tuple(record.questions),
        led_to=tuple(record.led_to),
        merged=tuple(record.merged),
    )


def total_cost(calls: Sequence[LLMCall], *states: CallState) -> float | None:
    """Return the total known cost, in US dollars, of the calls in these states; None if no cost is known."""
    costs = [call.cost_usd for call in calls if call.state in states and call.cost_usd is not None]
    return sum(costs) if costs else None


def _joined_values(listed: ListedJob) -> dict[str, Any]:
    return {
        "agent": listed.agent,
        "user": listed.user or "",
        "webhook": listed.webhook,
        "excerpt": first_line(listed.text or ""),
        "edits": job_edits(listed.job) if listed.job.edits else None,
    }


def _route_reason(steps: Sequence[JobStep]) -> str:
    """Return the reason of the last routing decision, empty without one."""
    results = [step.result for step in steps if step.step == StepKind.ROUTE and step.state is StepState.DONE]
    try:
        return RouteOutcome.model_validate_json(results[-1]).reason if results else ""
    except ValidationError:  # A result that another release wrote must not make the whole view fail.
        return ""


def _what_if_tags(record: JobRecord) -> Sequence[Tag]:
    answers = [call for call in record.calls if call.purpose is CallPurpose.ANSWER and call.state is CallState.ANSWERED]
    completed = record.listed.job.what_if and record.listed.job.status is JobStatus.COMPLETED
    return parse_answer(answers[-1].content).tags if completed and answers else ()

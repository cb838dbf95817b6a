"""The API models of a job's parts: steps, model calls, tool calls, questions, deliveries and actions."""

from datetime import datetime, timedelta
from typing import NamedTuple

from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobStep, StepState
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose
from maestro.domain.messages import ReceiptState
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import TagName
from maestro.domain.tools import ToolRun, ToolState
from maestro.domain.values import View

LONG_EXCERPT = 500
"""The most characters of a text on the page of one job."""


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
    """One attempt at one model call, without its texts; ``cost_usd`` is None when unknown.

    ``tools`` are the names of the tools that the model asked for.
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
    """All model calls of a job, oldest first; ``next`` is always null."""

    items: tuple[CallView, ...]
    next: str | None = None


class ToolRunView(View):
    """One tool call: ``number`` is the model call that asked for it, ``place`` its index in that answer, from 0.

    ``arguments`` and ``result`` are excerpts of the tool's input and output; empty once they were deleted.
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
    """A question of a job to a user, asked by the tool call with this ``number`` and ``place``.

    ``kind`` is question or approval, ``status`` as in the list of questions.
    """

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
    """One chunk to send; ``excerpt`` is the beginning of its text, or of the file ``filename``.

    ``repeats`` counts the times it was sent again although the platform may have had it: as many duplicates are
    possible. ``standing`` is the last state that the platform reported.
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
    """The result of one tag of the answer; ``detail`` is the sentence for the user, or why nothing was done."""

    seq: int
    tag: str
    subject: str
    state: ActionState
    detail: str


class WouldActView(View):
    """A tag in the answer of a what-if, which is shown and not carried out.

    In a real answer, a tag that is not ``complete`` would be reported as an error and not carried out either.
    """

    seq: int
    tag: TagName
    subject: str
    options: tuple[str, ...]
    text: str
    complete: bool


class ToolTexts(NamedTuple):
    """A tool call, with the beginnings of its arguments and of its result."""

    call: ToolRun
    arguments: str
    result: str


def step_view(row: JobStep) -> StepView:
    duration = _milliseconds(row.started_at, row.finished_at)
    return StepView(**row.model_dump(include=set(StepView.model_fields)), duration_ms=duration)


def call_view(row: LLMCall) -> CallView:
    tools = TOOL_CALLS.validate_json(row.tool_calls) if row.tool_calls else ()
    return CallView(**row.model_dump(include=set(CallView.model_fields)), tools=tuple(tool.name for tool in tools))


def tool_view(texts: ToolTexts) -> ToolRunView:
    row = texts.call
    return ToolRunView(
        **row.model_dump(include=set(ToolRunView.model_fields) - {"arguments", "result"}),
        arguments=excerpt(texts.arguments, LONG_EXCERPT),
        result=excerpt(texts.result, LONG_EXCERPT),
        duration_ms=_milliseconds(row.started_at, row.finished_at),
    )


def delivery_view(row: Delivery) -> DeliveryView:
    fields = row.model_dump(include=set(DeliveryView.model_fields))
    return DeliveryView(**fields, excerpt=excerpt(row.content, LONG_EXCERPT))


def excerpt(text: str, most: int = 140) -> str:
    """Return the beginning of a text on one line, at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _milliseconds(began: datetime, ended: datetime | None) -> int | None:
    """Return a duration in milliseconds, None while it lasts; 0 if the clock was set back."""
    return max(0, (ended - began) // timedelta(milliseconds=1)) if ended is not None else None

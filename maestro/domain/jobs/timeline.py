"""The parts of a job as operators see them: steps, model calls, tool calls, questions, what was sent and acted on."""

from datetime import datetime, timedelta
from typing import NamedTuple

from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobStep, StepState
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose
from maestro.domain.messages import ReceiptState
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import Tag, TagName
from maestro.domain.tools import ToolRun, ToolState
from maestro.domain.values import View

EXCERPT = 140
"""Characters of a message that a list shows."""

LONG_EXCERPT = 500
"""Characters of a text that the page of one job shows."""


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


class ToolRunView(View):
    """One tool call: ``number`` is the model call that asked for it, its round, and ``place`` that in its answer.

    ``arguments`` and ``result`` are the beginnings of what the model wrote and read; empty once they were deleted.
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
    """A question that the job put to a person, of the tool call with this ``number`` and ``place``.

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
    """One chunk that went out or was meant to; ``excerpt`` is how its text, or the file ``filename``, begins.

    ``repeats`` is how often it was sent again although the platform may have had it: it may be there so many times
    more. ``standing`` is what the platform said of it last, without being asked.
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
    """What came of one tag of the answer; ``detail`` is what people are told, or why nothing came of it."""

    seq: int
    tag: str
    subject: str
    state: ActionState
    detail: str


class WouldActView(View):
    """A tag on which a what-if would have acted; one that is not ``complete`` would have been reported only."""

    seq: int
    tag: TagName
    subject: str
    options: tuple[str, ...]
    text: str
    complete: bool


class ToolTexts(NamedTuple):
    """A tool call, the beginning of what the model wrote, and of what it read."""

    call: ToolRun
    arguments: str
    result: str


def step_view(row: JobStep) -> StepView:
    """Show an attempt at a step."""
    took = _milliseconds(row.started_at, row.finished_at)
    return StepView(**row.model_dump(include=set(StepView.model_fields)), duration_ms=took)


def call_view(row: LLMCall) -> CallView:
    """Show an attempt at a model call."""
    wanted = TOOL_CALLS.validate_json(row.tool_calls) if row.tool_calls else ()
    return CallView(**row.model_dump(include=set(CallView.model_fields)), tools=tuple(call.name for call in wanted))


def tool_view(texts: ToolTexts) -> ToolRunView:
    """Show a tool call."""
    row = texts.call
    return ToolRunView(
        **row.model_dump(include=set(ToolRunView.model_fields) - {"arguments", "result"}),
        arguments=excerpt(texts.arguments, LONG_EXCERPT),
        result=excerpt(texts.result, LONG_EXCERPT),
        duration_ms=_milliseconds(row.started_at, row.finished_at),
    )


def delivery_view(row: Delivery) -> DeliveryView:
    """Show a chunk."""
    fields = row.model_dump(include=set(DeliveryView.model_fields))
    return DeliveryView(**fields, excerpt=excerpt(row.content, LONG_EXCERPT))


def would_act_view(seq: int, tag: Tag) -> WouldActView:
    """Show a tag on which nobody acts."""
    return WouldActView(
        seq=seq, tag=tag.name, subject=tag.key, options=tag.options, text=tag.body, complete=tag.complete
    )


def excerpt(text: str, most: int = EXCERPT) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _milliseconds(began: datetime, ended: datetime | None) -> int | None:
    """Return how long something took, nothing where the clock was set back meanwhile."""
    return max(0, (ended - began) // timedelta(milliseconds=1)) if ended is not None else None

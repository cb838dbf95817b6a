"""The recorded prompt and answer of one model call, and the full texts of a job, as operators see them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from maestro.domain.context.layers import LayerSize
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.models import estimate_messages, estimate_tools
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose, PromptMessage, Role, StoredRequest, ToolCall, ToolSpec
from maestro.domain.messages import InboxRow
from maestro.domain.values import View


@dataclass(frozen=True)
class RecordedCall:
    """The complete record of one attempt at one model call.

    ``layers`` are the layers (sections) of the job's prompt; the prompt of a compaction has none.
    """

    call: LLMCall
    request: StoredRequest
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    layers: tuple[LayerSize, ...] = ()


class ImageView(View):
    """An image in the prompt; ``digest`` is its SHA-256 and the name of its file in the data folder's ``media``."""

    digest: str
    content_type: str


class TurnView(View):
    """One message of the request; ``tokens`` are estimated.

    ``message_id`` is the stored message of the conversation with this text, null for other texts. For a tool's result,
    ``call_id`` and ``tool`` name the tool call. ``cache`` means that the provider was asked to cache the prompt up to
    this message. The first ``stable_characters`` characters of the text are the same in many prompts.
    """

    role: Role
    text: str
    tokens: int
    images: tuple[ImageView, ...]
    message_id: int | None
    tool_calls: tuple[ToolCall, ...]
    call_id: str
    tool: str
    cache: bool
    stable_characters: int


class ToolView(View):
    """A tool that the model could call; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: JsonValue


class AnswerView(View):
    """The answer of the model, tags included, with its tokens and its cost in US dollars."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class RecordedCallView(View):
    """One attempt at one model call: the request as recorded before it was sent, and the answer as received.

    ``model`` is the requested model, empty for the account's default. ``final`` means that the model had to answer
    without further tool calls. ``tokens`` is the estimate for the whole request. ``answer`` is null if there is none;
    ``error`` then gives the reason.
    """

    id: int
    job_id: str
    purpose: CallPurpose
    number: int
    attempt: int
    state: CallState
    error: str
    started_at: datetime
    platform: str
    provider: str
    account: str
    model: str
    max_output_tokens: int
    final: bool
    tokens: int
    layers: tuple[LayerSize, ...]
    tools: tuple[ToolView, ...]
    messages: tuple[TurnView, ...]
    answer: AnswerView | None


def recorded_call_view(record: RecordedCall) -> RecordedCallView:
    call, request = record.call, record.request
    return RecordedCallView.from_row(
        call,
        platform=request.platform,
        account=request.account or call.account,
        model=request.model,
        max_output_tokens=request.max_output_tokens,
        final=request.final,
        tokens=estimate_messages(record.messages) + estimate_tools(record.tools),
        layers=record.layers,
        tools=tuple(ToolView.from_row(tool, parameters=json.loads(tool.parameters)) for tool in record.tools),
        messages=tuple(map(_message_view, record.messages)),
        answer=AnswerView.from_row(
            call, text=call.content, tool_calls=TOOL_CALLS.validate_json(call.tool_calls) if call.tool_calls else ()
        )
        if call.state is CallState.ANSWERED
        else None,
    )


def _message_view(message: PromptMessage) -> TurnView:
    return TurnView.from_row(
        message, text=message.content, tokens=estimate_messages([message]), stable_characters=message.stable
    )


@dataclass(frozen=True)
class RecordedAnswer:
    """The answer of a job; ``superseded`` means that a restarted job wrote a newer answer.

    ``at`` is None for a job without a conversation, because the time of such an answer is not stored.
    """

    text: str
    at: datetime | None = None
    superseded: bool = False


@dataclass(frozen=True)
class JobPageTexts:
    """The incoming message, the answer and the sizes of the prompt's layers; None or empty for a missing part.

    ``ahead`` is the id of the preceding job in the same lane (queue), empty unless this job waits for its lane.
    """

    message: InboxRow | None = None
    answer: RecordedAnswer | None = None
    layers: Sequence[LayerSize] = ()
    ahead: str = ""

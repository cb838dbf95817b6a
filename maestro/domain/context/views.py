"""What exactly a model saw in one call, and what it said: for operators, on the API and on the command line alike."""

import json
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from maestro.domain.context.layers import LayerName, LayerSize
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.models import estimate_messages, estimate_tools
from maestro.domain.llm.prompts import TOOL_CALLS, CallPurpose, PromptMessage, Role, StoredRequest, ToolSpec
from maestro.domain.values import View


@dataclass(frozen=True)
class RecordedCall:
    """Everything that is stored of one attempt at one model call.

    ``layers`` are those of the job's prompt; a compaction asks with a prompt of its own, which has none.
    """

    call: LLMCall
    request: StoredRequest
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    layers: tuple[LayerSize, ...] = ()


class ImageView(View):
    """An image that the model was shown, by its SHA-256: it is the file of this name in the data folder's ``media``."""

    digest: str
    content_type: str


class ToolCallView(View):
    """A tool call as the model wrote it; ``arguments`` need not be JSON."""

    id: str
    name: str
    arguments: str


class TurnView(View):
    """One message of the request. ``tokens`` are estimated.

    ``message_id`` is the row of the conversation whose text this is, if it is one. Of a tool's result, ``call_id`` and
    ``tool`` say whose. ``cache`` says that the provider was asked to keep what ends here; the first
    ``stable_characters`` of the text stay the same from message to message.
    """

    role: Role
    text: str
    tokens: int
    images: tuple[ImageView, ...]
    message_id: int | None
    tool_calls: tuple[ToolCallView, ...]
    call_id: str
    tool: str
    cache: bool
    stable_characters: int


class ToolView(View):
    """A tool the model could call; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: JsonValue


class LayerView(View):
    """A layer of the prompt, in its order; ``tokens`` are estimated, ``note`` says what was left out or chosen."""

    name: LayerName
    characters: int
    tokens: int
    note: str


class AnswerView(View):
    """What the model said, tags included, and what the call took."""

    text: str
    tool_calls: tuple[ToolCallView, ...]
    finish_reason: str
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class RecordedCallView(View):
    """One attempt at one model call: the request as it was committed before it left, and the answer as it came.

    ``model`` is the one that was asked for, empty for the account's own. ``final`` says that tools could not be called
    any more. ``tokens`` is the whole request as it was estimated. ``answer`` is null when there is none, and ``error``
    then says why.
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
    layers: tuple[LayerView, ...]
    tools: tuple[ToolView, ...]
    messages: tuple[TurnView, ...]
    answer: AnswerView | None


def recorded_call_view(seen: RecordedCall) -> RecordedCallView:
    """Show one attempt."""
    call, request = seen.call, seen.request
    return RecordedCallView(
        **call.model_dump(include={"id", "job_id", "purpose", "number", "attempt", "state", "error", "started_at"}),
        platform=request.platform,
        provider=call.provider,
        account=request.account or call.account,
        model=request.model,
        max_output_tokens=request.max_output_tokens,
        final=request.final,
        tokens=estimate_messages(seen.messages) + estimate_tools(seen.tools),
        layers=tuple(map(LayerView.model_validate, seen.layers)),
        tools=tuple(map(_tool, seen.tools)),
        messages=tuple(map(_turn, seen.messages)),
        answer=_answer(call) if call.state is CallState.ANSWERED else None,
    )


def _turn(message: PromptMessage) -> TurnView:
    return TurnView(
        role=message.role,
        text=message.content,
        tokens=estimate_messages([message]),
        images=tuple(map(ImageView.model_validate, message.images)),
        message_id=message.message_id,
        tool_calls=tuple(map(ToolCallView.model_validate, message.tool_calls)),
        call_id=message.call_id,
        tool=message.tool,
        cache=message.cache,
        stable_characters=message.stable,
    )


def _tool(tool: ToolSpec) -> ToolView:
    return ToolView(name=tool.name, description=tool.description, parameters=json.loads(tool.parameters))


def _answer(call: LLMCall) -> AnswerView:
    wanted = TOOL_CALLS.validate_json(call.tool_calls) if call.tool_calls else ()
    return AnswerView(
        text=call.content,
        tool_calls=tuple(map(ToolCallView.model_validate, wanted)),
        **call.model_dump(
            include={"finish_reason", "model", "input_tokens", "output_tokens", "cached_tokens", "cost_usd"}
        ),
    )

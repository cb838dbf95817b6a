"""The values of one model call: its prompt, its request and its answer."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict

from pydantic import Field, TypeAdapter

from maestro.domain.precedence import Precedence
from maestro.domain.values import Value


class Role(StrEnum):
    """The role of a message in a prompt."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ImageRef(Value):
    """A reference to an image in the media store: its digest and its content type, but not its bytes."""

    digest: str
    content_type: str


class ToolSpec(Value):
    """The description of a tool for a model; ``parameters`` is a JSON schema as canonical JSON text."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str
    parameters: str


class ToolCall(Value):
    """A tool call that a model requests; ``arguments`` is the text that the model wrote, which may be invalid JSON."""

    # Made of the model call's number and the position in the answer, because ids of some providers change on a retry.
    id: str
    name: str
    arguments: str


class PromptMessage(Value):
    """One message of a prompt; ``message_id`` is the stored message with the same text, None for other texts.

    A message of the assistant may have ``tool_calls``. In the message with a tool's result, ``call_id`` and ``tool``
    name the tool call. ``cache`` asks the provider to cache the prompt up to this message. The first ``stable``
    characters are the same in many prompts and are cached separately. ``chat`` marks posts of #maestro, which are not
    part of the conversation.
    """

    role: Role
    content: str
    stable: int = Field(default=0, ge=0)
    images: tuple[ImageRef, ...] = ()
    message_id: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""
    cache: bool = False
    chat: bool = False


class ComposedTurn(NamedTuple):
    """A message of a prompt while the prompt is composed; it becomes a ``PromptMessage`` later.

    ``content`` may be empty if ``message_id`` names the stored message with the text. Fields are not validated, because
    a named tuple is created ten times faster than a validated model.
    """

    role: Role
    content: str
    stable: int = 0
    images: tuple[ImageRef, ...] = ()
    message_id: int | None = None


class StoredTurn(Value):
    """One message of a stored prompt; its text is stored under a message id or under the digest of a prompt part.

    ``stable`` is the digest of the beginning that many prompts have in common, empty without one: it is stored once,
    and ``digest`` is that of the rest. ``calls`` is the digest of the JSON of the tool calls, empty without any.
    """

    role: Role
    message_id: int | None = None
    digest: str = ""
    stable: str = ""
    images: tuple[ImageRef, ...] = ()
    calls: str = ""
    call_id: str = ""
    tool: str = ""
    cache: bool = False
    chat: bool = False


class StoredTurnJson(TypedDict, total=False):
    """The JSON fields of a ``StoredTurn``; an absent field has its default value."""

    role: Role
    message_id: int
    digest: str
    stable: str
    images: list[dict[str, str]]


TOOL_CALLS = TypeAdapter(tuple[ToolCall, ...])
"""A type adapter that reads and writes the tool calls of an answer as JSON."""


PROMPT_TURNS = TypeAdapter(tuple[StoredTurn, ...])
"""A type adapter that reads and writes the turns of a stored prompt as JSON."""


class CallPurpose(StrEnum):
    """The purpose of a model call: the answer to a user, or one of the two parts of a compaction."""

    ANSWER = "answer"
    FACTS = "facts"
    SUMMARY = "summary"


class CallKey(Value):
    """The identity of a model call: its job, its number and its purpose.

    ``number`` counts a job's answer calls from 1. For a call of a compaction, it is the id of the last message that the
    compaction covers, so that a stored answer is never used for other messages.
    """

    job_id: str
    number: int = Field(ge=1)
    purpose: CallPurpose = CallPurpose.ANSWER


class Usage(Value):
    """The tokens of one model call; ``cached_tokens`` and ``cache_write_tokens`` are included in ``input_tokens``."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)


class LLMResponse(Usage):
    """The answer of a model with its token usage; ``cost_usd`` is None if the price is unknown."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    model: str
    provider: str
    account: str
    cost_usd: float | None = None
    duration_ms: int = Field(ge=0)
    finish_reason: str = ""


OnSend = Callable[[Any], None]
"""A callback before a request is sent; it gets the transaction that stores the request (``store.transaction``)."""
OnAnswer = Callable[[Any, LLMResponse], None]
"""A callback after an answer; it gets the open transaction that stores the answer, and the answer."""


class LLMRequest(Value):
    """One model call: one system message first, then messages of which the last is a user's or a tool's.

    Two messages of one role may follow each other, for example after a question without an answer.

    ``model`` is the model of the agent's settings, and ``fallbacks`` are tried after it in order. The failover sets
    ``account`` and ``model`` to the chosen ones. ``exact`` forbids a substitute model. ``final`` forbids tool calls:
    the model must answer now. ``never_empty`` replaces an empty answer by a fixed sentence. ``precedence`` is the order
    among waiting calls.

    ``agent`` is the slug of the answering agent and ``role`` its role. The prompt contains the posts of #maestro after
    ``chat_after`` up to ``chat_upto``. ``reminded`` means that the prompt tells the agent not to ask questions in
    #maestro. A ``what_if`` call stores only its usage and does not mark these posts as read. ``shown_every`` is the
    interval in seconds at which users see the unfinished answer, 0 for no streaming.

    The last three fields exist only in this process. ``snapshot`` is the stored state of the call
    (``maestro.llm.middleware.replay``). ``on_send`` is called in the transaction that stores the request; an exception
    prevents the request. ``on_answer`` is called in the transaction that stores the answer; after an exception, the
    answer is stored without the changes of ``on_answer``. It is not called for an answer that was stored before, nor
    for one that another process commits.
    """

    key: CallKey
    platform: str
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    account: str = ""
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    final: bool = False
    never_empty: bool = False
    max_output_tokens: int = Field(gt=0)
    conversation_id: int = 0
    precedence: Precedence = Precedence()
    exact: bool = False
    agent: str = ""
    role: str = ""
    chat_after: int = 0
    chat_upto: int = 0
    reminded: bool = False
    what_if: bool = False
    shown_every: float = Field(default=0, ge=0)
    snapshot: Any = Field(default=None, exclude=True, repr=False)
    on_send: OnSend | None = Field(default=None, exclude=True, repr=False)
    on_answer: OnAnswer | None = Field(default=None, exclude=True, repr=False)


class StoredRequest(Value):
    """A request as it is stored: texts are references, ``tools`` is the digest of their JSON, empty without tools."""

    platform: str
    model: str
    account: str = ""
    max_output_tokens: int = Field(gt=0)
    turns: tuple[StoredTurn, ...]
    tools: str = ""
    final: bool = False
    never_empty: bool = False
    chat_after: int = 0
    chat_upto: int = 0
    reminded: bool = False


TOOL_SPECS = TypeAdapter(tuple[ToolSpec, ...])
"""A type adapter that reads and writes the tools of a request as JSON."""

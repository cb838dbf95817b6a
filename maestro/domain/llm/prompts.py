"""The prompt and the answer of one model call, as values."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict

from pydantic import Field, TypeAdapter

from maestro.domain.precedence import Precedence
from maestro.domain.values import Value


class Role(StrEnum):
    """Who speaks in a prompt."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ImageRef(Value):
    """An image by reference: the media store's digest and its type; the transport loads the bytes."""

    digest: str
    content_type: str


class ToolSpec(Value):
    """What a model is told of a tool; ``parameters`` is a JSON schema as canonical JSON text."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str
    parameters: str


class ToolCall(Value):
    """A tool the model wants to be called; ``arguments`` is the text it wrote, which need not be JSON.

    The id is ours, made from the call's number and the place in its answer: what providers send is invented anew for
    each response by some of them.
    """

    id: str
    name: str
    arguments: str


class PromptMessage(Value):
    """One turn of a prompt; ``message_id`` names the stored message it repeats, if it does.

    A turn of the assistant may carry ``tool_calls``; a tool's turn says by ``call_id`` and ``tool`` whose result it is.
    ``cache`` marks the end of a beginning that a provider should keep, where it can. The first ``stable`` characters
    are the same in many prompts, so that their end is worth a mark of its own. ``chat`` marks a turn of posts in
    #maestro, which nobody said in the conversation.
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
    """What becomes a ``PromptMessage``, while the prompt is composed: most are only noted by the id of their message.

    So ``content`` may be left out where there is a ``message_id``. Nothing is checked, which takes a tenth of the time.
    """

    role: Role
    content: str
    stable: int = 0
    images: tuple[ImageRef, ...] = ()
    message_id: int | None = None


class StoredTurn(Value):
    """One turn of a stored prompt: its text by message id or by the digest of a kept part.

    ``stable`` is the digest of the beginning that many prompts share, empty when there is none: it is kept once, and
    ``digest`` is that of the rest. ``calls`` is the digest of the JSON of its tool calls, empty when it has none.
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
    """The fields of a ``Turn`` as JSON; what is left out is as there."""

    role: Role
    message_id: int
    digest: str
    stable: str
    images: list[dict[str, str]]


TOOL_CALLS = TypeAdapter(tuple[ToolCall, ...])
"""Reads and writes the tool calls of an answer as JSON."""


PROMPT_TURNS = TypeAdapter(tuple[StoredTurn, ...])
"""Reads and writes the turns of a stored prompt as JSON."""


class CallPurpose(StrEnum):
    """What a model is asked for: the answer to a person, or one of the two halves of a compaction."""

    ANSWER = "answer"
    FACTS = "facts"
    SUMMARY = "summary"


class CallKey(Value):
    """Which model call of which job.

    The number counts a job's calls for an answer from 1; a call of a compaction carries the id of the last message it
    covers, so that what we hold is never taken for an answer about other messages.
    """

    job_id: str
    number: int = Field(ge=1)
    purpose: CallPurpose = CallPurpose.ANSWER


class Usage(Value):
    """The tokens of one call; ``cached_tokens`` and ``cache_write_tokens`` are parts of ``input_tokens``."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)


class LLMResponse(Usage):
    """What the model said and what it took; ``cost_usd`` is None when the price is unknown."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    model: str
    provider: str
    account: str
    cost_usd: float | None = None
    duration_ms: int = Field(ge=0)
    finish_reason: str = ""


OnSend = Callable[[Any], None]
"""Takes the open transaction (``maestro.store.transaction.Transaction``) that commits a request before it leaves."""
OnAnswer = Callable[[Any, LLMResponse], None]
"""Takes the open transaction that keeps an answer, and the answer."""


class LLMRequest(Value):
    """One model call: exactly one leading system message, then turns of which a user's or a tool's is the last.

    Two of one role may follow each other, as after a question that was never answered. ``model`` is the agent's own
    wish, then come its ``fallbacks``; who chooses the account puts its name in ``account`` and its model in ``model``.
    ``final`` forbids tool calls: the model must answer now; with ``never_empty`` a fixed sentence stands in for an
    answer of nothing. ``precedence`` says who goes first where calls wait; with ``exact`` nobody stands in with another
    model. ``agent`` is the slug of who asks and ``role`` its role; it is told the posts of #maestro after
    ``chat_after`` up to ``chat_upto``, and ``reminded`` that they are no place to ask.
    Of a ``what_if`` nothing is left behind but what it took: nobody has read the posts that it is told. ``shown_every``
    is how often in seconds people may see what is written so far, 0 where they see the answer when it is whole.
    The last three fields live in this process alone. ``snapshot`` is what the store says of the call
    (``maestro.llm.middleware.replay``). ``on_send`` is called in the transaction that commits the request; what
    it raises keeps the request from leaving. ``on_answer`` is called in the transaction that keeps the answer: when it
    raises, what it did is rolled back and the answer is kept without it. It is not called for an answer that was held
    before the call, nor for one that another process commits.
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
    """A request as it is stored: its texts by reference, ``tools`` as the digest of their JSON, empty without any."""

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
"""Reads and writes the tools that a request offers as JSON."""

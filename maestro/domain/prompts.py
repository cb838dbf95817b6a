"""The prompt and the answer of one model call, as values (specification 003, steps 6 and 10)."""

from enum import StrEnum

from pydantic import Field, TypeAdapter

from maestro.domain.values import Value


class Role(StrEnum):
    """Who speaks in a prompt."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ImageRef(Value):
    """An image by reference: the media store's digest and its type; the transport loads the bytes."""

    digest: str
    content_type: str


class PromptMessage(Value):
    """One turn of a prompt; ``message_id`` names the stored message it repeats, if it does."""

    role: Role
    content: str
    images: tuple[ImageRef, ...] = ()
    message_id: int | None = None


class Turn(Value):
    """One turn of a stored prompt: its text by message id or by the digest of a kept part."""

    role: Role
    message_id: int | None = None
    digest: str = ""
    images: tuple[ImageRef, ...] = ()


PROMPT_TURNS = TypeAdapter(tuple[Turn, ...])
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


class LLMRequest(Value):
    """One model call: exactly one leading system message, then turns of which a user's is first and last.

    Two of one role may follow each other, as after a question that was never answered.
    """

    key: CallKey
    platform: str
    model: str = ""
    messages: tuple[PromptMessage, ...]
    max_output_tokens: int = Field(gt=0)


class LLMResponse(Value):
    """What the model said and what it took; ``cost_usd`` is None when the price is unknown."""

    content: str
    model: str
    provider: str
    account: str
    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cost_usd: float | None = None
    duration_ms: int = Field(ge=0)
    finish_reason: str = ""

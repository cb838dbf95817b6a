"""The interface of tools: a description for the model, and one of several ways to run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from maestro.domain.errors import MaestroError
from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.media import HEAD_BYTES, IMAGE_TYPES, MAX_IMAGE_BYTES, detect_type
from maestro.store.transaction import Transaction

Arguments = Mapping[str, Any]
"""The arguments of a call, checked against the tool's schema."""


@dataclass(frozen=True)
class ToolCaller:
    """The job, agent and conversation for which a tool runs; the conversation's ``folder`` may not exist yet.

    ``place`` is the memory scope, empty for all conversations. ``turn`` is the number of the tool round, and of the
    call within that round.
    """

    job_id: str
    agent_id: int
    conversation_id: int
    folder: Path
    place: str = ""
    turn: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ToolImage:
    """A picture that a tool returns: its bytes, and the content type that was found from the bytes."""

    content: bytes = field(repr=False)
    content_type: str


@dataclass(frozen=True)
class ToolOutput:
    """The result of a tool that returns pictures besides its text."""

    text: str
    pictures: tuple[ToolImage, ...] = ()


def detect_picture(content: bytes) -> ToolImage | None:
    """Return a picture that models accept, its type found from its bytes; None for other content or a too large one."""
    content_type = detect_type(content[:HEAD_BYTES])
    is_accepted = content_type in IMAGE_TYPES and len(content) <= MAX_IMAGE_BYTES
    return ToolImage(content, content_type) if is_accepted else None


class ToolFailure(MaestroError):
    """A failure of a tool; the model reads its text, so the text names the fix and holds no secret."""

    public = "A tool could not do what it was asked."


class Tool(Protocol):
    """A tool; if ``idempotent``, it may be called again when the outcome of a call is unknown.

    A ``read_only`` tool changes nothing anywhere.
    """

    spec: ToolSpec
    idempotent: bool
    read_only: bool


@runtime_checkable
class AsyncTool(Protocol):
    """A tool that uses the network, processes or files."""

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str | ToolOutput:
        """Run the tool and return the text for the model; raises ``ToolFailure``. A cancellation ends its processes."""
        ...


@runtime_checkable
class StoreTool(Protocol):
    """A tool that only touches the store: its effect and its result are one transaction, so it happens exactly once."""

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        """Run the tool and return the text for the model; raises ``ToolFailure``, which rolls back its changes."""
        ...


@runtime_checkable
class PreparingTool(StoreTool, Protocol):
    """A tool with slow work, done before its transaction so that the transaction does not hold up other writers."""

    def prepared(self, arguments: Arguments, caller: ToolCaller) -> Arguments:
        """Return the prepared arguments for ``act``; raises ``ToolFailure``. A call may be prepared twice."""
        ...


@dataclass(frozen=True)
class ToolQuestion:
    """A question for a person, with context and with answers to choose from."""

    text: str
    context: str = ""
    choices: tuple[str, ...] = ()


@runtime_checkable
class QuestionTool(Protocol):
    """A tool that asks a user a question and returns the answer."""

    def question(self, arguments: Arguments) -> ToolQuestion:
        """Return the question; raises ``ToolFailure``."""
        ...


def tool_spec(name: str, description: str, properties: Mapping[str, object], required: Sequence[str] = ()) -> ToolSpec:
    """Return the description of a tool with these arguments, each a JSON schema; other arguments are refused."""
    return ToolSpec(name=name, description=description, parameters=canonical_json(object_schema(properties, required)))


def object_schema(properties: Mapping[str, object], required: Sequence[str] = ()) -> Mapping[str, object]:
    """Return the JSON schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def canonical_json(value: object) -> str:
    """Return JSON that is byte for byte the same for equal values, so that the provider's prompt cache is hit."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def shorten_text(text: str, limit: int) -> str:
    """Return a text cut to a number of characters; a mark at its end gives the number of characters cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[... {len(text) - limit:,} more characters were left out]"

"""The interface of tools: a description for the model, and one of three ways to act."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from maestro.domain.errors import MaestroError
from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.media import HEAD_BYTES, IMAGE_TYPES, MAX_IMAGE_BYTES, by_magic
from maestro.store.transaction import Transaction

Arguments = Mapping[str, Any]
"""The arguments of a call, checked against the tool's schema."""


@dataclass(frozen=True)
class ToolCaller:
    """The job, agent and conversation that a tool acts for; ``folder`` is the conversation's own and may not exist yet.

    ``place`` is the memory scope, empty for everywhere. ``turn`` is the number of the round and of the call in it.
    """

    job_id: str
    agent_id: int
    conversation_id: int
    folder: Path
    place: str = ""
    turn: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ToolImage:
    """A picture that a tool returns: its bytes, and the content type that they show."""

    content: bytes = field(repr=False)
    content_type: str


@dataclass(frozen=True)
class ToolOutput:
    """What a tool returns that has pictures to show beside its text."""

    text: str
    pictures: tuple[ToolImage, ...] = ()


def picture_of(content: bytes) -> ToolImage | None:
    """Return a picture that models can be shown, by its own bytes; None for what is none, or too large."""
    content_type = by_magic(content[:HEAD_BYTES])
    fits = content_type in IMAGE_TYPES and len(content) <= MAX_IMAGE_BYTES
    return ToolImage(content, content_type) if fits else None


class ToolFailure(MaestroError):
    """The tool could not do it; the text is what the model reads, so it names the fix and no secret."""

    public = "A tool could not do what it was asked."


class Tool(Protocol):
    """A tool; an ``idempotent`` one may be called again when the outcome of a call is unknown.

    A ``read_only`` one changes nothing anywhere.
    """

    spec: ToolSpec
    idempotent: bool
    read_only: bool


@runtime_checkable
class AsyncTool(Protocol):
    """A tool that reaches out: network, processes, files."""

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str | ToolOutput:
        """Do it and return what the model reads; raises ``ToolFailure``. Cancelling it must end what it started."""
        ...


@runtime_checkable
class StoreTool(Protocol):
    """A tool that only touches the store: its effect and its result are one transaction, so it happens exactly once."""

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        """Do it and return what the model reads; raises ``ToolFailure``, which undoes it."""
        ...


@runtime_checkable
class PreparingTool(StoreTool, Protocol):
    """A tool with slow work before its transaction, which must not hold up other writers."""

    def prepared(self, arguments: Arguments, caller: ToolCaller) -> Arguments:
        """Return the arguments to act on; raises ``ToolFailure``. It may be called twice."""
        ...


@dataclass(frozen=True)
class ToolQuestion:
    """A question for a person, with context and with answers to choose from."""

    text: str
    context: str = ""
    choices: tuple[str, ...] = ()


@runtime_checkable
class QuestionTool(Protocol):
    """A tool that returns a person's answer."""

    def question(self, arguments: Arguments) -> ToolQuestion:
        """Return what to ask; raises ``ToolFailure``."""
        ...


def tool_spec(name: str, description: str, properties: Mapping[str, object], required: Sequence[str] = ()) -> ToolSpec:
    """Return the description of a tool with these arguments, each a JSON schema; any other is refused."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=canonical(schema))


def canonical(value: object) -> str:
    """Return JSON that is the same for equal values, byte for byte, so that a provider's cache of prompts is hit."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters and a mark that says how many are missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters were left out]"

"""What a tool is: a description for the model, and one of three ways to act."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from maestro.domain.errors import MaestroError
from maestro.domain.prompts import ToolSpec
from maestro.store.transaction import Transaction

Arguments = Mapping[str, Any]
"""What the model wants, checked against the tool's schema."""


@dataclass(frozen=True)
class Caller:
    """On whose behalf a tool acts; ``folder`` is the conversation's own, which need not exist yet."""

    job_id: str
    agent_id: int
    conversation_id: int
    folder: Path


class ToolFailure(MaestroError):
    """The tool could not do it; the text is what the model reads, so it names the fix and no secret."""

    public = "A tool could not do what it was asked."


class Tool(Protocol):
    """A tool; ``idempotent`` says that a call whose outcome is unknown may simply be made again.

    ``read_only`` says that it changes nothing anywhere.
    """

    spec: ToolSpec
    idempotent: bool
    read_only: bool


@runtime_checkable
class Runs(Protocol):
    """A tool that reaches out: network, processes, files."""

    async def run(self, arguments: Arguments, caller: Caller) -> str:
        """Do it and return what the model reads; raises ``ToolFailure``. Cancelling it must end what it started."""
        ...


@runtime_checkable
class Acts(Protocol):
    """A tool that only touches the store: its effect and its result are one transaction, so it happens exactly once."""

    def act(self, tx: Transaction, arguments: Arguments, caller: Caller) -> str:
        """Do it and return what the model reads; raises ``ToolFailure``, which undoes it."""
        ...


@dataclass(frozen=True)
class Asked:
    """A question in a person's words, and what they should know before they answer."""

    text: str
    context: str = ""


@runtime_checkable
class Asks(Protocol):
    """A tool whose result is a person's answer."""

    def question(self, arguments: Arguments) -> Asked:
        """Return what to ask; raises ``ToolFailure``."""
        ...

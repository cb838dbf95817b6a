"""Understanding and making one tool call: whatever goes wrong is a sentence for the model, never an exception."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from maestro.domain.prompts import ToolCall
from maestro.store.transaction import Transaction
from maestro.tools.base import Acts, Arguments, Asked, Asks, Caller, Runs, Tool, ToolFailure

log = structlog.get_logger(__name__)


class Toolbox(Protocol):
    """The tools there are."""

    async def settled(self) -> None:
        """Wait a short while for tools that are still being looked for."""
        ...

    def find(self, name: str, allowed: Sequence[str] | None) -> Tool:
        """Return a tool that may be called, None for those that everybody may call; raises ``ToolFailure``."""
        ...

    def parse(self, tool: Tool, arguments: str) -> Arguments:
        """Read what the model wrote, checked against the tool's schema; raises ``ToolFailure``."""
        ...


@dataclass(frozen=True)
class Said:
    """What the model reads of a call, and whether it failed."""

    text: str
    failed: bool = False


@dataclass(frozen=True)
class Understood:
    """A call that can be made."""

    tool: Tool
    arguments: Arguments


def understand(toolbox: Toolbox, call: ToolCall, allowed: Sequence[str] | None) -> Understood | Said:
    """Return the tool and its arguments, or what is wrong with the call."""
    try:
        tool = toolbox.find(call.name, allowed)
        return Understood(tool, toolbox.parse(tool, call.arguments))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)


def ask(tool: Asks, arguments: Arguments) -> Asked | Said:
    """Return what to ask a person, or what is wrong with the call."""
    try:
        return tool.question(arguments)
    except ToolFailure as failure:
        return Said(str(failure), failed=True)


async def run(tool: Runs, arguments: Arguments, caller: Caller, seconds: float) -> Said:
    """Let a tool that reaches out do it, for so many seconds at most; raises nothing but a cancellation."""
    try:
        async with asyncio.timeout(seconds):
            return Said(await tool.run(arguments, caller))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)
    except TimeoutError:
        return Said(f"The tool did not finish within {seconds:g} seconds.", failed=True)
    # Tools come from anybody; what one raises must not cost the person the answer (specification 003, step 10).
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("tool.broken", tool=type(tool).__name__, error=type(error).__name__)
        return Said(f"The tool failed unexpectedly ({type(error).__name__}).", failed=True)


def act(tool: Acts, tx: Transaction, arguments: Arguments, caller: Caller) -> Said:
    """Let a tool change the store in this transaction; a failure takes its changes back, and nothing else."""
    try:
        with tx.savepoint():
            return Said(tool.act(tx, arguments, caller))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)

"""Understanding and making one tool call: whatever goes wrong is a sentence for the model, never an exception."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import structlog

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import MaestroError
from maestro.domain.llm.prompts import ToolCall
from maestro.store.transaction import Transaction
from maestro.tools.base import (
    Acts,
    Arguments,
    Asked,
    Asks,
    Caller,
    Prepares,
    Runs,
    Tool,
    ToolFailure,
    ToolImage,
    ToolOutput,
)

GRACE_SECONDS = 10.0
"""How long a tool may take to end when it is told to."""

log = structlog.get_logger(__name__)


class Toolbox(Protocol):
    """The tools there are."""

    async def settled(self) -> None:
        """Wait a short while for tools that are still being looked for."""
        ...

    def find(self, name: str, agent: Agent) -> Tool:
        """Return a tool that the agent may call; raises ``ToolFailure``."""
        ...

    def parse(self, tool: Tool, arguments: str) -> Arguments:
        """Read what the model wrote, checked against the tool's schema; raises ``ToolFailure``."""
        ...


@dataclass(frozen=True)
class Said:
    """What the model reads of a call, and is shown, and whether it failed."""

    text: str
    failed: bool = False
    pictures: tuple[ToolImage, ...] = ()


@dataclass(frozen=True)
class Understood:
    """A call that can be made."""

    tool: Tool
    arguments: Arguments


def understand(toolbox: Toolbox, call: ToolCall, agent: Agent) -> Understood | Said:
    """Return the tool and its arguments, or what is wrong with the call."""
    try:
        tool = toolbox.find(call.name, agent)
        return Understood(tool, toolbox.parse(tool, call.arguments))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)


def ask(tool: Asks, arguments: Arguments) -> Asked | Said:
    """Return what to ask a person, or what is wrong with the call."""
    try:
        return tool.question(arguments)
    except ToolFailure as failure:
        return Said(str(failure), failed=True)
    except Exception as error:  # noqa: BLE001 - as in _outcome
        return _broken(tool, error)


async def run(tool: Runs, arguments: Arguments, caller: Caller, seconds: float) -> Said:
    """Let a tool that reaches out do it, for so many seconds at most; raises nothing but a cancellation.

    A tool that does not end when it is told to is left to itself: no job hangs for it.
    """
    made = asyncio.create_task(_outcome(tool, arguments, caller))
    try:
        await asyncio.wait({made}, timeout=seconds)
        if made.done():
            return _broken(tool, asyncio.CancelledError()) if made.cancelled() else made.result()
    finally:
        await _end(made, tool)
    return Said(f"The tool did not finish within {seconds:g} seconds.", failed=True)


def prepare(wanted: Understood, caller: Caller) -> Understood | Said:
    """Do what a tool has to do before the transaction in which it acts; return what it acts on, or why it cannot."""
    tool = wanted.tool
    if not isinstance(tool, Prepares):
        return wanted
    try:
        return Understood(tool, tool.prepared(wanted.arguments, caller))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)
    except Exception as error:  # noqa: BLE001 - as in _outcome
        return _broken(tool, error)


def act(tool: Acts, tx: Transaction, arguments: Arguments, caller: Caller) -> Said:
    """Let a tool change the store in this transaction; a failure takes its changes back, and nothing else."""
    try:
        with tx.savepoint():
            return Said(str(tool.act(tx, arguments, caller)))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)
    except MaestroError:
        raise
    except Exception as error:  # noqa: BLE001 - as in _outcome
        return _broken(tool, error)


async def _outcome(tool: Runs, arguments: Arguments, caller: Caller) -> Said:
    try:
        made = await tool.run(arguments, caller)
        return Said(made.text, pictures=made.pictures) if isinstance(made, ToolOutput) else Said(str(made))
    except ToolFailure as failure:
        return Said(str(failure), failed=True)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    # Anyone may add a tool: what one raises must neither cost the user the answer nor end the process, as SystemExit
    # would.
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _told_to_end():
            raise
        return _broken(tool, error)


async def _end(made: "asyncio.Task[Said]", tool: Runs) -> None:
    if made.done():
        return
    made.cancel()
    await asyncio.wait({made}, timeout=GRACE_SECONDS)
    if not made.done():
        log.warning("tool.left_behind", tool=type(tool).__name__)


def _told_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _broken(tool: Runs | Acts | Asks, error: BaseException) -> Said:
    log.warning("tool.broken", tool=type(tool).__name__, error=type(error).__name__)
    return Said(f"The tool failed unexpectedly ({type(error).__name__}).", failed=True)

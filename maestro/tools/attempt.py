"""Runs one tool call: parses, prepares and executes it; every failure becomes a sentence for the model."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import MaestroError
from maestro.domain.llm.prompts import ToolCall
from maestro.domain.tools import ToolState
from maestro.store.transaction import Transaction, savepoint
from maestro.tools.base import (
    Arguments,
    AsyncTool,
    PreparingTool,
    QuestionTool,
    StoreTool,
    Tool,
    ToolCaller,
    ToolFailure,
    ToolImage,
    ToolOutput,
    ToolQuestion,
)
from maestro.tools.registry import ToolRegistry, parse_arguments

GRACE_SECONDS = 10.0
"""Seconds that a cancelled tool may take to end."""

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ToolCallResult:
    """The result of a call for the model, with pictures, and its state."""

    text: str
    state: ToolState = ToolState.DONE
    pictures: tuple[ToolImage, ...] = ()


@dataclass(frozen=True)
class ParsedToolCall:
    """A tool call with an existing tool and valid arguments."""

    tool: Tool
    arguments: Arguments


def parse_call(registry: ToolRegistry, call: ToolCall, agent: Agent) -> ParsedToolCall | ToolCallResult:
    """Return the tool and its arguments, or the failure for the model."""
    try:
        tool = registry.find(call.name, agent)
        return ParsedToolCall(tool, parse_arguments(tool.spec, call.arguments))
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)


def ask_tool(tool: QuestionTool, arguments: Arguments) -> ToolQuestion | ToolCallResult:
    """Return the tool's question for a user, or the failure for the model."""
    return _run_guarded(tool, lambda: tool.question(arguments))


async def run_tool(tool: AsyncTool, arguments: Arguments, caller: ToolCaller, seconds: float) -> ToolCallResult:
    """Run a tool with a timeout in seconds; only a cancellation is raised.

    A tool that ignores its cancellation is left running, so that no job waits for it.
    """
    task = asyncio.create_task(_await_result(tool, arguments, caller))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return _unexpected_failure(tool, asyncio.CancelledError()) if task.cancelled() else task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
            if not task.done():
                log.warning("tool.left_behind", tool=type(tool).__name__)
    return ToolCallResult(f"The tool did not finish within {seconds:g} seconds.", ToolState.FAILED)


def prepare(call: ParsedToolCall, caller: ToolCaller) -> ParsedToolCall | ToolCallResult:
    """Do the slow work of a tool before its transaction; return the prepared call, or the failure for the model."""
    tool = call.tool
    if not isinstance(tool, PreparingTool):
        return call
    return _run_guarded(tool, lambda: ParsedToolCall(tool, tool.prepared(call.arguments, caller)))


def run_in_store(tool: StoreTool, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> ToolCallResult:
    """Let a tool change the store in this transaction; a failure rolls back the tool's changes only."""

    def change() -> ToolCallResult:
        with savepoint(tx):
            return ToolCallResult(str(tool.act(tx, arguments, caller)))

    return _run_guarded(tool, change, MaestroError)


def _run_guarded(
    tool: StoreTool | QuestionTool, work: Callable[[], Result], passing: type[Exception] | tuple[()] = ()
) -> Result | ToolCallResult:
    """Do the work and return its result, or its failure as a result; only errors in ``passing`` are raised."""
    try:
        return work()
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)
    except passing:
        raise
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        return _unexpected_failure(tool, error)


async def _await_result(tool: AsyncTool, arguments: Arguments, caller: ToolCaller) -> ToolCallResult:
    try:
        output = await tool.run(arguments, caller)
        output = output if isinstance(output, ToolOutput) else ToolOutput(str(output))
        return ToolCallResult(output.text, pictures=output.pictures)
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    # Tools of installed packages may raise anything, even SystemExit; no error may lose the answer or end the process.
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0:
            raise
        return _unexpected_failure(tool, error)


def _unexpected_failure(tool: AsyncTool | StoreTool | QuestionTool, error: BaseException) -> ToolCallResult:
    log.warning("tool.broken", tool=type(tool).__name__, error=type(error).__name__)
    return ToolCallResult(f"The tool failed unexpectedly ({type(error).__name__}).", ToolState.FAILED)

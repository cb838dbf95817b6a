"""One tool call from its beginning to its end, whatever the tool does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maestro.domain.tools import ToolState
from maestro.store.transaction import Transaction
from maestro.tools import registry
from maestro.tools.base import Arguments, ToolCaller, ToolFailure, ToolQuestion
from maestro.tools.registry import ToolCallResult, ask_tool, run_in_store, run_tool

CALLER = ToolCaller("message-1", 1, 1, Path("unused"))
TIMED_OUT = ToolCallResult("The tool did not finish within 0.1 seconds.", ToolState.FAILED)


class Panic(BaseException):
    """What libraries written in Rust raise."""


class Odd:
    """A tool of somebody else."""

    def __init__(self, do: Callable[[], Awaitable[Any]]) -> None:
        self._do = do

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        return cast("str", await self._do())


class Broken:
    """A tool that changes the store, or asks, and is not written well."""

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        raise KeyError("no such thing")

    def question(self, arguments: Arguments) -> ToolQuestion:
        raise KeyError("no such thing")


class OneTransaction:
    """Has a savepoint and nothing else."""

    _link = SimpleNamespace(open_savepoint=nullcontext)


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def do() -> None:
        raise error

    return do


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def stubborn() -> None:
    for _ in range(20):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize(
    "error", [ValueError("x"), Panic(), SystemExit(1), asyncio.CancelledError(), BaseExceptionGroup("x", [Panic()])]
)
async def test_whatever_a_tool_raises_the_model_hears_of_it(error: BaseException) -> None:
    said = await run_tool(Odd(raising(error)), {}, CALLER, 5)
    assert said == ToolCallResult(f"The tool failed unexpectedly ({type(error).__name__}).", ToolState.FAILED)


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    assert (await run_tool(Odd(cancels_itself), {}, CALLER, 5)).state is ToolState.FAILED


async def test_what_is_no_text_is_made_one() -> None:
    async def number() -> int:
        return 7

    assert await run_tool(Odd(number), {}, CALLER, 5) == ToolCallResult("7")


async def test_a_tool_that_does_not_end_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GRACE_SECONDS", 0.1)
    async with asyncio.timeout(1):
        assert await run_tool(Odd(stubborn), {}, CALLER, 0.1) == TIMED_OUT


async def test_a_tool_that_is_told_to_end_may_clean_up_first() -> None:
    cleaned = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append("up")

    assert await run_tool(Odd(tidy), {}, CALLER, 0.1) == TIMED_OUT
    stopped = asyncio.create_task(run_tool(Odd(tidy), {}, CALLER, 5))
    await asyncio.sleep(0.05)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert cleaned == ["up", "up"]


async def test_a_tool_that_says_why_is_quoted() -> None:
    assert await run_tool(Odd(raising(ToolFailure("too hot"))), {}, CALLER, 5) == ToolCallResult(
        "too hot", ToolState.FAILED
    )


def test_a_broken_tool_that_acts_or_asks_costs_nobody_the_answer() -> None:
    failed = ToolCallResult("The tool failed unexpectedly (KeyError).", ToolState.FAILED)
    assert run_in_store(Broken(), cast("Transaction", OneTransaction()), {}, CALLER) == failed
    assert ask_tool(Broken(), {}) == failed

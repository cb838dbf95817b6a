"""Asking the model until it answers: one activity per model call, one per tool call."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, Protocol

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import ModelOutcome
    from workflows.suspension import Suspended


class Steps(Protocol):
    """How the loop has its steps done."""

    def ask_model(self, number: int, *, final: bool) -> Coroutine[Any, Any, ModelOutcome]:
        """Make one model call."""
        ...

    def call_tool(self, number: int, place: int, name: str) -> Coroutine[Any, Any, None]:
        """Make one tool call; raises ``Suspended`` when it has to wait."""
        ...


async def model_loop(steps: Steps, rounds: int) -> int:
    """Return the number of the call whose answer is final.

    After so many rounds of tool calls the model has to answer without any. Raises ``Suspended``.
    """
    for number in itertools.count(1):
        call = await steps.ask_model(number, final=number > rounds)
        if not call.tools:
            break
        # A call that was made when more rounds were allowed may want tools although it counts as the last one now.
        await _call_all(steps, call)
    return number


async def _call_all(steps: Steps, call: ModelOutcome) -> None:
    """Make the tool calls of one answer side by side; when some have to wait, the others finish first."""
    calls = [steps.call_tool(call.number, place, name) for place, name in enumerate(call.tools)]
    problems = [one for one in await asyncio.gather(*calls, return_exceptions=True) if one is not None]
    for problem in problems:
        if not isinstance(problem, Suspended):
            raise problem
    waiting = [step for problem in problems if isinstance(problem, Suspended) for step in problem.steps]
    if waiting:
        raise Suspended(*waiting)

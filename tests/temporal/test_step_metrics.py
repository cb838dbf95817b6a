"""The clock around steps: each attempt is told once, with its name, its outcome and its time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from maestro.domain.errors import JobEnded, Stopped
from maestro.domain.llm.errors import RateLimited
from temporal.failures import StepFailure
from temporal.step_metrics import StepTimes, outcome_of


class Step(ActivityInboundInterceptor):
    """An activity that does this."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        if self._error is not None:
            raise self._error
        return "the result"


async def attempt(step: Step) -> tuple[Any, list[tuple[str, str, float]]]:
    """Run a step once; return its result and what was observed."""
    observed: list[tuple[str, str, float]] = []
    timed = StepTimes(lambda *what: observed.append(what)).intercept_activity(step)
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_type="call_model")
    try:
        result = await environment.run(timed.execute_activity, ExecuteActivityInput(len, (), None, {}))
    except (ApplicationError, asyncio.CancelledError) as error:
        result = error
    return result, observed


async def test_a_step_that_is_done_is_told_with_its_time() -> None:
    result, [(name, outcome, seconds)] = await attempt(Step())
    assert (result, name, outcome) == ("the result", "call_model", "done")
    assert seconds >= 0


async def test_a_step_that_fails_is_told_and_fails() -> None:
    failure = StepFailure(RateLimited("later"), None)
    result, [(_, outcome, _)] = await attempt(Step(failure))
    assert (result, outcome) == (failure, "failed")


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        CancelledError("by a person"),
        StepFailure(Stopped("by a person"), None),
        StepFailure(JobEnded("meanwhile"), None),
    ],
)
def test_what_nobody_wants_any_more_is_no_failure(error: BaseException) -> None:
    assert outcome_of(error) == "cancelled"

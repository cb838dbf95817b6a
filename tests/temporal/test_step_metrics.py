"""The clock around steps: each attempt is told once, with its name, its outcome and its time."""

import asyncio

import pytest
from temporalio.exceptions import CancelledError

from maestro.domain.errors import JobEnded, Stopped
from maestro.domain.llm.calls import RateLimited
from temporal.attempts import StepFailure, attempt_outcome, time_attempt


def test_a_step_that_is_done_is_told_with_its_time() -> None:
    observed: list[tuple[str, str, float]] = []
    with time_attempt("call_model", lambda *what: observed.append(what)):
        pass
    [(name, outcome, seconds)] = observed
    assert (name, outcome) == ("call_model", "done")
    assert seconds >= 0


def test_a_step_that_fails_is_told_and_fails() -> None:
    observed: list[tuple[str, str, float]] = []
    failure = StepFailure(RateLimited("later"), None)
    with pytest.raises(StepFailure), time_attempt("call_model", lambda *what: observed.append(what)):
        raise failure
    assert [outcome for _, outcome, _ in observed] == ["failed"]


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
    assert attempt_outcome(error) == "cancelled"

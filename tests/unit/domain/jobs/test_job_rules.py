"""When a failed step is tried again, and when it is given up (docs/decisions.md: retry)."""

from datetime import timedelta

import pytest

from connectors.base import FailureScope, NotDispatched, PermanentSend, RetryableSend
from maestro.domain.errors import MaestroError, NoAgent, StepTaken, StoreBusy, StoreFull
from maestro.domain.jobs.job import OPEN, JobStatus
from maestro.domain.jobs.steps import LONGEST_PROVIDER_WAIT, RetryRules, wait_before_retry
from maestro.domain.llm.calls import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    EmptyResponse,
    LimiterBusy,
    ModelTimeout,
    NoAccount,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)

RULES = RetryRules(
    provider_attempts=3, provider_base=120, platform_attempts=10, platform_base=1, own_attempts=5, crashes=10
)


def waits(error: BaseException) -> list[float]:
    """Return the seconds before each further attempt until the step is given up."""
    found: list[float] = []
    while (wait := wait_before_retry(error, len(found) + 1, RULES)) is not None:
        found.append(wait.total_seconds())
    return found


@pytest.mark.parametrize("error", [ProviderUnavailable, ModelTimeout, LimiterBusy])
def test_a_provider_gets_three_attempts_after_two_and_four_minutes(error: type[Exception]) -> None:
    assert waits(error("x")) == [120, 240]


def test_the_wait_a_provider_asks_for_goes_first_and_counts_as_an_attempt() -> None:
    assert waits(RateLimited("x", timedelta(seconds=7))) == [7, 7]
    assert waits(RateLimited("x", LONGEST_PROVIDER_WAIT)) == [600, 600]


@pytest.mark.parametrize("error", [QuotaExhausted("x"), RateLimited("x")])
@pytest.mark.parametrize("asked", [LONGEST_PROVIDER_WAIT + timedelta(seconds=1), timedelta(days=9)])
def test_a_provider_that_asks_for_hours_is_given_up_at_once(error: MaestroError, asked: timedelta) -> None:
    error.retry_after = asked
    assert waits(error) == []


@pytest.mark.parametrize(
    "error", [AuthenticationFailed, BadRequest, ContextOverflow, EmptyResponse, NoAccount, NoAgent]
)
def test_what_repeating_cannot_mend_is_not_repeated(error: type[Exception]) -> None:
    assert waits(error("x")) == []


def test_a_platform_is_tried_sooner_and_more_often_but_never_later_than_a_minute() -> None:
    assert waits(NotDispatched("x")) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert waits(RetryableSend("x", timedelta(seconds=90)))[0] == 90
    assert waits(PermanentSend("x", FailureScope.CHANNEL)) == []


@pytest.mark.parametrize("error", [StoreBusy, StoreFull])
def test_a_store_that_cannot_be_written_is_waited_for_as_long_as_that_takes(error: type[Exception]) -> None:
    first = [wait_before_retry(error("x"), failures, RULES) for failures in (1, 2, 6, 7, 5000)]
    assert [wait.total_seconds() for wait in first if wait is not None] == [1, 2, 32, 60, 60]


def test_a_fault_of_our_own_gets_a_few_quick_repeats() -> None:
    assert waits(ValueError("x")) == [1, 2, 4, 8]
    assert waits(StepTaken("x")) == [1, 2, 4, 8]


def test_every_status_is_open_or_an_end() -> None:
    assert {status for status in JobStatus if not status.ended} == OPEN == {"pending", "running", "waiting"}

"""Retries: the wait before the next attempt at a failed step, and the notices about it.

See docs/decisions.md: retry.
"""

import sys
from collections.abc import Mapping
from datetime import datetime, timedelta

from maestro.domain.errors import FailureSource, MaestroError, WaitReason
from maestro.domain.jobs.job import Wait
from maestro.domain.values import Value

WAITING_NOTICE = "Every model is busy at the moment. I will answer this as soon as one is free."
"""The notice to a user, sent once, when the answer has to wait for an account (docs/decisions.md: retry)."""

PROVIDER_NOTICE = "The model does not answer at the moment. I will answer this as soon as it works again."
BUDGET_NOTICE = "Today's budget for answers is used up. I will answer this when the next budget begins."

_NOTICES: Mapping[WaitReason, tuple[str, str]] = {
    WaitReason.ACCOUNT: (WAITING_NOTICE, "That should be in about {}."),
    WaitReason.PROVIDER: (PROVIDER_NOTICE, "I try again in about {}."),
    WaitReason.BUDGET: (BUDGET_NOTICE, "That is in about {}, or sooner if the operators raise the budget."),
}

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class RetryRules(Value):
    """The number of attempts and the base delays, in seconds, for retries of a failed step."""

    provider_attempts: int
    provider_base: float
    platform_attempts: int
    platform_base: float
    own_attempts: int
    crashes: int


LONGEST_PLATFORM_WAIT = timedelta(minutes=1)

MOST_DOUBLINGS = 20
"""The most doublings of a wait: the store may be unavailable for days, and more doublings would overflow."""

LONGEST_PROVIDER_WAIT = timedelta(minutes=10)
"""The longest wait that a provider may ask for: a waiting job keeps its position, and would hold up its lane."""


def wait_before_retry(error: BaseException, failures: int, rules: RetryRules) -> timedelta | None:
    """Return the wait before the next attempt after ``failures`` failed attempts, None to give up.

    A failed provider call gets ``provider_attempts``, with waits that start at ``provider_base`` seconds and double, or
    the wait that the provider asked for (docs/decisions.md: retry). If that is more than ``LONGEST_PROVIDER_WAIT``, the
    job fails with that reason and can be resumed later. A failed platform call gets ``platform_attempts`` with shorter
    waits. An internal error gets ``own_attempts``, from one second on. An unavailable store is retried without limit,
    since the job is not at fault. An error that is not retryable gets no further attempt.
    """
    known = error if isinstance(error, MaestroError) else None
    if known is not None and not known.retryable:
        return None
    source = known.source if known else FailureSource.MAESTRO
    requested_wait = known.retry_after if known else None
    attempts, base = {
        FailureSource.PROVIDER: (rules.provider_attempts, timedelta(seconds=rules.provider_base)),
        FailureSource.PLATFORM: (rules.platform_attempts, timedelta(seconds=rules.platform_base)),
        FailureSource.STORE: (sys.maxsize, timedelta(seconds=1)),
        FailureSource.MAESTRO: (rules.own_attempts, timedelta(seconds=1)),
    }[source]
    too_long = (
        source is FailureSource.PROVIDER and requested_wait is not None and requested_wait > LONGEST_PROVIDER_WAIT
    )
    if failures >= attempts or too_long:
        return None
    wait: timedelta = base * 2 ** min(failures - 1, MOST_DOUBLINGS)
    short = source in (FailureSource.PLATFORM, FailureSource.STORE)
    return requested_wait or (min(wait, LONGEST_PLATFORM_WAIT) if short else wait)


def waiting_notice(wait: Wait, now: datetime) -> str:
    """Return the notice of why the answer waits, with the approximate time if it is a minute or more."""
    why, when = _NOTICES[wait.reason]
    remaining = wait.wake_at - now if wait.wake_at is not None else timedelta()
    if remaining < _MINUTE:
        return why
    large_units = ((unit, word) for unit, word in ((_DAY, "day"), (_HOUR, "hour")) if remaining >= 2 * unit)
    unit, word = next(large_units, (_MINUTE, "minute"))
    count = round(remaining / unit)
    return f"{why} {when.format(f'{count} {word}' if count == 1 else f'{count} {word}s')}"

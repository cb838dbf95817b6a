"""Retries: how long a failed step waits for its next attempt, and what its user is told meanwhile.

See docs/decisions.md: retry.
"""

import sys
from collections.abc import Mapping
from datetime import datetime, timedelta

from maestro.domain.errors import MaestroError, Patience, WaitReason
from maestro.domain.jobs.job import WAITING_NOTICE, Wait
from maestro.domain.values import Value

PROVIDER_NOTICE = "The model does not answer at the moment. I will answer this as soon as it works again."
BUDGET_NOTICE = "Today's budget for answers is used up. I will answer this when the next one begins."

_NOTICES: Mapping[WaitReason, tuple[str, str]] = {
    WaitReason.ACCOUNT: (WAITING_NOTICE, "That should be in about {}."),
    WaitReason.PROVIDER: (PROVIDER_NOTICE, "I try again in about {}."),
    WaitReason.BUDGET: (BUDGET_NOTICE, "That is in about {}, or sooner if the operators raise it."),
}

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class RetryRules(Value):
    """How often and after how long a failed step is tried again; delays are seconds."""

    provider_attempts: int
    provider_base: float
    platform_attempts: int
    platform_base: float
    own_attempts: int
    crashes: int


LONGEST_PLATFORM_WAIT = timedelta(minutes=1)

MOST_DOUBLINGS = 20
"""A store may be away for days, and a wait doubled that often would be no number any more."""

LONGEST_PROVIDER_WAIT = timedelta(minutes=10)
"""A job keeps its place while it waits, so a provider that asks for hours or days would silence a whole lane."""


def next_attempt_in(error: BaseException, failures: int, rules: RetryRules) -> timedelta | None:
    """Return the wait before the next attempt after the given number of failures, or None to give up.

    A provider gets ``provider_attempts`` with waits of ``base``, doubled each time, or what it asked for
    (docs/decisions.md: retry); one that asks for more than ``LONGEST_PROVIDER_WAIT`` gets none: the job fails with that
    reason, and can be resumed when the account is back. A platform is tried more often and sooner. A fault of our own
    gets a few quick repeats. A store that cannot be written is waited for as long as that takes, since it is no fault
    of the job. An error that says it is not retryable gets none.
    """
    known = error if isinstance(error, MaestroError) else None
    if known is not None and not known.retryable:
        return None
    patience = known.patience if known else Patience.OURSELVES
    asked = known.retry_after if known else None
    attempts, base = {
        Patience.PROVIDER: (rules.provider_attempts, timedelta(seconds=rules.provider_base)),
        Patience.PLATFORM: (rules.platform_attempts, timedelta(seconds=rules.platform_base)),
        Patience.STORE: (sys.maxsize, timedelta(seconds=1)),
        Patience.OURSELVES: (rules.own_attempts, timedelta(seconds=1)),
    }[patience]
    too_long = patience is Patience.PROVIDER and asked is not None and asked > LONGEST_PROVIDER_WAIT
    if failures >= attempts or too_long:
        return None
    wait: timedelta = base * 2 ** min(failures - 1, MOST_DOUBLINGS)
    short = patience in (Patience.PLATFORM, Patience.STORE)
    return asked or (min(wait, LONGEST_PLATFORM_WAIT) if short else wait)


def waiting_notice(wait: Wait, now: datetime) -> str:
    """Return why the answer waits, and roughly for how long where that is a minute or more."""
    why, when = _NOTICES[wait.reason]
    left = wait.wake_at - now if wait.wake_at is not None else timedelta()
    return f"{why} {when.format(_about(left))}" if left >= _MINUTE else why


def _about(left: timedelta) -> str:
    unit, word = (_DAY, "day") if left >= 2 * _DAY else (_HOUR, "hour") if left >= 2 * _HOUR else (_MINUTE, "minute")
    count = round(left / unit)
    return f"{count} {word}{'' if count == 1 else 's'}"

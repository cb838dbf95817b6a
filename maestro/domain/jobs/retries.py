"""How often and after how long a step that failed is tried again."""

import sys
from datetime import timedelta

from maestro.domain.errors import MaestroError, Patience
from maestro.domain.values import Value


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

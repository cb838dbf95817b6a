"""What a person is told, once, while the answer has to wait for a model (docs/decisions.md: retry)."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import WAITING_NOTICE, Wait

PROVIDER_NOTICE = "The model does not answer at the moment. I will answer this as soon as it works again."
BUDGET_NOTICE = "Today's budget for answers is used up. I will answer this when the next one begins."

_NOTICES: Mapping[WaitReason, tuple[str, str]] = {
    WaitReason.ACCOUNT: (WAITING_NOTICE, "That should be in about {}."),
    WaitReason.PROVIDER: (PROVIDER_NOTICE, "I try again in about {}."),
    WaitReason.BUDGET: (BUDGET_NOTICE, "That is in about {}, or sooner if the operators raise it."),
}

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def waiting_notice(wait: Wait, now: datetime) -> str:
    """Return why the answer waits, and roughly for how long where that is a minute or more."""
    why, when = _NOTICES[wait.reason]
    left = wait.wake_at - now if wait.wake_at is not None else timedelta()
    return f"{why} {when.format(_about(left))}" if left >= _MINUTE else why


def _about(left: timedelta) -> str:
    unit, word = (_DAY, "day") if left >= 2 * _DAY else (_HOUR, "hour") if left >= 2 * _HOUR else (_MINUTE, "minute")
    count = round(left / unit)
    return f"{count} {word}{'' if count == 1 else 's'}"

"""What goes wrong with a call of the homeserver, told apart by what it means for whoever called."""

from collections.abc import Mapping
from datetime import timedelta

from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    NotDispatched,
    PermanentSend,
    RetryableSend,
    SendFailure,
)
from maestro.domain.errors import MaestroError

LIMITED = "M_LIMIT_EXCEEDED"
DUPLICATE = "M_DUPLICATE_ANNOTATION"
ACCOUNT = frozenset(
    {
        *("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED", "M_USER_SUSPENDED"),
        *("M_CONSENT_NOT_GIVEN", "ORG_MATRIX_EXPIRED_ACCOUNT"),
    }
)
"""Errors of which only an operator can get rid of."""
ROOM = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN"})
"""Errors that every message to the room would meet."""
AFTER_ALL = timedelta(seconds=10)
"""How long we wait when the homeserver asks us to but does not say for how long."""


class MatrixTrouble(MaestroError):
    """The base of what a call can end with."""

    public = "The homeserver did not do what it was asked."


class Unreachable(MatrixTrouble):
    """The homeserver was surely not asked."""


class Unsure(MatrixTrouble):
    """The homeserver may or may not have done it."""


class Busy(MatrixTrouble):
    """The homeserver did nothing and asked to come back after ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"the homeserver asked to wait {after.total_seconds():g} s")
        self.after = after


class Refused(MatrixTrouble):
    """The homeserver said no, for the reason ``code``; ``soft``: who logs in again goes on as the same device."""

    def __init__(self, code: str, *, soft: bool = False) -> None:
        super().__init__(f"the homeserver says {code}")
        self.code = code
        self.soft = soft


def verdict(status: int, answer: Mapping[str, object], retry_after: str) -> MatrixTrouble:
    """Return what an answer that is no success means; ``retry_after`` is the header, empty where there is none.

    An error without a code of Matrix is one of something that stands before the homeserver.
    """
    code = str(answer.get("errcode") or "")
    if status == 429 or code == LIMITED:
        return Busy(_pause(answer.get("retry_after_ms"), retry_after))
    if status >= 500 or not code:
        return Unsure(f"the homeserver answered {status}" + (f" and says {code}" if code else ""))
    return Refused(code, soft=answer.get("soft_logout") is True)


def refused_account(trouble: MatrixTrouble) -> AccountRefused | None:
    """Return what an operator is to be told when nobody else can help, None when this is no such trouble."""
    if not isinstance(trouble, Refused) or trouble.code not in ACCOUNT:
        return None
    how = "log the same device in again" if trouble.soft else "log in"
    return AccountRefused(f"{trouble}: {how}, and set the new accessToken")


def send_failure(trouble: MatrixTrouble, *, spare_room: bool = False) -> SendFailure:
    """Return what the trouble means for a message; ``spare_room``: it was not the room that was asked."""
    if isinstance(trouble, Unreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, Busy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, Refused):
        if trouble.code in ACCOUNT:
            return PermanentSend(str(refused_account(trouble)), FailureScope.ACCOUNT)
        in_room = trouble.code in ROOM and not spare_room
        return PermanentSend(str(trouble), FailureScope.CHANNEL if in_room else FailureScope.MESSAGE)
    return AmbiguousSend(str(trouble))


def _pause(milliseconds: object, seconds: str) -> timedelta:
    """The header is the newer way to say it."""
    if seconds.isdecimal():
        return timedelta(seconds=min(int(seconds), 86_400))
    if isinstance(milliseconds, int | float) and milliseconds >= 0:
        return timedelta(milliseconds=min(milliseconds, 86_400_000))
    return AFTER_ALL

"""The errors of calls to the homeserver, and the send failures that they stand for."""

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
"""Error codes that only an operator can fix."""
ROOM = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN"})
"""Error codes with which every message to the room would fail."""
DEFAULT_RETRY_AFTER = timedelta(seconds=10)
"""The wait after a rate limit for which the homeserver names no time."""


class MatrixTrouble(MaestroError):
    """The base class of failed calls to the homeserver."""

    public = "The homeserver did not carry out the request."


class Unreachable(MatrixTrouble):
    """A call that certainly did not reach the homeserver."""


class Unsure(MatrixTrouble):
    """A call of unknown outcome: the homeserver may or may not have carried it out."""


class Busy(MatrixTrouble):
    """A rate limit: the homeserver did nothing and asks to wait for ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"the homeserver asked to wait {after.total_seconds():g} s")
        self.after = after


class Refused(MatrixTrouble):
    """A refusal with the error ``code``; with ``soft``, the operator may log in again as the same device."""

    def __init__(self, code: str, *, soft: bool = False) -> None:
        super().__init__(f"the homeserver says {code}")
        self.code = code
        self.soft = soft


def classify_answer(status: int, answer: Mapping[str, object], retry_after: str) -> MatrixTrouble:
    """Translate an unsuccessful answer; ``retry_after`` is the text of the header Retry-After or "".

    An answer without a Matrix error code comes from a proxy in front of the homeserver.
    """
    code = str(answer.get("errcode") or "")
    if status == 429 or code == LIMITED:
        return Busy(_pause(answer.get("retry_after_ms"), retry_after))
    if status >= 500 or not code:
        return Unsure(f"the homeserver answered {status}" + (f" and says {code}" if code else ""))
    return Refused(code, soft=answer.get("soft_logout") is True)


def account_refusal(trouble: MatrixTrouble) -> AccountRefused | None:
    """Return the error that tells an operator what to fix, None if the trouble does not concern the account."""
    if not isinstance(trouble, Refused) or trouble.code not in ACCOUNT:
        return None
    fix = "log the same device in again" if trouble.soft else "log in"
    return AccountRefused(f"{trouble}: {fix}, and set the new accessToken")


def send_failure(trouble: MatrixTrouble, *, spare_room: bool = False) -> SendFailure:
    """Translate a failed call into a send failure; ``spare_room`` is set for calls that do not concern the room."""
    if isinstance(trouble, Unreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, Busy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, Refused):
        if trouble.code in ACCOUNT:
            return PermanentSend(str(account_refusal(trouble)), FailureScope.ACCOUNT)
        in_room = trouble.code in ROOM and not spare_room
        return PermanentSend(str(trouble), FailureScope.CHANNEL if in_room else FailureScope.MESSAGE)
    return AmbiguousSend(str(trouble))


def _pause(milliseconds: object, seconds: str) -> timedelta:
    """Return the requested wait; the header in ``seconds`` is newer than the field in ``milliseconds``."""
    if seconds.isdecimal():
        return timedelta(seconds=min(int(seconds), 86_400))
    if isinstance(milliseconds, int | float) and milliseconds >= 0:
        return timedelta(milliseconds=min(milliseconds, 86_400_000))
    return DEFAULT_RETRY_AFTER

"""The class hierarchy of failed platform calls; the class of a failure tells whether the call may be repeated.

The client of each platform translates each failed answer into a ``SendFailure``, for sends and for other calls.
"""

from datetime import timedelta
from enum import StrEnum

from maestro.domain.errors import FailureSource, MaestroError


class AccountRefused(MaestroError):
    """The platform rejects this account, for example a wrong token or a missing intent or scope.

    A connector raises it from ``run``; Maestro starts the connector again only after an operator changed its settings.
    The message names the problem and the fix, and never contains the token.
    """

    public = "The platform refuses this account."


class FailureScope(StrEnum):
    """The object that a permanent failure affects."""

    MESSAGE = "message"
    CHANNEL = "channel"
    ACCOUNT = "account"


class SendFailure(MaestroError):
    """A failed platform call; each subclass tells whether the call may have taken effect."""

    public = "The platform did not accept the message."
    source = FailureSource.PLATFORM
    surely_unsent = False


class NotDispatched(SendFailure):
    """A call that certainly did not reach the platform; a retry is safe."""

    public = "The platform could not be reached."
    retryable = True
    surely_unsent = True


class FileUnavailable(NotDispatched):
    """The file of a message cannot be read at present; the send is repeated like the use of a busy store."""

    public = "The file of the message cannot be read."
    source = FailureSource.STORE


class RetryableSend(SendFailure):
    """A rate limit: the platform did nothing and asked to wait for ``retry_after``."""

    public = "The platform asked to try again later."
    retryable = True
    surely_unsent = True

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.retry_after: timedelta = after


class AmbiguousSend(SendFailure):
    """A call of unknown outcome: the platform may or may not have carried it out."""

    public = "It is unknown whether the platform has the message."
    retryable = True


class Unsettled(SendFailure):
    """A send with an outcome that can never be known; ``Capabilities.on_ambiguous`` decides whether it is repeated."""

    public = "It can never be known whether the platform has the message."


class PermanentSend(SendFailure):
    """A permanent refusal by the platform; ``scope`` is the affected object, ``code`` the platform's error code."""

    public = "The platform refused the message permanently."
    surely_unsent = True

    def __init__(self, message: str, scope: FailureScope, code: str = "") -> None:
        super().__init__(message)
        self.scope = scope
        self.code = code


class FetchFailure(MaestroError):
    """The base class of failed downloads of a file."""

    public = "The file could not be downloaded."
    source = FailureSource.PLATFORM


class RetryableFetch(FetchFailure):
    """A failed download that may succeed later; ``after`` is the wait that the platform asked for, if any."""

    public = "The file cannot be downloaded now."
    retryable = True

    def __init__(self, message: str, after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = after


class PermanentFetch(FetchFailure):
    """A download that would fail again: the file was deleted, is too large or is not allowed."""

    public = "The file is not available."


def fetch_failure(failure: SendFailure) -> FetchFailure:
    """Translate a failed platform call into a download failure."""
    if isinstance(failure, PermanentSend):
        return PermanentFetch(str(failure))
    return RetryableFetch(str(failure), failure.retry_after)

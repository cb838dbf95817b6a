"""The one hierarchy of failed calls of platforms, typed, so that a step knows what may be repeated.

The client of each platform maps what the platform answers into a ``SendFailure`` once, for sends and for other calls.
"""

from datetime import timedelta
from enum import StrEnum

from maestro.domain.errors import MaestroError, Patience


class AccountRefused(MaestroError):
    """The platform does not let this account in: a wrong token, a missing intent or scope.

    A connector raises it from ``run`` and is not started again before an operator changed something; the message says
    what is wrong and how to mend it, and never holds the token.
    """

    public = "The platform refuses this account."


class FailureScope(StrEnum):
    """What a permanent failure is about."""

    MESSAGE = "message"
    CHANNEL = "channel"
    ACCOUNT = "account"


class SendFailure(MaestroError):
    """A failed call of a platform; each subclass says whether the platform may have done what it was asked."""

    public = "The platform did not take the message."
    patience = Patience.PLATFORM
    surely_unsent = False


class NotDispatched(SendFailure):
    """A call that surely did not reach the platform; trying again is free."""

    public = "The platform could not be reached."
    retryable = True
    surely_unsent = True


class RetryableSend(SendFailure):
    """A rate limit: the platform did nothing and asked for a pause of ``retry_after``."""

    public = "The platform asked to try again."
    retryable = True
    surely_unsent = True

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.retry_after: timedelta = after


class AmbiguousSend(SendFailure):
    """A call of unknown outcome: the platform may or may not have done it."""

    public = "It is unknown whether the platform has the message."
    retryable = True


class Unsettled(SendFailure):
    """A send of forever unknown outcome: ``Capabilities.on_ambiguous`` rules."""

    public = "Nobody can say whether the platform has the message."


class PermanentSend(SendFailure):
    """A refusal: trying again is pointless; ``scope`` says what is broken, ``code`` is the platform's own word."""

    public = "The platform refused the message for good."
    surely_unsent = True

    def __init__(self, message: str, scope: FailureScope, code: str = "") -> None:
        super().__init__(message)
        self.scope = scope
        self.code = code


class FetchFailure(MaestroError):
    """The base of what can go wrong with fetching a file."""

    public = "The file could not be fetched."
    patience = Patience.PLATFORM


class RetryableFetch(FetchFailure):
    """A file that cannot be had now; ``after`` is the pause that the platform asked for, if it did."""

    public = "The file cannot be fetched now."
    retryable = True

    def __init__(self, message: str, after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = after


class PermanentFetch(FetchFailure):
    """A file that is gone, too large or not allowed: trying again is pointless."""

    public = "The file is not available."


def fetch_failure(failure: SendFailure) -> FetchFailure:
    """Return what a failed call means for the file that it was about."""
    if isinstance(failure, PermanentSend):
        return PermanentFetch(str(failure))
    return RetryableFetch(str(failure), failure.retry_after)

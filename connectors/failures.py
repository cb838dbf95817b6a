"""Failures of platforms, typed, so that a step knows what may be repeated."""

from datetime import timedelta
from enum import StrEnum

from maestro.domain.errors import MaestroError, Patience


class AccountRefused(MaestroError):
    """The platform does not let this account in: a wrong token, a missing intent or scope.

    A connector raises it from ``run`` and is not started again before somebody changed something; the message says
    what is wrong and how to mend it, and never holds the token.
    """

    public = "The platform refuses this account."


class FailureScope(StrEnum):
    """What a permanent failure is about."""

    MESSAGE = "message"
    CHANNEL = "channel"
    ACCOUNT = "account"


class SendFailure(MaestroError):
    """The base of what can go wrong with a send; each subclass says whether the platform may have the message."""

    public = "The platform did not take the message."
    patience = Patience.PLATFORM
    surely_unsent = False


class NotDispatched(SendFailure):
    """Surely not sent; trying again is free."""

    public = "The platform could not be reached."
    retryable = True
    surely_unsent = True


class RetryableSend(SendFailure):
    """The platform asked to come back after ``retry_after``."""

    public = "The platform asked to try again."
    retryable = True
    surely_unsent = True

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = after


class AmbiguousSend(SendFailure):
    """The platform may or may not have it."""

    public = "It is unknown whether the platform has the message."
    retryable = True


class Unsettled(SendFailure):
    """The platform may or may not have it, and nobody will ever say: ``Capabilities.on_ambiguous`` rules."""

    public = "Nobody can say whether the platform has the message."


class PermanentSend(SendFailure):
    """Trying again is pointless; ``scope`` says what is broken."""

    public = "The platform refused the message for good."
    surely_unsent = True

    def __init__(self, message: str, scope: FailureScope) -> None:
        super().__init__(message)
        self.scope = scope


class FetchFailure(MaestroError):
    """The base of what can go wrong with fetching a file."""

    public = "The file could not be fetched."
    patience = Patience.PLATFORM


class RetryableFetch(FetchFailure):
    """The platform did not give the file now; ``after`` is how long it asked us to wait, if it did."""

    public = "The file cannot be fetched now."
    retryable = True

    def __init__(self, message: str, after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = after


class PermanentFetch(FetchFailure):
    """The file is gone, too large or not for us: trying again is pointless."""

    public = "The file is not available."

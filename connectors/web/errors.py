"""The errors of the web connector for requests that are forbidden, or impossible at present."""

from enum import IntEnum

import structlog

from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError, Unauthorized
from maestro.domain.throttle import TooManyAttempts

log = structlog.get_logger(__name__)


class Close(IntEnum):
    """Close codes of a WebSocket."""

    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    LATER = 1013
    INTERNAL = 1011


class ChannelTaken(Forbidden):
    """The channel was opened by another user (docs/decisions.md: web identity)."""

    public = "The channel belongs to somebody else."


class TooLarge(InvalidMessage):
    """The body or file exceeds the limit; the message names the limit."""

    public = "Too large."


class UnsupportedMedia(InvalidMessage):
    """The content type, or the file's real type, is not accepted."""

    public = "This kind of content is not supported."


class ShuttingDown(Backlogged):
    """The connector drains before a stop; nothing was stored, and the same ``clientId`` may be sent again."""

    public = "Maestro is restarting."


class InternalError(MaestroError):
    """An unexpected failure; the log has the details, the client only learns that it did not cause it."""

    public = "Something went wrong inside Maestro. Its log says what; try again in a moment."


class TooSlow(Exception):
    """A socket does not read its frames; it is closed and may resume."""


def explain(error: MaestroError) -> str:
    """Return the text for the client; details of other errors stay in the logs."""
    if isinstance(error, ShuttingDown):
        return "Maestro is restarting; try again in a moment. Nothing was stored."
    if error.retryable:
        return "Maestro is busy; try again in a moment. Nothing was stored."
    if isinstance(error, (InvalidMessage, Forbidden, Unauthorized, TooManyAttempts)):
        return str(error) or error.public
    return error.public


def presentable(error: Exception) -> MaestroError:
    """Return the error for the client: a ``MaestroError`` itself, any other logged and as an ``InternalError``."""
    if isinstance(error, MaestroError):
        return error
    log.error("the web connector failed", error=type(error).__name__, exc_info=error)
    return InternalError()


def close_code(error: MaestroError) -> Close:
    """Return the close code for a rejected client, or for missed deliveries that could not be read."""
    if error.retryable or isinstance(error, TooManyAttempts):
        return Close.LATER
    if isinstance(error, Forbidden):
        return Close.FORBIDDEN
    if isinstance(error, (InvalidMessage, Unauthorized)):
        return Close.UNAUTHORIZED
    return Close.INTERNAL

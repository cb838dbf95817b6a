"""The errors of the web connector for requests that are forbidden, invalid or impossible at present."""

from enum import IntEnum

import structlog

from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError, Unauthorized
from maestro.domain.throttle import TooManyAttempts

log = structlog.get_logger(__name__)


class CloseCode(IntEnum):
    """Close codes of a WebSocket."""

    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    LATER = 1013
    INTERNAL = 1011


class ChannelTaken(Forbidden):
    """The channel belongs to another user (docs/decisions.md: web identity)."""

    public = "The channel belongs to another user."


class TooLarge(InvalidMessage):
    """The body or file exceeds the limit; the message names the limit."""

    public = "Too large."


class UnsupportedMedia(InvalidMessage):
    """The content type, or the file's real type, is not accepted."""

    public = "This kind of content is not supported."


class ShuttingDown(Backlogged):
    """The connector drains before a stop: nothing was stored, and the client may repeat the same ``clientId``."""

    public = "Maestro is restarting."


class InternalError(MaestroError):
    """An unexpected failure: the log has the details, and the client learns only that the request was not at fault."""

    public = "An internal error occurred. Maestro's log has the details; try again in a moment."


class TooSlow(Exception):
    """The client does not read its frames; its socket is closed, and the client may resume."""


def explain(error: MaestroError) -> str:
    """Return the text of an error for the client; internal details stay in the log."""
    if isinstance(error, ShuttingDown):
        return "Maestro is restarting; try again in a moment. Nothing was stored."
    if error.retryable:
        return "Maestro is busy; try again in a moment. Nothing was stored."
    if isinstance(error, (InvalidMessage, Forbidden, Unauthorized, TooManyAttempts)):
        return str(error) or error.public
    return error.public


def to_client_error(error: Exception) -> MaestroError:
    """Return a ``MaestroError`` unchanged; log any other error and return an ``InternalError`` for the client."""
    if isinstance(error, MaestroError):
        return error
    log.error("the web connector failed", error=type(error).__name__, exc_info=error)
    return InternalError()


def close_code(error: MaestroError) -> CloseCode:
    """Return the WebSocket close code for an error."""
    if error.retryable or isinstance(error, TooManyAttempts):
        return CloseCode.LATER
    if isinstance(error, Forbidden):
        return CloseCode.FORBIDDEN
    if isinstance(error, (InvalidMessage, Unauthorized)):
        return CloseCode.UNAUTHORIZED
    return CloseCode.INTERNAL

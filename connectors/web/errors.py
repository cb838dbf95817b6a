"""What the web connector tells a client that may not, or cannot now, do what it asked."""

from enum import IntEnum

from maestro.domain.errors import Backlogged, Forbidden, InvalidMessage, MaestroError


class Close(IntEnum):
    """Close codes of a socket that mean something to our clients."""

    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    SLOW = 1013
    INTERNAL = 1011


class Unauthorized(MaestroError):
    """The credentials are missing, wrong or expired; the message says what to do."""

    public = "Not authenticated."


class ChannelTaken(Forbidden):
    """The channel was opened by another user (decision 19)."""

    public = "The channel belongs to somebody else."


class TooLarge(InvalidMessage):
    """The body or file is over the cap; the message names the cap."""

    public = "Too large."


class UnsupportedMedia(InvalidMessage):
    """The content type or the file's real type is not one we take."""

    public = "This kind of content is not supported."


class ShuttingDown(Backlogged):
    """The connector drains before a stop; nothing was stored, and the same ``clientId`` may be sent again."""

    public = "Maestro is restarting."


class TooSlow(Exception):
    """A socket does not read what it is sent; it is closed and may resume."""


def explain(error: MaestroError) -> str:
    """Return the text for the person at the other end; internals of other errors stay in the logs."""
    if isinstance(error, ShuttingDown):
        return "Maestro is restarting; try again in a moment. Nothing was stored."
    if isinstance(error, Backlogged):
        return "Maestro is busy; try again in a moment. Nothing was stored."
    if isinstance(error, (InvalidMessage, Forbidden, Unauthorized)):
        return str(error) or error.public
    return error.public


def close_code(error: MaestroError) -> Close:
    """Return how a socket ends that was not let in."""
    if isinstance(error, Forbidden):
        return Close.FORBIDDEN
    if isinstance(error, (InvalidMessage, Unauthorized)):
        return Close.UNAUTHORIZED
    return Close.INTERNAL

"""The classification of Discord's errors: retryable, or permanent for a message, a channel or the account."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus

import aiohttp
import discord

from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    NotDispatched,
    PermanentSend,
    RetryableSend,
    SendFailure,
)

TROUBLE = (discord.DiscordException, aiohttp.ClientError, OSError, RuntimeError)
"""All errors of a call to Discord: the library passes errors of aiohttp on, and a closed session raises a
``RuntimeError``."""

DEFAULT_RETRY_AFTER = timedelta(minutes=1)
"""The wait after a rate limit for which Discord names no time."""

DISALLOWED_INTENTS = 4014
AUTHENTICATION_FAILED = 4004
UNKNOWN_MESSAGE, OF_ANOTHER_AUTHOR, UNKNOWN_EMOJI = 10008, 50005, 10014
MESSAGE_ERRORS = {UNKNOWN_MESSAGE, OF_ANOTHER_AUTHOR, UNKNOWN_EMOJI}
"""Discord's error codes in a 403 or 404 answer that concern only one message, not the channel."""
FATAL_CLOSES = {4010, 4011, 4012, 4013}
"""Close codes of the gateway after which a further login would be refused again."""

REFUSED = (
    "Discord refuses the bot's token. Copy a new token from the developer portal (Bot, Reset Token) into "
    "connectors.discord.token or the bot's entry."
)
INTENTS_REFUSED = (
    "Discord refuses the intents. Switch on Message Content Intent in the developer portal (Bot, Privileged Gateway "
    "Intents), or set messageContent to false: then only direct messages and mentions of the bot can be read."
)


def refusal_error(error: Exception) -> AccountRefused | None:
    """Return the ``AccountRefused`` for an error that only an operator can fix; None if a reconnection may succeed.

    A further login after such an error would only count towards the number of logins at which Discord resets the token.
    """
    code = error.code if isinstance(error, discord.ConnectionClosed) else 0
    if isinstance(error, discord.LoginFailure) or code == AUTHENTICATION_FAILED:
        return AccountRefused(REFUSED)
    if isinstance(error, discord.PrivilegedIntentsRequired) or code == DISALLOWED_INTENTS:
        return AccountRefused(INTENTS_REFUSED)
    if isinstance(error, discord.Forbidden):
        return AccountRefused("Discord does not let the bot log in; see its state in the developer portal.")
    if code in FATAL_CLOSES:
        return AccountRefused(f"Discord's gateway refuses the bot for good (close code {code}).")
    return None


@contextmanager
def discord_errors() -> Iterator[None]:
    """Translate the library's errors within the block into a ``SendFailure``."""
    try:
        yield
    except TROUBLE as error:
        raise send_failure(error) from None


def send_failure(error: Exception) -> SendFailure:
    """Translate an error of the library into a send failure, without the error's text, which may quote the message."""
    if isinstance(error, discord.RateLimited):
        return RetryableSend("Discord asks to wait", timedelta(seconds=error.retry_after))
    if isinstance(error, discord.HTTPException):
        return _answer_failure(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotDispatched("Discord cannot be reached")
    return AmbiguousSend(f"the connection to Discord broke ({type(error).__name__})")


def _answer_failure(error: discord.HTTPException) -> SendFailure:
    """Translate an HTTP error into a send failure; a 403 is permanent, because Discord bans clients after many."""
    text = f"Discord answered {error.status}, code {error.code}"
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        try:
            return RetryableSend(text, timedelta(seconds=float(error.response.headers.get("Retry-After", ""))))
        except ValueError:
            return RetryableSend(text, DEFAULT_RETRY_AFTER)
    if error.status == HTTPStatus.UNAUTHORIZED:
        return PermanentSend(text, FailureScope.ACCOUNT)
    if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND) and error.code not in MESSAGE_ERRORS:
        return PermanentSend(text, FailureScope.CHANNEL)
    if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return PermanentSend(text, FailureScope.MESSAGE)
    return AmbiguousSend(text)

"""The client of Telegram's Bot API: each call is made once, and its failure is classified."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import httpx
from telegram import Bot
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError
from telegram.request import HTTPXRequest

from connectors.failures import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from maestro.domain.errors import ConfigurationError
from maestro.domain.network import LOCAL_NAMES

REFUSED = (
    "Telegram refuses the bot's token. Ask @BotFather for it anew (/mybots, API Token) and set "
    "connectors.telegram.token or the bot's entry."
)
CHANNEL = (
    *("chat not found", "user not found", "peer_id_invalid", "chat_write_forbidden", "chat_restricted"),
    *("have no rights to send", "not enough rights", "need administrator rights"),
    *("group chat was deactivated", "group chat was upgraded", "chat_admin_required"),
)
"""What Telegram says of a chat that no message can reach; that a topic is closed is none of it."""
UNREADABLE = "can't parse"
"""What Telegram says of markup that it cannot read; the message is surely not sent."""
NOTHING_IN_IT = ("text is empty", "text must be non-empty")
"""What Telegram says of markup that has nothing in it, such as code without a line."""
UNCHANGED = "message is not modified"
NO_PICTURE = ("photo_invalid", "image_process_failed", "photo_save_file_invalid", "wrong type of the web page")
TOO_BIG = "file is too big"
NO_REACTION = "reaction"
CONFLICT = "another process asks for this bot's messages with the same token; end it, or use another bot"
MOST_SAID = 120
"""Characters of Telegram's own words that are told."""

ROOT = "https://api.telegram.org"
CALL_SECONDS = 20.0
"""How long one call may take; a file may take longer."""
FILE_SECONDS = 120.0
CONNECT_SECONDS = 10.0
CALLS_AT_ONCE = 32
BUSY_SECONDS = 5.0
"""How long Telegram is left alone that asks for it without a number."""
MOST_BUSY_SECONDS = 86_400.0

NOT_DISPATCHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""What is raised before a request is on its way."""

TOO_LARGE = "request entity too large"

RawUpdate = Mapping[str, Any]
"""What happened, as Telegram tells it."""


class TelegramMoved(PermanentSend):
    """A call about a group that goes on under the id ``to``; Telegram did nothing."""

    def __init__(self, to: str) -> None:
        super().__init__("the group goes on under another id", FailureScope.CHANNEL)
        self.to = to


class TelegramConflict(NotDispatched):
    """A call that Telegram refused because another process, or a webhook, receives the updates of this bot."""


def says(failure: SendFailure, *words: str) -> bool:
    """Tell whether Telegram refused a call with any of these words."""
    return isinstance(failure, PermanentSend) and any(one in failure.code for one in words)


class TelegramHttp(HTTPXRequest):
    """The HTTP client; a rate limit raises ``RetryableSend``, because the library's own error logs a warning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._under_way = 0
        self._idle = asyncio.Event()

    async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:
        """Return the status and the body of the answer; raises ``Busy`` and what the library raises."""
        self._under_way += 1
        try:
            status, body = await super().do_request(*args, **options)
        finally:
            self._under_way -= 1
            self._idle.set()
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise _rate_limit(body)
        return status, body

    async def finish(self) -> None:
        """Wait until no request is under way, but not for one that hangs: what is cut off may be there twice later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_SECONDS):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()


class TelegramClient(Bot):
    """The client of the Bot API; it never repeats a call.

    The library's ``Updater`` confirms messages before they are stored, and its ``initialize`` puts the token into an
    error: neither is used.
    """

    def __init__(self, token: str, base_url: str = "") -> None:
        self._root = (base_url or ROOT).rstrip("/")
        self._lines = (_request(self._root, 1), _request(self._root, CALLS_AT_ONCE))
        polling, calling = self._lines
        super().__init__(
            token, f"{self._root}/bot", f"{self._root}/file/bot", request=calling, get_updates_request=polling
        )

    def __repr__(self) -> str:
        """Say nothing of the token, unlike the library."""
        return "TelegramClient"

    async def updates(self, offset: int | None, wait: int, kinds: Sequence[str]) -> Sequence[RawUpdate]:
        """Return what happened from ``offset`` on, as it came: one that cannot be read must not cost the others.

        With an offset everything before it is confirmed and gone. ``wait`` is for how many seconds something may
        happen until an empty answer comes. Raises a ``SendFailure``.
        """
        asked = {"offset": offset, "timeout": wait, "allowed_updates": list(kinds)}
        with telegram_errors():
            found = await self._post("getUpdates", asked, read_timeout=wait + CALL_SECONDS)
            return [one for one in found if isinstance(one, Mapping)]

    async def close_when_idle(self) -> None:
        """Stop polling, and close the connections once what is being sent has its answer."""
        polling, calling = self._lines
        await polling.shutdown()
        await calling.finish()
        await calling.shutdown()

    async def open(self) -> None:
        """Let calls be made again after ``close_when_idle``."""
        for one in self._lines:
            await one.initialize()


@contextmanager
def telegram_errors() -> Iterator[None]:
    """Turn what the library raises into a ``SendFailure`` without the addresses and texts that it quotes."""
    try:
        yield
    except TelegramError as error:
        raise _failure(error) from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise AmbiguousSend(f"Telegram's answer could not be read ({type(error).__name__})") from None


def _failure(error: TelegramError) -> SendFailure:
    if isinstance(error, ChatMigrated) and isinstance(error.new_chat_id, int):
        return TelegramMoved(str(error.new_chat_id))
    if isinstance(error, InvalidToken):
        return PermanentSend(REFUSED, FailureScope.ACCOUNT)
    if isinstance(error, Conflict):
        return TelegramConflict(CONFLICT)
    if isinstance(error, BadRequest | Forbidden) or TOO_LARGE in error.message.lower():
        return _refusal(error)
    return _broken(error.__cause__)


def _refusal(error: TelegramError) -> PermanentSend:
    """Return a refusal in Telegram's words, but for a part of the markup, which may quote what a user wrote."""
    code = error.message.lower()
    shown = "it cannot read the markup" if UNREADABLE in code else error.message[:MOST_SAID]
    of_channel = isinstance(error, Forbidden) or any(one in code for one in CHANNEL)
    scope = FailureScope.CHANNEL if of_channel else FailureScope.MESSAGE
    return PermanentSend(f"Telegram says: {shown}", scope, code)


def _broken(cause: BaseException | None) -> SendFailure:
    """Classify a network error by its cause: an error of the HTTP library, or an answer that is no success.

    An answer of 500 or more is of unknown outcome like a cut connection: it may come from a gateway before Telegram's
    own servers, which may have the message by then, and there is no key by which they would know a second one.
    """
    if isinstance(cause, RetryableSend):
        return cause
    if isinstance(cause, RuntimeError):
        # Maestro closed it: the library raises this before it sends.
        return NotDispatched("the connection to Telegram was ended")
    if isinstance(cause, NOT_DISPATCHED):
        return NotDispatched(f"Telegram cannot be reached ({type(cause).__name__})")
    if isinstance(cause, httpx.HTTPError):
        return AmbiguousSend(f"the connection to Telegram broke ({type(cause).__name__})")
    return AmbiguousSend("Telegram has trouble of its own")


def _rate_limit(body: bytes) -> RetryableSend:
    """Return the pause that an answer asks for."""
    try:
        asked = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        asked = BUSY_SECONDS
    seconds = asked if 0 < asked < MOST_BUSY_SECONDS else BUSY_SECONDS
    return RetryableSend(f"Telegram asked to wait {seconds:g} s", timedelta(seconds=seconds))


def _request(root: str, connections: int) -> TelegramHttp:
    """Return what makes the requests; to this machine they take no proxy, whatever the environment says."""
    own = httpx.URL(root).host in LOCAL_NAMES
    try:
        return _made(connections, use_proxy=not own)
    except (RuntimeError, ValueError):  # the error's text quotes the proxy's address, which may hold a password
        raise ConfigurationError(
            "the proxy that the environment names (HTTPS_PROXY or ALL_PROXY) is none that Telegram can be reached "
            "through; name one whose address begins with http://"
        ) from None


def _made(connections: int, *, use_proxy: bool) -> TelegramHttp:
    return TelegramHttp(
        connection_pool_size=connections,
        read_timeout=CALL_SECONDS,
        write_timeout=CALL_SECONDS,
        connect_timeout=CONNECT_SECONDS,
        pool_timeout=CALL_SECONDS,
        media_write_timeout=FILE_SECONDS,
        httpx_kwargs=None if use_proxy else {"trust_env": False},
    )

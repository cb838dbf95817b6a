"""The one way to Telegram's Bot API: each call is made once, and what goes wrong is told apart."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import httpx
from telegram import Bot
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    TelegramError,
)
from telegram.request import HTTPXRequest

from connectors.telegram.errors import Busy, Contested, Denied, Moved, Refused, TelegramTrouble, Unreachable, Unsure
from maestro.domain.errors import ConfigurationError
from maestro.domain.hosts import LOCAL_NAMES

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

Update = Mapping[str, Any]
"""What happened, as Telegram tells it."""


class Wire(HTTPXRequest):
    """Makes the requests; to be asked to wait is an error of ours, for the library warns of its own."""

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
            raise Busy(_wait_in(body))
        return status, body

    async def finish(self) -> None:
        """Wait until no request is under way, but not for one that hangs: what is cut off may be there twice later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_SECONDS):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()


class Line(Bot):
    """A bot that is asked nothing twice.

    The library's ``Updater`` confirms messages that nobody has kept yet, and its ``initialize`` puts the token into an
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
        return "Line"

    async def updates(self, offset: int | None, wait: int, kinds: Sequence[str]) -> Sequence[Update]:
        """Return what happened from ``offset`` on, as it came: one that cannot be read must not cost the others.

        With an offset everything before it is confirmed and gone. ``wait`` is for how many seconds something may
        happen until an empty answer comes. Raises a ``TelegramTrouble``.
        """
        asked = {"offset": offset, "timeout": wait, "allowed_updates": list(kinds)}
        with translated():
            found = await self._post("getUpdates", asked, read_timeout=wait + CALL_SECONDS)
            return [one for one in found if isinstance(one, Mapping)]

    async def hang_up(self) -> None:
        """Ask no more, and close the connections once what is being sent has its answer."""
        polling, calling = self._lines
        await polling.shutdown()
        await calling.finish()
        await calling.shutdown()

    async def pick_up(self) -> None:
        """Let calls be made again after ``hang_up``."""
        for one in self._lines:
            await one.initialize()


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the library raises into a ``TelegramTrouble``; addresses and words that it quotes stay behind."""
    try:
        yield
    except TelegramError as error:
        raise _trouble(error) from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unsure(f"Telegram's answer could not be read ({type(error).__name__})") from None


def _trouble(error: TelegramError) -> TelegramTrouble:
    if isinstance(error, ChatMigrated) and isinstance(error.new_chat_id, int):
        return Moved(str(error.new_chat_id))
    if isinstance(error, InvalidToken):
        return Denied()
    if isinstance(error, Conflict):
        return Contested("another process asks for this bot's messages with the same token; end it, or use another bot")
    if isinstance(error, BadRequest | Forbidden):
        return Refused(error.message, forbidden=isinstance(error, Forbidden))
    if TOO_LARGE in error.message.lower():
        return Refused(error.message)
    return _broken(error.__cause__)


def _broken(cause: BaseException | None) -> TelegramTrouble:
    """Tell by what a network error was caused: an error of the HTTP library, or an answer that is no success."""
    if isinstance(cause, Busy):
        return cause
    if isinstance(cause, RuntimeError):
        return Unreachable("the connection to Telegram was ended")  # by us: the library says so before it sends
    if isinstance(cause, NOT_DISPATCHED):
        return Unreachable(f"Telegram cannot be reached ({type(cause).__name__})")
    if isinstance(cause, httpx.HTTPError):
        return Unsure(f"the connection to Telegram broke ({type(cause).__name__})")
    return Unsure("Telegram has trouble of its own")


def _wait_in(body: bytes) -> timedelta:
    """Return for how long an answer asks us to wait."""
    try:
        asked = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        asked = BUSY_SECONDS
    return timedelta(seconds=asked if 0 < asked < MOST_BUSY_SECONDS else BUSY_SECONDS)


def _request(root: str, connections: int) -> Wire:
    """Return what makes the requests; to this machine they take no proxy, whatever the environment says."""
    own = httpx.URL(root).host in LOCAL_NAMES
    try:
        return _made(connections, use_proxy=not own)
    except (RuntimeError, ValueError):  # its text holds the proxy's address, and so perhaps a password
        raise ConfigurationError(
            "the proxy that the environment names (HTTPS_PROXY or ALL_PROXY) is none that Telegram can be reached "
            "through; name one whose address begins with http://"
        ) from None


def _made(connections: int, *, use_proxy: bool) -> Wire:
    return Wire(
        connection_pool_size=connections,
        read_timeout=CALL_SECONDS,
        write_timeout=CALL_SECONDS,
        connect_timeout=CONNECT_SECONDS,
        pool_timeout=CALL_SECONDS,
        media_write_timeout=FILE_SECONDS,
        httpx_kwargs=None if use_proxy else {"trust_env": False},
    )

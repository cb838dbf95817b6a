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

from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    SendFailure,
)
from maestro.domain.errors import ConfigurationError, MaestroError, StoreBusy
from maestro.domain.hosts import LOCAL_NAMES

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


class TelegramTrouble(MaestroError):
    """The base of what a call of Telegram can end with."""

    public = "Telegram did not do what it was asked."


class TelegramUnreachable(TelegramTrouble):
    """Telegram was surely not asked."""


class TelegramUnsure(TelegramTrouble):
    """Telegram may or may not have done it."""


class TelegramBusy(TelegramTrouble):
    """Telegram did nothing and asked to come back after ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"Telegram asked to wait {after.total_seconds():g} s")
        self.after = after


class TelegramMoved(TelegramTrouble):
    """Telegram did nothing: the group goes on under the id ``to``."""

    def __init__(self, to: str) -> None:
        super().__init__("the group goes on under another id")
        self.to = to


class TelegramDenied(TelegramTrouble):
    """The token is not valid any more, or never was."""

    def __init__(self) -> None:
        super().__init__(REFUSED)


class TelegramConflict(TelegramTrouble):
    """Somebody else asks for the messages of this bot, or a webhook takes them."""


class TelegramRefused(TelegramTrouble):
    """Telegram said no, in its own words ``said``; ``forbidden`` where it is about who we are to this chat."""

    def __init__(self, said: str, *, forbidden: bool = False) -> None:
        self.said = said.lower()
        self.forbidden = forbidden
        # Of markup that it cannot read, Telegram quotes a part, which is what somebody wrote.
        told = "it cannot read the markup" if UNREADABLE in self.said else said[:MOST_SAID]
        super().__init__(f"Telegram says: {told}")

    def says(self, *words: str) -> bool:
        """Tell whether Telegram's words hold any of these."""
        return any(one in self.said for one in words)


@contextmanager
def before_sending() -> Iterator[None]:
    """Let trouble of the store be what it is before a message leaves: the message is surely not sent."""
    try:
        yield
    except StoreBusy as error:
        raise NotDispatched(str(error)) from None


def send_failure(trouble: TelegramTrouble) -> SendFailure:
    """Return what the trouble means for a message that was to be sent.

    An answer of 500 or more is in doubt like a cut connection: it may come from a gateway before Telegram's own
    servers, which may have the message by then, and there is no key by which they would know a second one.
    """
    if isinstance(trouble, TelegramUnreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, TelegramBusy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, TelegramDenied):
        return PermanentSend(str(trouble), FailureScope.ACCOUNT)
    if isinstance(trouble, TelegramRefused | TelegramMoved):
        return PermanentSend(str(trouble), _scope(trouble))
    return AmbiguousSend(str(trouble))


def fetch_failure(trouble: TelegramTrouble) -> FetchFailure:
    """Return what the trouble means for a file that was to be fetched."""
    if isinstance(trouble, TelegramRefused) and trouble.says(TOO_BIG):
        return PermanentFetch("the file is larger than 20 MB, and Telegram gives bots none that are")
    if isinstance(trouble, TelegramRefused | TelegramDenied):
        return PermanentFetch(str(trouble))
    return RetryableFetch(str(trouble), trouble.after if isinstance(trouble, TelegramBusy) else None)


def refused_account(trouble: MaestroError) -> AccountRefused | None:
    """Return what an operator is to be told when nobody else can help, None when this is no such trouble."""
    return AccountRefused(str(trouble)) if isinstance(trouble, TelegramDenied) else None


def _scope(trouble: TelegramRefused | TelegramMoved) -> FailureScope:
    """Return what is broken: a group that moves more than once within a call is one we cannot reach."""
    if isinstance(trouble, TelegramMoved):
        return FailureScope.CHANNEL
    return FailureScope.CHANNEL if trouble.forbidden or trouble.says(*CHANNEL) else FailureScope.MESSAGE


class TelegramHttp(HTTPXRequest):
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
            raise TelegramBusy(_wait_in(body))
        return status, body

    async def finish(self) -> None:
        """Wait until no request is under way, but not for one that hangs: what is cut off may be there twice later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_SECONDS):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()


class TelegramClient(Bot):
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

    async def updates(self, offset: int | None, wait: int, kinds: Sequence[str]) -> Sequence[RawUpdate]:
        """Return what happened from ``offset`` on, as it came: one that cannot be read must not cost the others.

        With an offset everything before it is confirmed and gone. ``wait`` is for how many seconds something may
        happen until an empty answer comes. Raises a ``TelegramTrouble``.
        """
        asked = {"offset": offset, "timeout": wait, "allowed_updates": list(kinds)}
        with telegram_errors():
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
def telegram_errors() -> Iterator[None]:
    """Turn what the library raises into a ``TelegramTrouble``; addresses and words that it quotes stay behind."""
    try:
        yield
    except TelegramError as error:
        raise _trouble(error) from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TelegramUnsure(f"Telegram's answer could not be read ({type(error).__name__})") from None


def _trouble(error: TelegramError) -> TelegramTrouble:
    if isinstance(error, ChatMigrated) and isinstance(error.new_chat_id, int):
        return TelegramMoved(str(error.new_chat_id))
    if isinstance(error, InvalidToken):
        return TelegramDenied()
    if isinstance(error, Conflict):
        return TelegramConflict(
            "another process asks for this bot's messages with the same token; end it, or use another bot"
        )
    if isinstance(error, BadRequest | Forbidden):
        return TelegramRefused(error.message, forbidden=isinstance(error, Forbidden))
    if TOO_LARGE in error.message.lower():
        return TelegramRefused(error.message)
    return _broken(error.__cause__)


def _broken(cause: BaseException | None) -> TelegramTrouble:
    """Tell by what a network error was caused: an error of the HTTP library, or an answer that is no success."""
    if isinstance(cause, TelegramBusy):
        return cause
    if isinstance(cause, RuntimeError):
        return TelegramUnreachable("the connection to Telegram was ended")  # by us: the library says so before it sends
    if isinstance(cause, NOT_DISPATCHED):
        return TelegramUnreachable(f"Telegram cannot be reached ({type(cause).__name__})")
    if isinstance(cause, httpx.HTTPError):
        return TelegramUnsure(f"the connection to Telegram broke ({type(cause).__name__})")
    return TelegramUnsure("Telegram has trouble of its own")


def _wait_in(body: bytes) -> timedelta:
    """Return for how long an answer asks us to wait."""
    try:
        asked = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        asked = BUSY_SECONDS
    return timedelta(seconds=asked if 0 < asked < MOST_BUSY_SECONDS else BUSY_SECONDS)


def _request(root: str, connections: int) -> TelegramHttp:
    """Return what makes the requests; to this machine they take no proxy, whatever the environment says."""
    own = httpx.URL(root).host in LOCAL_NAMES
    try:
        return _made(connections, use_proxy=not own)
    except (RuntimeError, ValueError):  # its text holds the proxy's address, and so perhaps a password
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

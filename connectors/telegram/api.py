"""The client of Telegram's Bot API; it makes each call once and classifies the failure of a call."""

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
    "Telegram refuses the bot's token. Get a new token from @BotFather (/mybots, API Token) and set "
    "connectors.telegram.token or the bot's entry."
)
CHANNEL = (
    *("chat not found", "user not found", "peer_id_invalid", "chat_write_forbidden", "chat_restricted"),
    *("have no rights to send", "not enough rights", "need administrator rights"),
    *("group chat was deactivated", "group chat was upgraded", "chat_admin_required"),
)
"""Telegram's error texts for a chat that accepts no message; a closed topic is not among them."""
UNREADABLE = "can't parse"
"""Telegram's error text for invalid markup; the message was not sent."""
EMPTY_TEXT = ("text is empty", "text must be non-empty")
"""Telegram's error texts for markup without text, for example an empty code block."""
UNCHANGED = "message is not modified"
NO_PICTURE = ("photo_invalid", "image_process_failed", "photo_save_file_invalid", "wrong type of the web page")
TOO_BIG = "file is too big"
NO_REACTION = "reaction"
CONFLICT = "another process receives this bot's messages with the same token; end that process, or use another bot"
MAX_QUOTED_CHARS = 120
"""The most characters of Telegram's error text that an error message quotes."""

ROOT = "https://api.telegram.org"
CALL_SECONDS = 20.0
"""The timeout of one call, in seconds; the timeout of a file's upload is ``FILE_SECONDS``."""
FILE_SECONDS = 120.0
CONNECT_SECONDS = 10.0
CALLS_AT_ONCE = 32
BUSY_SECONDS = 5.0
"""The wait in seconds after a rate limit for which Telegram names no time."""
MOST_BUSY_SECONDS = 86_400.0

NOT_DISPATCHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""Errors of the HTTP library that occur before a request is sent."""

TOO_LARGE = "request entity too large"

RawUpdate = Mapping[str, Any]
"""One update as Telegram's JSON object."""


class TelegramMoved(PermanentSend):
    """The failure of a call to a group that now has the id ``to``; Telegram did not carry out the call."""

    def __init__(self, to: str) -> None:
        super().__init__("the group has a new id on Telegram", FailureScope.CHANNEL)
        self.to = to


class TelegramConflict(NotDispatched):
    """A call that Telegram refused because another process, or a webhook, receives the updates of this bot."""


def has_refusal_words(failure: SendFailure, *words: str) -> bool:
    """Tell whether Telegram refused the call with an error text that contains any of these words."""
    return isinstance(failure, PermanentSend) and any(word in failure.code for word in words)


class TelegramHttp(HTTPXRequest):
    """The HTTP client; a rate limit raises ``RetryableSend``: the library's own error would log a warning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._under_way = 0
        self._idle = asyncio.Event()

    async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:
        """Return the status and the body of the answer; raises ``RetryableSend`` and the library's errors."""
        self._under_way += 1
        try:
            status, body = await super().do_request(*args, **options)
        finally:
            self._under_way -= 1
            self._idle.set()
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise _rate_limit_failure(body)
        return status, body

    async def wait_until_idle(self) -> None:
        """Wait until no request is running, at most ``CALL_SECONDS``: an interrupted send might be repeated later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_SECONDS):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()


class TelegramClient(Bot):
    """The client of the Bot API; it never repeats a call.

    Two parts of the library are not used: its ``Updater`` confirms messages before they are stored, and its
    ``initialize`` puts the token into an error.
    """

    def __init__(self, token: str, base_url: str = "") -> None:
        self._root = (base_url or ROOT).rstrip("/")
        self._http_clients = (_http_client(self._root, 1), _http_client(self._root, CALLS_AT_ONCE))
        polling, calling = self._http_clients
        super().__init__(
            token, f"{self._root}/bot", f"{self._root}/file/bot", request=calling, get_updates_request=polling
        )

    def __repr__(self) -> str:
        """Return the class name only, because the library's text contains the token."""
        return "TelegramClient"

    async def request_updates(self, offset: int | None, wait: int, kinds: Sequence[str]) -> Sequence[RawUpdate]:
        """Return the raw updates from ``offset`` on, unparsed, so that a malformed update does not block others.

        ``offset`` confirms all earlier updates, which Telegram then deletes. ``wait`` is the number of seconds until an
        empty answer arrives. Raises a ``SendFailure``.
        """
        parameters = {"offset": offset, "timeout": wait, "allowed_updates": list(kinds)}
        with telegram_errors():
            updates = await self._post("getUpdates", parameters, read_timeout=wait + CALL_SECONDS)
            return [update for update in updates if isinstance(update, Mapping)]

    async def close_when_idle(self) -> None:
        """Stop polling, and close the connections once the running requests have ended."""
        polling, calling = self._http_clients
        await polling.shutdown()
        await calling.wait_until_idle()
        await calling.shutdown()

    async def allow_calls(self) -> None:
        """Allow calls again after ``close_when_idle``."""
        for http in self._http_clients:
            await http.initialize()


@contextmanager
def telegram_errors() -> Iterator[None]:
    """Translate the library's errors into a ``SendFailure``, without the addresses and texts that the errors quote."""
    try:
        yield
    except TelegramError as error:
        raise _send_failure(error) from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise AmbiguousSend(f"Telegram's answer could not be read ({type(error).__name__})") from None


def _send_failure(error: TelegramError) -> SendFailure:
    if isinstance(error, ChatMigrated) and isinstance(error.new_chat_id, int):
        return TelegramMoved(str(error.new_chat_id))
    if isinstance(error, InvalidToken):
        return PermanentSend(REFUSED, FailureScope.ACCOUNT)
    if isinstance(error, Conflict):
        return TelegramConflict(CONFLICT)
    code = error.message.lower()
    if isinstance(error, BadRequest | Forbidden) or TOO_LARGE in code:
        # Telegram's error text about unreadable markup may quote a user.
        shown = "the markup cannot be parsed" if UNREADABLE in code else error.message[:MAX_QUOTED_CHARS]
        of_channel = isinstance(error, Forbidden) or any(text in code for text in CHANNEL)
        scope = FailureScope.CHANNEL if of_channel else FailureScope.MESSAGE
        return PermanentSend(f"Telegram says: {shown}", scope, code)
    return _network_failure(error.__cause__)


def _network_failure(cause: BaseException | None) -> SendFailure:
    """Classify a network error by its cause: an error of the HTTP library, or an unsuccessful answer.

    After a status of 500 or more the outcome is unknown, as after a broken connection: a gateway may answer so after
    Telegram got the message. Telegram has no idempotency key that would make a repeat safe.
    """
    if isinstance(cause, RetryableSend):
        return cause
    if isinstance(cause, RuntimeError):
        # Maestro closed the client: the library raises a RuntimeError before a request is sent.
        return NotDispatched("the connection to Telegram was closed")
    if isinstance(cause, NOT_DISPATCHED):
        return NotDispatched(f"Telegram cannot be reached ({type(cause).__name__})")
    if isinstance(cause, httpx.HTTPError):
        return AmbiguousSend(f"the connection to Telegram broke ({type(cause).__name__})")
    return AmbiguousSend("Telegram has an internal error")


def _rate_limit_failure(body: bytes) -> RetryableSend:
    """Return the failure with the wait that Telegram's answer asks for."""
    try:
        requested = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        requested = BUSY_SECONDS
    seconds = requested if 0 < requested < MOST_BUSY_SECONDS else BUSY_SECONDS
    return RetryableSend(f"Telegram asked to wait {seconds:g} s", timedelta(seconds=seconds))


def _http_client(root: str, connections: int) -> TelegramHttp:
    """Return an HTTP client; for a local server it ignores the proxy of the environment."""
    is_local = httpx.URL(root).host in LOCAL_NAMES
    try:
        return TelegramHttp(
            connection_pool_size=connections,
            read_timeout=CALL_SECONDS,
            write_timeout=CALL_SECONDS,
            connect_timeout=CONNECT_SECONDS,
            pool_timeout=CALL_SECONDS,
            media_write_timeout=FILE_SECONDS,
            httpx_kwargs={"trust_env": False} if is_local else None,
        )
    except (RuntimeError, ValueError):  # The error's text quotes the proxy's address, which may contain a password.
        raise ConfigurationError(
            "the proxy in the environment (HTTPS_PROXY or ALL_PROXY) cannot be used to reach Telegram; "
            "set a proxy with an address that begins with http://"
        ) from None

"""The shared base of the chat connectors: run loop, message order, rate limit of sends, and file downloads."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import structlog
from pydantic import SecretStr
from starlette.routing import BaseRoute

from connectors.base import Capabilities, ConnectorContext, ConnectorState
from connectors.failures import AccountRefused, FailureScope, PermanentFetch, PermanentSend, RetryableFetch
from connectors.options import Instance, Options
from connectors.webhooks import WebhookEndpoint
from maestro.domain.errors import InvalidMessage, MaestroError, StoreBusy
from maestro.domain.messages import AcceptedMessage, ControlWord, IncomingMessage, OutgoingMessage
from maestro.fetch import FetchAccess, Fetched, FetchFailed, FetchLimits, FetchRefused, download

T = TypeVar("T")

MAX_CHANNELS = 1_000
BUTTON_EXPIRED = "This button has expired."
BUTTON_OF_OTHERS = "Another user has to answer this."
CONTROL_WORDS = {
    ControlWord.STOP: "Stop what is being answered here",
    ControlWord.STATUS: "Tell what is being worked on here",
    ControlWord.NEW: "Begin a new conversation with the next message",
}
"""The descriptions of the control words, for platforms that list a bot's commands."""

log = structlog.get_logger(__name__)


async def read_content(message: OutgoingMessage) -> bytes:
    """Return the content of the file that a message sends."""
    return message.content.encode() if message.path is None else await asyncio.to_thread(message.path.read_bytes)


class MediaDownloads:
    """The file downloader of one account; ``bearer`` is a token that is sent only to the host in the file's address."""

    def __init__(
        self, platform: str, options: Options, hosts: frozenset[str], *, seconds: float = 120, bearer: str = ""
    ) -> None:
        self.own_hosts = frozenset(host.lower() for host in options.media_hosts)
        self._platform = platform
        self._limits = FetchLimits(options.max_media_bytes, seconds)
        ports = frozenset[int]() if self.own_hosts else frozenset({443})
        self._access = FetchAccess(
            hosts=hosts | self.own_hosts, private_hosts=self.own_hosts, ports=ports, bearer=SecretStr(bearer)
        )

    def check_size(self, size: int) -> None:
        """Raise ``PermanentFetch`` if a file's reported size in bytes exceeds the option ``maxMediaBytes``."""
        if size > self._limits.max_bytes:
            most = f"the limit is {self._limits.max_bytes:,} (maxMediaBytes)"
            raise PermanentFetch(f"the file has {size:,} bytes; {most}")

    async def download_file(self, url: str, path: Path) -> Fetched:
        """Download the file at ``url`` to ``path``; raises a ``FetchFailure``, also for any HTTP status but 200."""
        head = await self.request_file(url, path)
        if head.status != HTTPStatus.OK:
            is_temporary = (
                head.status == HTTPStatus.TOO_MANY_REQUESTS or head.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            )
            failure = RetryableFetch if is_temporary else PermanentFetch
            raise failure(f"{self._platform}'s file server answered {head.status}")
        return head

    async def request_file(self, url: str, path: Path) -> Fetched:
        """Download the content of ``url`` to ``path``, whatever its HTTP status; raises a ``FetchFailure``."""
        try:
            return await download(url, path, self._limits, self._access)
        except FetchRefused as refused:
            raise PermanentFetch(f"the file may not be downloaded: {refused}") from None
        except FetchFailed as failed:
            raise RetryableFetch(str(failed)) from None


class AccountConnector:
    """The base class of chat connectors; an instance serves one account until the platform refuses the account."""

    platform: str
    capabilities: Capabilities
    _endpoint: WebhookEndpoint | None = None

    def __init__(self, instance: Instance, context: ConnectorContext) -> None:
        self.account = instance.account
        self.token_digest = instance.token_digest
        self._context = context
        self._latest: tuple[ConnectorState, str] | None = None
        """The newest state to report; None before the first one and after the end of ``run``."""
        self._reported: tuple[ConnectorState, str] | None = None
        self._report_lock = asyncio.Lock()
        self._refusal: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Receive messages until cancelled; raises ``AccountRefused`` as soon as the platform refuses the account."""
        self._refusal = asyncio.get_running_loop().create_future()
        try:
            await self._report_state(ConnectorState.STARTING)
            await run_until_one_fails(self._receive(), self._refusal)
        except AccountRefused as refused:
            await self._report_state(ConnectorState.FAILED, str(refused))
            raise
        finally:
            self._latest = None  # A late report must not replace the state of the process that runs the bot next.

    def routes(self) -> Sequence[BaseRoute]:
        """Return the HTTP routes to which the platform posts; none for a connector without a webhook."""
        return self._endpoint.routes() if self._endpoint is not None else ()

    async def _receive(self) -> None:
        raise NotImplementedError

    async def report_running(self, detail: str) -> None:
        """Report to operators that the connector receives messages, unless the last report was the same."""
        if self._reported != (ConnectorState.RUNNING, detail):
            await self._report_state(ConnectorState.RUNNING, detail)

    async def report_broken(self, reason: str) -> None:
        """Report to the operator that the connector receives no messages, and why."""
        log.warning(f"{self.platform}.disconnected", account=self.account, reason=reason)
        await self._report_state(ConnectorState.DEGRADED, reason)

    async def repeat_until_success(self, work: Callable[[], Awaitable[T]], pauses: Iterator[float] | None = None) -> T:
        """Repeat ``work`` until it succeeds; wait longer after each failure, and at least as long as the platform asks.

        Raises ``AccountRefused`` when only an operator can fix the problem. A full or busy store is a reason to repeat.
        """
        waits = pauses or backoff_seconds()
        while True:
            try:
                return await work()
            except AccountRefused:
                raise
            except MaestroError as error:
                if isinstance(error, PermanentSend) and error.scope is FailureScope.ACCOUNT:
                    raise AccountRefused(str(error)) from None
                await self.report_broken(str(error))
                requested = error.retry_after.total_seconds() if error.retry_after else 0.0
                await asyncio.sleep(max(next(waits), requested))

    def end_with_refusal(self, refused: AccountRefused) -> None:
        """Make ``run`` raise this error, because only an operator can fix the account."""
        if self._refusal is not None and not self._refusal.done():
            self._refusal.set_exception(refused)

    @contextlib.contextmanager
    def end_on_refusal(self) -> Iterator[None]:
        """Make ``run`` raise ``AccountRefused`` if a call in the block shows that the platform refuses the account."""
        try:
            yield
        except PermanentSend as failure:
            if failure.scope is FailureScope.ACCOUNT:
                self.end_with_refusal(AccountRefused(str(failure)))
            raise

    async def _report_state(self, state: ConnectorState, detail: str = "") -> None:
        """Report a state; repeat this until the store has it, the state has changed, or the connector has ended.

        Libraries catch the errors of their event handlers, so a report that failed there would not be made again.
        """
        report = self._latest = (state, detail)
        self._reported = None
        for pause in backoff_seconds():
            async with self._report_lock:
                if self._latest is not report:
                    return
                try:
                    await self._context.report(state, detail)
                except StoreBusy as error:
                    log.warning(f"{self.platform}.report_postponed", account=self.account, reason=str(error))
                else:
                    self._reported = report
                    return
            await asyncio.sleep(pause)


async def run_until_one_fails(*work: Awaitable[None]) -> None:
    """Run the awaitables concurrently until the first of them ends or fails, then cancel the others."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class ButtonPress:
    """A button press: the key of the message with the button, the button's number, and the press as a message."""

    key: str
    number: int
    message: IncomingMessage


class MessageIntake:
    """The intake of one account's messages; it stores the messages of each channel in their order."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def channel_lock(self, channel: str) -> asyncio.Lock:
        """Return the lock of a channel; waiting callers get the lock in the order of their calls."""
        return self._locks.setdefault(channel, asyncio.Lock())

    async def accept_in_order(self, message: IncomingMessage) -> AcceptedMessage | None:
        """Store a message after the messages that its channel received before; None for an invalid message."""
        async with self.channel_lock(message.address.channel):
            return await self.accept(message)

    async def accept(self, message: IncomingMessage) -> AcceptedMessage | None:
        """Store a message in the inbox; skip an invalid message and return None, because a retry would fail again."""
        try:
            return await self._context.accept(message)
        except InvalidMessage as error:
            channel = message.address.channel
            log.info("message.refused", platform=message.address.platform, channel=channel, reason=str(error))
            return None


class SendRateLimiter:
    """The rate limit of sends to each channel."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        """``seconds`` returns the minimum number of seconds between two messages to a channel."""
        self._seconds = seconds
        self._next: dict[str, float] = {}

    async def wait_for_channel(self, channel: str) -> None:
        """Wait until the next message to the channel is allowed."""
        now = time.monotonic()
        at = max(now, self._next.get(channel, 0.0))
        if len(self._next) >= MAX_CHANNELS:
            self._next = {other: due for other, due in self._next.items() if due > now}
        self._next[channel] = at + self._seconds(channel)
        await asyncio.sleep(at - now)


def backoff_seconds() -> Iterator[float]:
    """Yield the seconds to wait before each connection attempt; the first wait is 0."""
    return chain((0.0, 1.0, 2.0, 5.0, 15.0, 30.0), repeat(60.0))

"""The two transports of Telegram's updates: long polling, and a webhook with a secret."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import NoReturn

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from telegram import WebhookInfo

from connectors.account import AccountConnector
from connectors.failures import AmbiguousSend
from connectors.telegram.api import RawUpdate, TelegramClient, TelegramConflict, telegram_errors
from connectors.telegram.inbound import OPEN_SECONDS, OpenAlbums, TelegramInbound, confirmable_groups, group_albums
from connectors.telegram.receive import KINDS
from connectors.webhooks import WebhookEndpoint, is_same_secret, parse_object

WAIT_SECONDS = 50
"""Seconds for which Telegram may hold a poll until there is an update."""

STORE_SECONDS = 20.0
"""Seconds to store an update in the inbox."""
LOOK_SECONDS = 60.0
"""Seconds between two checks of the webhook registration."""
SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header, not a secret

log = structlog.get_logger(__name__)


class TelegramPolling:
    """Long polling for the updates of one bot.

    Polling begins without an offset, because Telegram knows which updates are confirmed. An old offset is never stored:
    after a quiet week Telegram may continue with a lower number.
    """

    def __init__(
        self, client: TelegramClient, inbound: TelegramInbound, running: Callable[[], Awaitable[None]]
    ) -> None:
        """``running`` is called after each poll, once all its updates were accepted."""
        self._client = client
        self._inbound = inbound
        self._running = running
        self._albums = OpenAlbums()
        self._offset: int | None = None
        self._webhook_deleted = False
        self._wait = 0

    async def poll(self) -> None:
        """Poll once and accept the updates; the next poll confirms only the accepted updates."""
        # The first poll, and a poll after a failure, returns at once, so that its answer proves the connection.
        wait, self._wait = self._wait, 0
        if not self._webhook_deleted:
            # Telegram refuses polling while a webhook is registered; the webhook's pending updates are kept.
            with telegram_errors():
                await self._client.delete_webhook(drop_pending_updates=False)
            self._webhook_deleted = True
        updates = await self._request_updates(wait)
        await self._accept_updates(updates)
        await self._running()
        self._wait = WAIT_SECONDS

    async def _request_updates(self, wait: int) -> Sequence[RawUpdate]:
        try:
            updates = await self._client.request_updates(self._offset, wait, KINDS)
        except TelegramConflict:
            # After a conflict a long poll is made. A short poll would end the other process's poll, and the other
            # process would then end the poll of this process, endlessly and without a pause.
            self._webhook_deleted, self._wait = False, WAIT_SECONDS
            raise
        numbered = [update for update in updates if isinstance(update.get("update_id"), int)]
        if updates and not numbered:
            raise AmbiguousSend("Telegram's answer could not be read: no update has an update_id")
        return numbered

    async def _accept_updates(self, updates: Sequence[RawUpdate]) -> None:
        groups = group_albums(updates)
        ready = confirmable_groups(groups, self._albums.find_open(groups, monotonic()))
        for group in ready:
            await self._inbound.take(group)
        if len(ready) < len(groups):
            self._offset = int(groups[len(ready)][0]["update_id"])
            # No part of an open album is confirmed, so the next poll returns the first parts again with later parts.
            await asyncio.sleep(OPEN_SECONDS)
        elif updates:
            self._offset = max(int(update["update_id"]) for update in updates) + 1


class TelegramEndpoint(WebhookEndpoint):
    """The webhook endpoint for Telegram's updates, guarded by a shared secret.

    Each part of an album is a message of its own here, because Telegram sends the next part only after the
    acknowledgement of the previous part.
    """

    def __init__(self, secret: str) -> None:
        super().__init__("Telegram", STORE_SECONDS)
        self._secret = secret

    async def receive(self, request: Request) -> Response:
        """Answer one request; the secret is in a header, so the body of a forged request is not read."""
        if not self.is_genuine(request.headers, b""):
            return PlainTextResponse("not signed by Telegram", HTTPStatus.UNAUTHORIZED)
        return await super().receive(request)

    def is_genuine(self, headers: Mapping[str, str], _: bytes) -> bool:
        """Tell whether the secret in the header is the configured secret."""
        return is_same_secret(self._secret, headers.get(SECRET, ""))

    async def answer(self, _: Request, body: bytes) -> Response:
        """Store an update and acknowledge it."""
        update = parse_object(body)
        if isinstance(update, Response):
            return update
        if not isinstance(update.get("update_id"), int):
            return PlainTextResponse("the body is not an update of Telegram", HTTPStatus.BAD_REQUEST)
        return await self.store([update])


async def keep_webhook(
    connector: AccountConnector, client: TelegramClient, url: str, secret: str, detail: str
) -> NoReturn:
    """Register the webhook with Telegram, and check its registration and errors until cancelled.

    Another program may change the registration; Telegram never returns the secret for a comparison. Raises
    ``AccountRefused``.
    """
    seen = datetime.now(UTC)

    async def subscribe() -> None:
        with telegram_errors():
            await client.set_webhook(url, secret_token=secret, allowed_updates=KINDS)

    async def check() -> WebhookInfo:
        with telegram_errors():
            info = await client.get_webhook_info()
        if info.url != url or set(info.allowed_updates or KINDS) != set(KINDS):
            log.warning("telegram.webhook_changed")
            await subscribe()
        return info

    await connector.retry(subscribe)
    while True:
        info = await connector.retry(check)
        if info.last_error_date is not None and info.last_error_date > seen:
            seen = info.last_error_date
            reason = info.last_error_message or "Telegram gives no reason"
            await connector.report_broken(f"Telegram cannot post to webhookUrl: {reason}")
        else:
            await connector.report_running(detail)
        await asyncio.sleep(LOOK_SECONDS)

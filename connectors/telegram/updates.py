"""The two ways in which Telegram's updates arrive: long polling, or a webhook with a secret."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from telegram import WebhookInfo

from connectors.telegram.api import RawUpdate, TelegramClient, TelegramConflict, TelegramUnsure, telegram_errors
from connectors.telegram.inbound import OPEN_SECONDS, OpenAlbums, TelegramInbound, confirmable, group_albums
from connectors.telegram.persistence import ConnectionWatcher, retry_until_done
from connectors.telegram.receive import KINDS
from connectors.webhooks import ask_to_resend, is_same_secret, parse_object, read_body
from maestro.domain.errors import MaestroError

WAIT_SECONDS = 50
"""How long Telegram may keep us waiting for something to happen."""

STORE_SECONDS = 20.0
"""How long a message may take to be in the inbox."""
LOOK_SECONDS = 60.0
"""How often Telegram is asked whether it still posts to us."""
SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name

log = structlog.get_logger(__name__)


class TelegramPolling:
    """Asks for as long as it runs.

    It begins without an offset: Telegram knows what was not confirmed. An old offset is never kept, because after a
    quiet week Telegram counts anew, from a number that may be lower.
    """

    def __init__(self, line: TelegramClient, inbound: TelegramInbound, watcher: ConnectionWatcher) -> None:
        self._line = line
        self._inbound = inbound
        self._watcher = watcher
        self._albums = OpenAlbums()
        self._offset: int | None = None
        self._alone = False
        self._wait = 0

    async def run(self) -> None:
        """Ask until cancelled; raises ``AccountRefused``."""
        while True:
            await retry_until_done(self._look, self._watcher)

    async def _look(self) -> None:
        """Ask once and take in what came; the next one confirms that, and nothing that was not taken in."""
        wait, self._wait = self._wait, 0  # after trouble an answer is to come at once, so that it is known to be over
        await self._be_alone()
        updates = await self._asked(wait)
        await self._take(updates)
        await self._watcher.well()
        self._wait = WAIT_SECONDS

    async def _be_alone(self) -> None:
        """End the webhook of an earlier life: beside one nobody may ask. What waits for it waits for us."""
        if not self._alone:
            with telegram_errors():
                await self._line.delete_webhook(drop_pending_updates=False)
            self._alone = True

    async def _asked(self, wait: int) -> Sequence[RawUpdate]:
        try:
            updates = await self._line.updates(self._offset, wait, KINDS)
        except TelegramConflict:
            # Only a whole wait shows that nobody else asks any more: a short look would take the other one's place,
            # which would take ours back, without an end and without a pause.
            self._alone, self._wait = False, WAIT_SECONDS
            raise
        numbered = [one for one in updates if isinstance(one.get("update_id"), int)]
        if updates and not numbered:
            raise TelegramUnsure("Telegram's answer could not be read: no update in it has a number")
        return numbered

    async def _take(self, updates: Sequence[RawUpdate]) -> None:
        found = group_albums(updates)
        unfinished = self._albums.among(found, monotonic())
        ready = confirmable(found, unfinished)
        for group in ready:
            await self._inbound.take(group)
        if len(ready) < len(found):
            self._offset = int(found[len(ready)][0]["update_id"])
            # Nothing of an album is confirmed yet, so its next parts come together with those that are here.
            await asyncio.sleep(OPEN_SECONDS)
        elif updates:
            self._offset = max(int(one["update_id"]) for one in updates) + 1


class TelegramEndpoint:
    """Takes requests in; anything but 200 lets Telegram send them again."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._inbound: TelegramInbound | None = None

    def open(self, inbound: TelegramInbound) -> None:
        """Hand what is heard from now on to this."""
        self._inbound = inbound

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Telegram posts."""
        return [Route("/", self.receive, methods=["POST"])]

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        if not is_same_secret(self._secret, request.headers.get(SECRET, "")):
            return PlainTextResponse("not from Telegram", HTTPStatus.UNAUTHORIZED)
        body = await read_body(request)
        update = body if isinstance(body, Response) else parse_object(body)
        if isinstance(update, Response):
            return update
        if not isinstance(update.get("update_id"), int):
            return PlainTextResponse("this is no update", HTTPStatus.BAD_REQUEST)
        return Response() if await self._take(update) else ask_to_resend()

    async def _take(self, update: RawUpdate) -> bool:
        """Take an update in; false when Telegram is to send it again.

        Each part of an album is a message of its own here: Telegram sends the next one after our word that we have
        the one before.
        """
        if self._inbound is None:
            return False
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._inbound.take([update])
        except (MaestroError, TimeoutError) as error:
            log.warning("telegram.not_taken", error=type(error).__name__)
            return False
        return True


class WebhookSubscription:
    """Keeps Telegram posting to our address."""

    def __init__(self, line: TelegramClient, url: str, secret: str, watcher: ConnectionWatcher) -> None:
        self._line = line
        self._url = url
        self._secret = secret
        self._watcher = watcher
        self._seen = datetime.now(UTC)

    async def run(self) -> None:
        """Look after it until cancelled; raises ``AccountRefused``."""
        await retry_until_done(self._subscribe, self._watcher)
        while True:
            await retry_until_done(self._look, self._watcher)
            await asyncio.sleep(LOOK_SECONDS)

    async def _subscribe(self) -> None:
        """Tell Telegram where to post; the secret cannot be asked for, so it is always told anew."""
        with telegram_errors():
            await self._line.set_webhook(self._url, secret_token=self._secret, allowed_updates=KINDS)

    async def _look(self) -> None:
        with telegram_errors():
            info = await self._line.get_webhook_info()
        if info.url != self._url or set(info.allowed_updates or KINDS) != set(KINDS):
            log.warning("telegram.webhook_changed")
            await self._subscribe()
        problem = new_problem(info, self._seen)
        if problem is None:
            await self._watcher.well()
        else:
            self._seen = info.last_error_date or self._seen
            await self._watcher.broken(problem)


def new_problem(info: WebhookInfo, since: datetime) -> str | None:
    """Return what Telegram says went wrong with its requests after a moment, None where nothing did."""
    if info.last_error_date is None or info.last_error_date <= since:
        return None
    return f"Telegram cannot post to webhookUrl: {info.last_error_message or 'it does not say why'}"

"""The other way in: Telegram posts to us, with a secret that we told it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from telegram import WebhookInfo

from connectors.posted import body_of, not_taken, object_in, same
from connectors.telegram.api import Line, Update, translated
from connectors.telegram.inbound import Inbound
from connectors.telegram.persistence import Watcher, persist
from connectors.telegram.receive import KINDS
from maestro.domain.errors import MaestroError

SECONDS = 20.0
"""How long a message may take to be in the inbox."""
LOOK_SECONDS = 60.0
"""How often Telegram is asked whether it still posts to us."""
SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name

log = structlog.get_logger(__name__)


class Webhook:
    """Takes requests in; anything but 200 lets Telegram send them again."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._inbound: Inbound | None = None

    def open(self, inbound: Inbound) -> None:
        """Hand what is heard from now on to this."""
        self._inbound = inbound

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Telegram posts."""
        return [Route("/", self.receive, methods=["POST"])]

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        if not same(self._secret, request.headers.get(SECRET, "")):
            return PlainTextResponse("not from Telegram", HTTPStatus.UNAUTHORIZED)
        body = await body_of(request)
        update = body if isinstance(body, Response) else object_in(body)
        if isinstance(update, Response):
            return update
        if not isinstance(update.get("update_id"), int):
            return PlainTextResponse("this is no update", HTTPStatus.BAD_REQUEST)
        return Response() if await self._take(update) else not_taken()

    async def _take(self, update: Update) -> bool:
        """Take an update in; false when Telegram is to send it again.

        Each part of an album is a message of its own here: Telegram sends the next one after our word that we have
        the one before.
        """
        if self._inbound is None:
            return False
        try:
            async with asyncio.timeout(SECONDS):
                await self._inbound.take([update])
        except (MaestroError, TimeoutError) as error:
            log.warning("telegram.not_taken", error=type(error).__name__)
            return False
        return True


class Subscription:
    """Keeps Telegram posting to our address."""

    def __init__(self, line: Line, url: str, secret: str, watcher: Watcher) -> None:
        self._line = line
        self._url = url
        self._secret = secret
        self._watcher = watcher
        self._seen = datetime.now(UTC)

    async def run(self) -> None:
        """Look after it until cancelled; raises ``AccountRefused``."""
        await persist(self._subscribe, self._watcher)
        while True:
            await persist(self._look, self._watcher)
            await asyncio.sleep(LOOK_SECONDS)

    async def _subscribe(self) -> None:
        """Tell Telegram where to post; the secret cannot be asked for, so it is always told anew."""
        with translated():
            await self._line.set_webhook(self._url, secret_token=self._secret, allowed_updates=KINDS)

    async def _look(self) -> None:
        with translated():
            info = await self._line.get_webhook_info()
        if info.url != self._url or set(info.allowed_updates or KINDS) != set(KINDS):
            log.warning("telegram.webhook_changed")
            await self._subscribe()
        problem = news_of(info, self._seen)
        if problem is None:
            await self._watcher.well()
        else:
            self._seen = info.last_error_date or self._seen
            await self._watcher.broken(problem)


def news_of(info: WebhookInfo, since: datetime) -> str | None:
    """Return what Telegram says went wrong with its requests after a moment, None where nothing did."""
    if info.last_error_date is None or info.last_error_date <= since:
        return None
    return f"Telegram cannot post to webhookUrl: {info.last_error_message or 'it does not say why'}"

"""The webhook of WhatsApp: all events of a signed request are stored before it is acknowledged."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from connectors.account import MessageIntake
from connectors.base import ConnectorContext
from connectors.webhooks import WebhookEndpoint, is_same_secret, is_signed, parse_object
from connectors.whatsapp.receive import (
    ForeignEvents,
    NumberChange,
    SkippedEvent,
    StatusReport,
    WhatsAppEvent,
    WhatsAppMessage,
    WhatsAppNumber,
    events_in,
)
from maestro.domain.messages import IncomingMessage

MOST_CHATS = 10_000

log = structlog.get_logger(__name__)

STORE_SECONDS = 8.0
"""Seconds to store a request in the inbox; Meta waits about ten seconds."""
SIGNATURE, SCHEME = "x-hub-signature-256", "sha256"


class WhatsAppInbound:
    """The receiver of a request's events; after an error Meta has to send the request again."""

    def __init__(self, context: ConnectorContext, number: WhatsAppNumber) -> None:
        self._context = context
        self._number = number
        self._newest: dict[str, str] = {}
        self._intake = MessageIntake(context)

    async def take(self, payload: Mapping[str, Any]) -> None:
        """Store all events of a request; after a failure, those already stored are duplicates of the repeat."""
        others = 0
        for one in events_in(payload, self._number):
            if isinstance(one, ForeignEvents):
                others += one.count
            else:
                await self._take(one)
        if others:
            log.info("whatsapp.of_another_number", account=self._number.account, count=others)

    def newest(self, channel: str) -> str:
        """Return the id of the newest message of a chat since the start, "" without one."""
        return self._newest.get(channel, "")

    async def _take(self, one: WhatsAppEvent) -> None:
        if isinstance(one, WhatsAppMessage):
            async with self._intake.in_order(one.message.address.channel):
                await self._accept(await self._with_press(one))
        elif isinstance(one, StatusReport):
            await self._context.record_report(one.key, one.report)
        elif isinstance(one, NumberChange):
            await self._context.moved(one.channel, one.to)
        elif isinstance(one, SkippedEvent):
            log.warning("whatsapp.passed_over", account=self._number.account, reason=one.why)

    async def _with_press(self, received: WhatsAppMessage) -> IncomingMessage:
        """Return the message with the text behind its button; a foreign button counts as its label."""
        if received.press is None:
            return received.message
        value = await self._context.pressed(received.press.key, received.press.number)
        return received.message if value is None else received.message.model_copy(update={"content": value})

    async def _accept(self, message: IncomingMessage) -> None:
        if await self._intake.accept(message) is None:
            return
        self._newest.pop(message.address.channel, None)
        if len(self._newest) >= MOST_CHATS:
            del self._newest[next(iter(self._newest))]
        self._newest[message.address.channel] = message.edit_of or message.id


class WhatsAppEndpoint(WebhookEndpoint):
    """The webhook endpoint for Meta; a request that is not acknowledged is repeated for up to seven days."""

    methods = ("GET", "POST")

    def __init__(self, secret: str, verify_token: str, *, seconds: float = STORE_SECONDS) -> None:
        super().__init__("Meta", seconds)
        self._secret = secret
        self._verify_token = verify_token

    async def receive(self, request: Request) -> Response:
        """Answer one request; by a GET request Meta verifies the address when the webhook is set up."""
        if request.method == "POST":
            return await super().receive(request)
        asked = request.query_params
        known = is_same_secret(self._verify_token, asked.get("hub.verify_token", ""))
        if asked.get("hub.mode") != "subscribe" or not known:
            return PlainTextResponse("the verify token is another one", HTTPStatus.FORBIDDEN)
        return PlainTextResponse(asked.get("hub.challenge", ""))

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Check the signature."""
        return is_signed(self._secret, body, headers.get(SIGNATURE, ""), SCHEME)

    async def answer(self, _: Request, body: bytes) -> Response:
        """Acknowledge a request when all of its events are in the inbox."""
        payload = parse_object(body)
        return payload if isinstance(payload, Response) else await self.store(payload)

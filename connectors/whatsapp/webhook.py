"""The webhook of WhatsApp: a signed request is stored as a whole before it is acknowledged."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol
from weakref import WeakValueDictionary

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors.base import ConnectorContext
from connectors.webhooks import ask_to_resend, is_same_secret, is_signed, parse_object, read_body
from connectors.whatsapp.receive import (
    ForeignEvents,
    NumberChange,
    ReceivedMessage,
    SkippedEvent,
    StatusReport,
    WhatsAppEvent,
    WhatsAppNumber,
    events_in,
)
from maestro.domain.errors import InvalidMessage, MaestroError
from maestro.domain.messages import IncomingMessage

MOST_CHATS = 10_000

log = structlog.get_logger(__name__)

STORE_SECONDS = 8.0
"""How long a request may take to be in the inbox; Meta waits about ten seconds."""
SIGNATURE, SCHEME = "x-hub-signature-256", "sha256"


class WhatsAppInbound:
    """Hands on what a request tells of; what it raises means that Meta is to send the request again."""

    def __init__(self, context: ConnectorContext, us: WhatsAppNumber) -> None:
        self._context = context
        self._us = us
        self._newest: dict[str, str] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, payload: Mapping[str, Any]) -> None:
        """Take in everything that a request tells of; what was kept when it fails is a duplicate the next time."""
        others = 0
        for one in events_in(payload, self._us):
            if isinstance(one, ForeignEvents):
                others += one.count
            else:
                await self._take(one)
        if others:
            log.info("whatsapp.of_another_number", account=self._us.account, count=others)

    def newest(self, channel: str) -> str:
        """Return the id of the message that came last in a chat since we began, empty where none did."""
        return self._newest.get(channel, "")

    async def _take(self, one: WhatsAppEvent) -> None:
        if isinstance(one, ReceivedMessage):
            async with self._turn(one.message.address.channel):
                await self._accept(await self._worded(one))
        elif isinstance(one, StatusReport):
            await self._context.told(one.key, one.report)
        elif isinstance(one, NumberChange):
            await self._context.moved(one.channel, one.to)
        elif isinstance(one, SkippedEvent):
            log.warning("whatsapp.passed_over", account=self._us.account, reason=one.why)

    async def _worded(self, said: ReceivedMessage) -> IncomingMessage:
        """Return the message with what its button says; what stands on a button that we do not know says it all."""
        if said.press is None:
            return said.message
        value = await self._context.pressed(said.press.key, said.press.number)
        return said.message if value is None else said.message.model_copy(update={"content": value})

    async def _accept(self, message: IncomingMessage) -> None:
        try:
            await self._context.accept(message)
        except InvalidMessage as error:
            log.info("whatsapp.message_refused", account=self._us.account, reason=str(error))
            return
        self._newest.pop(message.address.channel, None)
        if len(self._newest) >= MOST_CHATS:
            del self._newest[next(iter(self._newest))]
        self._newest[message.address.channel] = message.edit_of or message.id

    def _turn(self, channel: str) -> asyncio.Lock:
        """Return the lock of a chat, which lets those who wait in, in the order they came."""
        return self._turns.setdefault(channel, asyncio.Lock())


class RequestTaker(Protocol):
    """What takes in requests; whatever it raises, Meta is to send them again."""

    async def take(self, payload: Mapping[str, Any]) -> None:
        """Take in all of a request."""
        ...


class WhatsAppEndpoint:
    """Takes requests in; anything but 200 lets Meta send them again, for up to seven days."""

    def __init__(self, secret: str, verify_token: str, *, seconds: float = STORE_SECONDS) -> None:
        self._secret = secret
        self._verify_token = verify_token
        self._seconds = seconds
        self._inbound: RequestTaker | None = None

    def open(self, inbound: RequestTaker) -> None:
        """Hand what comes from now on to this; before, nothing is taken."""
        self._inbound = inbound

    def routes(self) -> Sequence[BaseRoute]:
        """Return the one route, at the account's own address."""
        return [Route("/", self.answer, methods=["GET", "POST"])]

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        return await self._receive(request) if request.method == "POST" else self._verify(request)

    def _verify(self, request: Request) -> Response:
        """Tell Meta, when an operator sets the webhook up, that the address is ours."""
        asked = request.query_params
        known = is_same_secret(self._verify_token, asked.get("hub.verify_token", ""))
        if asked.get("hub.mode") != "subscribe" or not known:
            return PlainTextResponse("the verify token is another one", HTTPStatus.FORBIDDEN)
        return PlainTextResponse(asked.get("hub.challenge", ""))

    async def _receive(self, request: Request) -> Response:
        body = await read_body(request)
        if isinstance(body, Response):
            return body
        if not is_signed(self._secret, body, request.headers.get(SIGNATURE, ""), SCHEME):
            return PlainTextResponse("not signed by Meta", HTTPStatus.UNAUTHORIZED)
        payload = parse_object(body)
        if isinstance(payload, Response):
            return payload
        return Response() if await self._taken(payload) else ask_to_resend()

    async def _taken(self, payload: Mapping[str, Any]) -> bool:
        """Tell whether all of a request is kept (docs/invariants.md: durable before ack)."""
        if self._inbound is None:
            return False
        try:
            async with asyncio.timeout(self._seconds):
                await self._inbound.take(payload)
        except TimeoutError:
            log.warning("whatsapp.not_taken", error="TimeoutError", reason="the store is too slow")
        except MaestroError as error:
            log.warning("whatsapp.not_taken", error=type(error).__name__, reason=str(error))
        except Exception:
            # An error of ours costs no message: it is not acknowledged, so Meta sends it again.
            log.exception("whatsapp.not_taken")
        else:
            return True
        return False

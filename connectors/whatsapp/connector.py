"""The WhatsApp connector of one number, and its webhook for messages and statuses."""

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from connectors.account import AccountConnector, MediaDownloads, MessageIntake
from connectors.base import Capabilities, ConnectorContext, Idempotency, LengthUnit, OnAmbiguous
from connectors.failures import PermanentFetch, SendFailure, fetch_failure
from connectors.options import Instance
from connectors.webhooks import WebhookEndpoint, is_same_secret, is_signed
from connectors.whatsapp.api import Fields, GraphClient
from connectors.whatsapp.platform import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions
from connectors.whatsapp.receive import (
    ForeignEvents,
    NumberChange,
    SkippedEvent,
    StatusReport,
    WhatsAppMessage,
    WhatsAppNumber,
    parse_events,
)
from connectors.whatsapp.send import (
    MAX_BYTES,
    MAX_ROWS,
    MAX_TEXT,
    MediaShape,
    StatusWaiter,
    WhatsAppSender,
    receiver_fields,
    render_markup,
)
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

MOST_CHATS = 10_000

log = structlog.get_logger(__name__)

STORE_SECONDS = 8.0
"""Seconds to store a request in the inbox; Meta waits about ten seconds."""
SIGNATURE, SCHEME = "x-hub-signature-256", "sha256"

HOSTS = frozenset({"lookaside.fbsbx.com"})
TRIES = 2
"""The most attempts at a download, because a download may be damaged."""

TYPING_SECONDS = 20.0
"""Seconds between two typing signals; WhatsApp shows one for 25 seconds."""
LOOK_SECONDS = 300.0
"""Seconds between two checks of the token."""


class WhatsAppInbound:
    """The receiver of Meta's requests; after an error Meta has to send the request again."""

    def __init__(self, context: ConnectorContext, number: WhatsAppNumber) -> None:
        self._context = context
        self._number = number
        self.newest: dict[str, str] = {}
        """The id of the newest message of each chat since the start of the connector."""
        self._intake = MessageIntake(context)

    async def accept_events(self, payload: Mapping[str, Any]) -> None:
        """Accept all events of a request; events stored before a failure are duplicates in the repeated request."""
        foreign = 0
        for event in parse_events(payload, self._number):
            match event:
                case WhatsAppMessage():
                    async with self._intake.channel_lock(event.message.address.channel):
                        await self._accept_event(event)
                case StatusReport():
                    await self._context.record_report(event.key, event.report)
                case NumberChange():
                    await self._context.moved(event.channel, event.to)
                case SkippedEvent():
                    log.warning("whatsapp.passed_over", account=self._number.account, reason=event.why)
                case ForeignEvents():
                    foreign += event.count
        if foreign:
            log.info("whatsapp.of_another_number", account=self._number.account, count=foreign)

    async def _accept_event(self, event: WhatsAppMessage) -> None:
        message, press = event.message, event.press
        content = await self._context.pressed(*press) if press is not None else None
        if content is not None:  # A press of another program's button keeps the button's label as its content.
            message = message.model_copy(update={"content": content})
        if await self._intake.accept(message) is None:
            return
        self.newest.pop(message.address.channel, None)
        if len(self.newest) >= MOST_CHATS:
            del self.newest[next(iter(self.newest))]
        self.newest[message.address.channel] = message.edit_of or message.id


class WhatsAppEndpoint(WebhookEndpoint):
    """The endpoint of Meta's requests; Meta repeats an unacknowledged request for up to seven days."""

    methods = ("GET", "POST")

    def __init__(self, secret: str, verify_token: str, *, seconds: float = STORE_SECONDS) -> None:
        super().__init__("Meta", seconds)
        self._secret = secret
        self._verify_token = verify_token

    async def receive_request(self, request: Request) -> Response:
        """Answer one request: a POST brings events, and with a GET Meta verifies the address of a new webhook."""
        if request.method == "POST":
            return await super().receive_request(request)
        parameters = request.query_params
        is_known = is_same_secret(self._verify_token, parameters.get("hub.verify_token", ""))
        if parameters.get("hub.mode") != "subscribe" or not is_known:
            return PlainTextResponse("the verify token is not verifyToken in Maestro's settings", HTTPStatus.FORBIDDEN)
        return PlainTextResponse(parameters.get("hub.challenge", ""))

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell whether Meta signed the request."""
        return is_signed(self._secret, body, headers.get(SIGNATURE, ""), SCHEME)


class WhatsAppConnector(AccountConnector):
    """The connector of one number; it needs a public address for Meta's requests."""

    platform = PLATFORM
    render = staticmethod(render_markup)

    def __init__(self, instance: Instance, context: ConnectorContext, *, look_seconds: float = LOOK_SECONDS) -> None:
        super().__init__(instance, context)
        options = instance.options
        assert isinstance(options, WhatsAppOptions)
        # The lease (lock) is for the number, not for the token: a system user's token may serve several numbers, and
        # each number is connected once.
        self.token_digest = hashlib.sha256(options.phone_number_id.encode()).hexdigest()
        self.capabilities = Capabilities(
            max_length=MAX_TEXT,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.RECONCILE,
            max_file_bytes=MAX_BYTES[MediaShape.DOCUMENT],
            on_ambiguous=OnAmbiguous(options.on_ambiguous),
            max_buttons=MAX_ROWS,
        )
        token = instance.secret(ACCESS_TOKEN)
        self._options = options
        self._graph = GraphClient(token, options.phone_number_id, options.api_version, options.base_url)
        self._endpoint: WhatsAppEndpoint = WhatsAppEndpoint(instance.secret(APP_SECRET), instance.secret(VERIFY_TOKEN))
        self._inbound = WhatsAppInbound(context, WhatsAppNumber(instance.account, options.phone_number_id))
        self._sender = WhatsAppSender(self._graph, context, options)
        self._statuses = StatusWaiter(context, options.status_seconds, lambda: datetime.now(UTC))
        self._media = MediaDownloads("WhatsApp", options, HOSTS, bearer=token)
        self._look_seconds = look_seconds

    async def _receive(self) -> None:
        number = await self.repeat_until_success(self._graph.read_number)
        self._statuses.start_waiting()
        self._endpoint.take = self._inbound.accept_events
        while True:
            await self.report_running(self._describe_number(number))
            await asyncio.sleep(self._look_seconds)
            number = await self.repeat_until_success(self._graph.read_number)

    async def send(self, message: OutgoingMessage) -> Receipt:
        with self.end_on_refusal():
            return await self._sender.send_message(message)

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Wait for a status of a sent message; raises ``Unsettled`` when no status arrives."""
        return await self._statuses.find_message_id(message)

    async def typing(self, address: Address) -> None:
        """Mark the chat's newest message since the start as read and show the typing indicator; nothing without one."""
        newest = self._inbound.newest.get(address.channel)
        if newest is not None:
            await self._graph.post_message(
                {"status": "read", "message_id": newest, "typing_indicator": {"type": "text"}}
            )

    async def acknowledge(self, address: Address, message_id: str) -> None:
        if self._options.ack_reaction:
            reaction = {"message_id": message_id, "emoji": self._options.ack_reaction}
            await self._graph.post_message(
                {**receiver_fields(address.channel), "type": "reaction", "reaction": reaction}
            )

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file by its id, over a link valid for five minutes; raises a ``FetchFailure``."""
        self._media.check_size(attachment.size)
        if not attachment.id.isalnum():
            # The file's id becomes a part of a URL, so its form is checked first.
            raise PermanentFetch("the file's id is not valid on WhatsApp")
        for number in range(TRIES):
            path = folder / str(number)
            try:
                file = await self._graph.read_media(attachment.id)
            except SendFailure as failure:
                raise fetch_failure(failure) from None
            size = str(file.get("file_size") or "")
            self._media.check_size(int(size) if size.isdecimal() else 0)
            await self._media.download_file(str(file.get("url") or ""), path)
            if await asyncio.to_thread(_has_checksum, path, str(file.get("sha256") or "")):
                return path
        raise PermanentFetch("the download is damaged: it never matched WhatsApp's checksum")

    def _describe_number(self, number: Fields) -> str:
        who = f"{number.get('verified_name') or 'a number'} ({number.get('display_phone_number') or 'unnamed'})"
        poor = "; users report or block the number, see Phone numbers in WhatsApp Manager"
        warning = poor if number.get("quality_rating") == "RED" else ""
        return f"{who}, webhook /platforms/{PLATFORM}/{self.account}{warning}"


def _has_checksum(path: Path, expected: str) -> bool:
    """Tell whether a file has the expected checksum; without a checksum the file is accepted."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    return not expected or hmac.compare_digest(actual, expected.lower())

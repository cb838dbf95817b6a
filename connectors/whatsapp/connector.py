"""The WhatsApp connector: one number of the Cloud API, to which Meta posts."""

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.routing import BaseRoute

from connectors.account import AccountConnector
from connectors.base import ConnectorContext
from connectors.capabilities import Capabilities, Idempotency, LengthUnit, Markup, OnAmbiguous, PlatformTransport
from connectors.failures import PermanentFetch, SendFailure, fetch_failure
from connectors.media import MediaDownloads
from connectors.platforms import Instance
from connectors.whatsapp.api import Fields, GraphClient
from connectors.whatsapp.compose import MAX_BYTES, MAX_ROWS, MAX_TEXT, MediaShape, marked
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions
from connectors.whatsapp.receive import WhatsAppNumber
from connectors.whatsapp.send import StatusWaiter, WhatsAppSender
from connectors.whatsapp.webhook import WhatsAppEndpoint, WhatsAppInbound
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

HOSTS = frozenset({"lookaside.fbsbx.com"})
TRIES = 2
"""What arrives may be broken; then it is fetched once more."""

TYPING_SECONDS = 20.0
"""WhatsApp shows it for 25 seconds."""
LOOK_SECONDS = 300.0
"""How often the token is checked."""
FIELDS = "display_phone_number,verified_name,quality_rating"
LOW_QUALITY = "RED"


def connect(instance: Instance, context: ConnectorContext) -> "WhatsAppConnector":
    """Make the connector of a number."""
    if not isinstance(instance.options, WhatsAppOptions):
        raise ConfigurationError(f"whatsapp/{instance.account}: these are no options of WhatsApp")
    return WhatsAppConnector(instance, context, instance.options)


class WhatsAppConnector(AccountConnector):
    """A number; it needs an address that Meta can reach."""

    platform = PLATFORM

    def __init__(
        self,
        instance: Instance,
        context: ConnectorContext,
        options: WhatsAppOptions,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(instance, context)
        # One system user's token may serve several numbers, and each of them is connected once: the lease is of the
        # number, not of the token.
        self.token_digest = hashlib.sha256(options.phone_number_id.encode()).hexdigest()
        self.capabilities = Capabilities(
            max_length=MAX_TEXT,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.RECONCILE,
            markup=Markup.OWN,
            transport=PlatformTransport.WEBHOOK,
            max_file_bytes=MAX_BYTES[MediaShape.DOCUMENT],
            on_ambiguous=OnAmbiguous(options.on_ambiguous),
            max_buttons=MAX_ROWS,
        )
        token = instance.secret(ACCESS_TOKEN)
        self._options = options
        self._graph = GraphClient(token, options.phone_number_id, options.api_version, options.base_url)
        self._endpoint = WhatsAppEndpoint(instance.secret(APP_SECRET), instance.secret(VERIFY_TOKEN))
        self._inbound = WhatsAppInbound(context, WhatsAppNumber(instance.account, options.phone_number_id))
        self._sender = WhatsAppSender(self._graph, context, options)
        self._statuses = StatusWaiter(context, options.status_seconds, lambda: datetime.now(UTC))
        self._media = MediaDownloads("WhatsApp", options, HOSTS, bearer=token)
        self._look_seconds = look_seconds

    async def _receive(self) -> None:
        number = await self.retry(self._introduce)
        self._statuses.expect()
        self._endpoint.take = self._inbound.take
        while True:
            await self.report_running(self._described(number))
            await asyncio.sleep(self._look_seconds)
            number = await self.retry(self._introduce)

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk, or its content as a file, once; raises a ``SendFailure``."""
        with self.ending_if_refused():
            return await self._sender.send(message)

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Wait for a status of a message; raises ``Unsettled`` when none comes."""
        return await self._statuses.find(message)

    async def typing(self, address: Address) -> None:
        """Show below the newest message of a chat that an answer is being written, where one came since the start."""
        newest = self._inbound.newest(address.channel)
        if newest:
            await self._sender.show_typing(newest)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message."""
        if self._options.ack_reaction:
            await self._sender.react(address.channel, message_id, self._options.ack_reaction)

    def render(self, text: str) -> str:
        """Return Markdown as WhatsApp's own marks."""
        return marked(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Get a file by its id, over a link that lives for five minutes; raises a ``FetchFailure``."""
        self._media.check_size(attachment.size)
        if not attachment.id.isalnum():
            # The id becomes a part of a URL, so its form is checked first.
            raise PermanentFetch("this is no id of a file")
        for number in range(TRIES):
            path = folder / str(number)
            file = await self._file(attachment.id)
            await self._media.fetch(str(file.get("url") or ""), path)
            if await asyncio.to_thread(_is_whole, path, file):
                return path
        raise PermanentFetch("the file is another one than WhatsApp's checksum says, again and again")

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Meta posts: ``/platforms/whatsapp/<account>``."""
        return self._endpoint.routes()

    async def _file(self, media_id: str) -> Fields:
        """Ask where a file is now, and what it is."""
        try:
            file = await self._graph.media(media_id)
        except SendFailure as failure:
            raise fetch_failure(failure) from None
        size = str(file.get("file_size") or "")
        self._media.check_size(int(size) if size.isdecimal() else 0)
        return file

    async def _introduce(self) -> Fields:
        """Ask which number this is; asked again later, it shows whether the token still holds."""
        return await self._graph.number(FIELDS)

    def _described(self, number: Fields) -> str:
        who = f"{number.get('verified_name') or 'a number'} ({number.get('display_phone_number') or 'unnamed'})"
        poor = "; people report or block it, see Phone numbers in WhatsApp Manager"
        warning = poor if number.get("quality_rating") == LOW_QUALITY else ""
        return f"{who}, webhook /platforms/{PLATFORM}/{self.account}{warning}"


def _is_whole(path: Path, told: Fields) -> bool:
    """Tell whether a file has its checksum; one that WhatsApp names none for is taken as it is."""
    expected = str(told.get("sha256") or "")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return not expected or hmac.compare_digest(found, expected.lower())

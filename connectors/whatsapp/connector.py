"""The WhatsApp connector: one number of the Cloud API, to which Meta posts."""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog
from pydantic import SecretStr
from starlette.routing import BaseRoute

from connectors.base import ConnectorContext, ConnectorState
from connectors.capabilities import Capabilities, Idempotency, LengthUnit, Markup, OnAmbiguous, Transport
from connectors.outcomes import AccountRefused, NotDispatched, PermanentSend, Scope
from connectors.pace import pauses
from connectors.platforms import Instance
from connectors.whatsapp.api import Fields, Graph
from connectors.whatsapp.compose import MAX_BYTES, MAX_ROWS, MAX_TEXT, Shape
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions
from connectors.whatsapp.errors import GraphTrouble, refused_account
from connectors.whatsapp.inbound import Inbound
from connectors.whatsapp.media import Media
from connectors.whatsapp.receive import Us
from connectors.whatsapp.render import marked
from connectors.whatsapp.send import Sender
from connectors.whatsapp.settling import Settling
from connectors.whatsapp.webhook import Webhook
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

TYPING_SECONDS = 20.0
"""WhatsApp shows it for 25 seconds."""
LOOK_SECONDS = 300.0
"""How often we look whether the token still holds."""
FIELDS = "display_phone_number,verified_name,quality_rating"
LOW_QUALITY = "RED"

log = structlog.get_logger(__name__)


def connect(instance: Instance, context: ConnectorContext) -> "WhatsAppConnector":
    """Make the connector of a number."""
    if not isinstance(instance.options, WhatsAppOptions):
        raise ConfigurationError(f"whatsapp/{instance.account}: these are no options of WhatsApp")
    return WhatsAppConnector(instance, context, instance.options)


class WhatsAppConnector:
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
        self.account = instance.account
        # One system user's token may serve several numbers, and each of them is connected once: the lease is of the
        # number, not of the token.
        self.token_digest = hashlib.sha256(options.phone_number_id.encode()).hexdigest()
        self.capabilities = Capabilities(
            max_length=MAX_TEXT,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.RECONCILE,
            markup=Markup.OWN,
            transport=Transport.WEBHOOK,
            max_file_bytes=MAX_BYTES[Shape.DOCUMENT],
            on_ambiguous=OnAmbiguous(options.on_ambiguous),
            max_buttons=MAX_ROWS,
        )
        token = instance.secret(ACCESS_TOKEN)
        self._options = options
        self._context = context
        self._graph = Graph(token, options.phone_number_id, options.api_version, options.base_url)
        self._webhook = Webhook(instance.secret(APP_SECRET), instance.secret(VERIFY_TOKEN))
        self._inbound = Inbound(context, Us(instance.account, options.phone_number_id))
        self._sender = Sender(self._graph, context, options)
        self._settling = Settling(context, options.status_seconds, lambda: datetime.now(UTC))
        self._media = Media(self._graph, SecretStr(token), options)
        self._look_seconds = look_seconds
        self._refusal: asyncio.Future[AccountRefused] | None = None

    async def run(self) -> None:
        """Take in what Meta posts until cancelled; raises ``AccountRefused`` when Meta refuses us, now or later."""
        self._refusal = asyncio.get_running_loop().create_future()
        try:
            await self._context.report(ConnectorState.STARTING)
            number = await self._introduced()
            self._settling.listen()
            self._webhook.open(self._inbound)
            while True:
                await self._context.report(ConnectorState.RUNNING, self._described(number))
                await self._pause(self._look_seconds)
                number = await self._introduced()
        except AccountRefused as refused:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk, or its content as a file, once; raises a ``SendFailure``."""
        try:
            return await self._sender.send(message)
        except PermanentSend as failure:
            if failure.scope is Scope.ACCOUNT:
                self._refuse(AccountRefused(str(failure)))
            raise

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Wait for a status of a message; raises ``Unsettled`` when none comes."""
        return await self._settling.find(message)

    async def typing(self, address: Address) -> None:
        """Show below the newest message of a chat that an answer is being written, where one came since we began."""
        newest = self._inbound.newest(address.channel)
        if newest:
            try:
                await self._sender.show_typing(newest)
            except GraphTrouble as trouble:
                raise NotDispatched(str(trouble)) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message."""
        if self._options.ack_reaction:
            try:
                await self._sender.react(address.channel, message_id, self._options.ack_reaction)
            except GraphTrouble as trouble:
                raise NotDispatched(str(trouble)) from None

    def render(self, text: str) -> str:
        """Return Markdown as WhatsApp's own marks."""
        return marked(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Get a file by its id; raises a ``FetchFailure``."""
        return await self._media.fetch(attachment, folder)

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Meta posts: ``/platforms/whatsapp/<account>``."""
        return self._webhook.routes()

    async def _introduced(self) -> Fields:
        """Ask what our number is until Meta says so; asked again later, it shows whether the token still holds."""
        for pause in pauses():
            await self._pause(pause)
            try:
                return await self._graph.number(FIELDS)
            except GraphTrouble as trouble:
                refused = refused_account(trouble)
                if refused is not None:
                    raise refused from None
                log.warning("whatsapp.unreachable", account=self.account, reason=str(trouble))
                await self._context.report(ConnectorState.DEGRADED, str(trouble))
        raise AssertionError("the pauses never end")

    def _described(self, number: Fields) -> str:
        who = f"{number.get('verified_name') or 'a number'} ({number.get('display_phone_number') or 'unnamed'})"
        poor = "; people report or block it, see Phone numbers in WhatsApp Manager"
        warning = poor if number.get("quality_rating") == LOW_QUALITY else ""
        return f"{who}, webhook /platforms/{PLATFORM}/{self.account}{warning}"

    async def _pause(self, seconds: float) -> None:
        """Wait; raises ``AccountRefused`` as soon as a send shows that Meta does not let us in any more."""
        assert self._refusal is not None
        await asyncio.wait({self._refusal}, timeout=seconds)
        if self._refusal.done():
            raise self._refusal.result()

    def _refuse(self, refused: AccountRefused) -> None:
        """End the run: only an operator can help."""
        if self._refusal is not None and not self._refusal.done():
            self._refusal.set_result(refused)

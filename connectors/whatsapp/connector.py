"""The WhatsApp connector: one number of the Cloud API, to which Meta posts."""

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import structlog
from pydantic import SecretStr
from starlette.routing import BaseRoute

from connectors.backoff import backoff_seconds
from connectors.base import ConnectorContext, ConnectorState
from connectors.capabilities import Capabilities, Idempotency, LengthUnit, Markup, OnAmbiguous, PlatformTransport
from connectors.failures import (
    AccountRefused,
    FailureScope,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
)
from connectors.platforms import Instance
from connectors.whatsapp.api import Fields, GraphClient, WhatsAppTrouble, fetch_failure, refused_account
from connectors.whatsapp.compose import MAX_BYTES, MAX_ROWS, MAX_TEXT, MediaShape, marked
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions
from connectors.whatsapp.receive import WhatsAppNumber
from connectors.whatsapp.send import StatusWaiter, WhatsAppSender
from connectors.whatsapp.webhook import WhatsAppEndpoint, WhatsAppInbound
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt
from maestro.fetch import FetchAccess, FetchFailed, FetchLimits, FetchRefused, download

HOSTS = frozenset({"lookaside.fbsbx.com"})
HTTPS = frozenset({443})
SECONDS = 120.0
TRIES = 2
"""What arrives may be broken; then it is fetched once more."""

TYPING_SECONDS = 20.0
"""WhatsApp shows it for 25 seconds."""
LOOK_SECONDS = 300.0
"""How often we look whether the token still holds."""
FIELDS = "display_phone_number,verified_name,quality_rating"
LOW_QUALITY = "RED"

log = structlog.get_logger(__name__)


class WhatsAppMedia:
    """WhatsApp's files; a link lives for five minutes, and is worth nothing without the token."""

    def __init__(self, graph: GraphClient, token: SecretStr, options: WhatsAppOptions) -> None:
        self._graph = graph
        self._most = options.max_media_bytes
        own = frozenset(host.lower() for host in options.media_hosts)
        self._access = FetchAccess(
            hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS, bearer=token
        )

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file into the folder and return its path; raises a ``FetchFailure``."""
        self._check_size(attachment.size)
        if not attachment.id.isalnum():
            raise PermanentFetch("this is no id of a file")  # it becomes a part of an address
        for number in range(TRIES):
            path = folder / str(number)
            told = await self._link(attachment.id)
            status = await self._download(str(told.get("url") or ""), path)
            if status != HTTPStatus.OK:
                raise _refused(status)
            if await asyncio.to_thread(_is_whole, path, told):
                return path
        raise PermanentFetch("the file is another one than WhatsApp's checksum says, again and again")

    async def _link(self, media_id: str) -> Fields:
        """Ask where a file is now, and what it is."""
        try:
            told = await self._graph.media(media_id)
        except WhatsAppTrouble as trouble:
            raise fetch_failure(trouble) from None
        size = str(told.get("file_size") or "")
        self._check_size(int(size) if size.isdecimal() else 0)
        return told

    async def _download(self, url: str, path: Path) -> int:
        try:
            return (await download(url, path, FetchLimits(self._most, SECONDS), self._access)).status
        except FetchRefused as error:
            raise PermanentFetch(f"the file may not be fetched: {error}") from None
        except FetchFailed as error:
            raise RetryableFetch(str(error)) from None

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise PermanentFetch(f"the file has {size:,} bytes, and at most {self._most:,} are fetched (maxMediaBytes)")


def _refused(status: int) -> PermanentFetch | RetryableFetch:
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RetryableFetch(f"WhatsApp's file server answered {status}")
    return PermanentFetch(f"WhatsApp's file server answered {status}, to a fresh link")


def _is_whole(path: Path, told: Fields) -> bool:
    """Tell whether a file has its checksum; one that WhatsApp names none for is taken as it is."""
    expected = str(told.get("sha256") or "")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return not expected or hmac.compare_digest(found, expected.lower())


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
            transport=PlatformTransport.WEBHOOK,
            max_file_bytes=MAX_BYTES[MediaShape.DOCUMENT],
            on_ambiguous=OnAmbiguous(options.on_ambiguous),
            max_buttons=MAX_ROWS,
        )
        token = instance.secret(ACCESS_TOKEN)
        self._options = options
        self._context = context
        self._graph = GraphClient(token, options.phone_number_id, options.api_version, options.base_url)
        self._webhook = WhatsAppEndpoint(instance.secret(APP_SECRET), instance.secret(VERIFY_TOKEN))
        self._inbound = WhatsAppInbound(context, WhatsAppNumber(instance.account, options.phone_number_id))
        self._sender = WhatsAppSender(self._graph, context, options)
        self._settling = StatusWaiter(context, options.status_seconds, lambda: datetime.now(UTC))
        self._media = WhatsAppMedia(self._graph, SecretStr(token), options)
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
            if failure.scope is FailureScope.ACCOUNT:
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
            except WhatsAppTrouble as trouble:
                raise NotDispatched(str(trouble)) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message."""
        if self._options.ack_reaction:
            try:
                await self._sender.react(address.channel, message_id, self._options.ack_reaction)
            except WhatsAppTrouble as trouble:
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
        for pause in backoff_seconds():
            await self._pause(pause)
            try:
                return await self._graph.number(FIELDS)
            except WhatsAppTrouble as trouble:
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

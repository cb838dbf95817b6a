"""The Discord connector: a gateway connection, and sends over REST."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from time import monotonic

import discord
import structlog

from connectors.base import (
    Capabilities,
    ConnectorContext,
    ConnectorState,
    Idempotency,
    LengthUnit,
    Markup,
    NotDispatched,
    PermanentFetch,
    RetryableFetch,
)
from connectors.discord import interactions, send
from connectors.discord.config import PLATFORM, TOKEN, DiscordOptions
from connectors.discord.errors import TROUBLE, fetch_failure, refusal, send_failure
from connectors.discord.gateway import DiscordAccount, DiscordSession, point_to
from connectors.discord.receive import files_of
from connectors.discord.send import render
from connectors.platforms import Instance
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt
from maestro.fetch import FetchAccess, FetchFailed, FetchLimits, FetchRefused, download

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
HTTPS = frozenset({443})
SECONDS = 60.0
TRIES = 2
"""A link may expire between its being given and used; then another is asked for, once."""
EXPIRED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)

CAPABILITIES = Capabilities(
    max_length=2000,
    unit=LengthUnit.UTF16,  # Discord does not say how it counts; this is the larger count
    typing_interval=8.0,
    idempotency=Idempotency.NATIVE,
    markup=Markup.OWN,
    native_window=timedelta(minutes=2),
    max_file_bytes=10 * 1000**2,
    catches_up=True,
    max_buttons=interactions.MAX_BUTTONS,
)
PAUSES: Sequence[float] = (1, 2, 4, 8, 15, 30, 60, 120)
"""Seconds before the next connection. Discord resets the token of a bot that logs in 1000 times a day."""
STEADY_SECONDS = 600.0
"""A connection that lasted as long was a good one: the pauses begin anew."""

log = structlog.get_logger(__name__)


async def fetch_file(client: discord.Client, options: DiscordOptions, attachment: Attachment, folder: Path) -> Path:
    """Download a file; raises a ``FetchFailure``. What is too large by Discord's word is not asked for."""
    limits = FetchLimits(max_bytes=options.max_media_bytes, seconds=SECONDS)
    if attachment.size > limits.max_bytes:
        raise PermanentFetch(
            f"the file has {attachment.size:,} bytes, and at most {limits.max_bytes:,} are fetched (maxMediaBytes)"
        )
    status = 0
    for number in range(TRIES):
        status = await _download(await _link(client, attachment), folder / str(number), limits, _access(options))
        if status == HTTPStatus.OK:
            return folder / str(number)
        if status not in EXPIRED:
            raise RetryableFetch(f"Discord's file server answered {status}")
    raise PermanentFetch(f"Discord's file server answered {status}, to a fresh link too")


async def _link(client: discord.Client, attachment: Attachment) -> str:
    """Ask for the message of a file, because the link in it is new each time."""
    channel, message, number = (int(part) for part in attachment.id.split("/"))
    try:
        found = await client.get_partial_messageable(channel).fetch_message(message)
    except TROUBLE as error:
        raise fetch_failure(error) from None
    for file in files_of(found):
        if file.id == number:
            return file.url
    raise PermanentFetch("the file is no longer in its message")


async def _download(url: str, path: Path, limits: FetchLimits, access: FetchAccess) -> int:
    try:
        return (await download(url, path, limits, access)).status
    except FetchRefused as refused:
        raise PermanentFetch(f"the file may not be fetched: {refused}") from None
    except FetchFailed as failed:
        raise RetryableFetch(str(failed)) from None


def _access(options: DiscordOptions) -> FetchAccess:
    own = frozenset(options.media_hosts)
    return FetchAccess(hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS)


class DiscordConnector:
    """One bot on Discord."""

    platform = PLATFORM

    def __init__(self, instance: Instance, context: ConnectorContext) -> None:
        assert isinstance(instance.options, DiscordOptions)
        self.account = instance.account
        self.token_digest = instance.token_digest
        self._token = instance.secret(TOKEN)
        self._options = instance.options
        growing = instance.options.streaming_seconds if instance.options.streaming else 0
        self.capabilities = replace(CAPABILITIES, edit_interval=growing)
        self._context = context
        self._unreactive: set[str] = set()
        self._station = DiscordAccount(instance.account, instance.options, context)
        self._session: DiscordSession | None = None

    async def run(self) -> None:
        """Hold a connection, and make another when it ends; raises ``AccountRefused`` for a wrong token or intents."""
        await self._context.report(ConnectorState.STARTING)
        point_to(self._options)
        failures = 0
        try:
            while True:
                begun = monotonic()
                failure = await self._hold()
                failures = 0 if monotonic() - begun > STEADY_SECONDS else failures
                await self._tell(failure)
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1
        except asyncio.CancelledError:
            await self._context.report(ConnectorState.STOPPED)
            raise

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand a chunk over under its key; raises a ``SendFailure``."""
        session = self._present()
        try:
            return await session.replies.reply(message) or await send.post(session, self._quoting(message))
        except TROUBLE as error:
            raise send_failure(error) from None

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for a chunk whose receipt was lost so long ago that Discord forgot its key."""
        if message.tried_at is None:
            return None
        try:
            return await send.find(self._present(), self._quoting(message), message.tried_at)
        except TROUBLE as error:
            raise send_failure(error) from None

    async def edit(self, message: OutgoingMessage) -> None:
        """Write a message of ours anew; the library itself waits for limits, and repeats it while Discord has trouble.

        Raises a ``SendFailure``.
        """
        session = self._present()
        try:
            await send.edit(session, message)
        except TROUBLE as error:
            raise send_failure(error) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message; a command and a press are none.

        A channel that allows none is asked once: Discord shuts out who is refused too often.
        """
        emoji = self._options.ack_reaction
        if not emoji or not message_id.isdecimal() or address.channel in self._unreactive:
            return
        try:
            await send.react(self._present(), address, message_id, emoji)
        except discord.Forbidden:
            self._unreactive.add(address.channel)
            log.warning("discord.reaction_forbidden", account=self.account, channel=address.channel)
        except TROUBLE as error:
            raise send_failure(error) from None

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written, for ten seconds or until the next message."""
        session = self._present()
        try:
            await send.channel_of(session, address).typing()
        except TROUBLE as error:
            raise send_failure(error) from None

    def render(self, text: str) -> str:
        """Return Markdown as Discord shows it best."""
        return render(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file of a message into the folder; raises a ``FetchFailure``."""
        if self._session is None:
            raise RetryableFetch("there is no connection to Discord")
        return await fetch_file(self._session, self._options, attachment, folder)

    async def catch_up(self) -> None:
        """Read what every known channel has after its cursor; each new connection does so by itself."""
        await self._present().catch_up()

    def _quoting(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return a chunk as it quotes what it answers, or does not."""
        return message if self._options.quote_replies == "always" else message.model_copy(update={"reply_to": ""})

    def _present(self) -> DiscordSession:
        """Return the connection; raises ``NotDispatched`` while there is none."""
        if self._session is None or self._session.is_closed() or self._session.user is None:
            raise NotDispatched("there is no connection to Discord")
        return self._session

    async def _hold(self) -> Exception | None:
        """Hold one connection and return why it ended, None when Discord closed it in good order."""
        self._session = DiscordSession(self._station)
        try:
            await self._session.hold(self._token)
        except TROUBLE as error:
            return error
        finally:
            self._session = None
        return None

    async def _tell(self, failure: Exception | None) -> None:
        """Tell operators why the connection ended; raises ``AccountRefused`` when only they can help."""
        refused = refusal(failure) if failure is not None else None
        if refused is not None:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise refused
        what = describe(failure) if failure is not None else "Discord ended the connection"
        log.warning("discord.disconnected", account=self.account, why=what)
        await self._context.report(ConnectorState.DEGRADED, f"{what}; another connection is made in a moment")


def describe(failure: Exception) -> str:
    """Return what happened to a connection without the text of the error, which may hold an address with a token."""
    if isinstance(failure, discord.HTTPException):
        return f"Discord answered {failure.status}"
    if isinstance(failure, discord.ConnectionClosed):
        return f"Discord closed the connection with code {failure.code}"
    return f"Discord cannot be reached ({type(failure).__name__})"

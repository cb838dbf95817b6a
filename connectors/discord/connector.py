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

from connectors.account import AccountConnector
from connectors.base import Capabilities, ConnectorContext, Idempotency, LengthUnit, Markup
from connectors.discord import interactions, send
from connectors.discord.config import PLATFORM, TOKEN, DiscordOptions
from connectors.discord.errors import TROUBLE, discord_errors, refusal, send_failure
from connectors.discord.gateway import DiscordSession, point_to
from connectors.discord.receive import files_of
from connectors.failures import NotDispatched, PermanentFetch, RetryableFetch, fetch_failure
from connectors.media import MediaDownloads
from connectors.platforms import Instance
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TRIES = 2
"""A link may expire between its being given and used; then another is asked for, once."""
EXPIRED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)

CAPABILITIES = Capabilities(
    max_length=2000,
    unit=LengthUnit.UTF16,  # Discord does not document how it counts; UTF-16 gives the larger number
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


class DiscordConnector(AccountConnector):
    """One bot on Discord."""

    platform = PLATFORM

    def __init__(self, instance: Instance, context: ConnectorContext) -> None:
        assert isinstance(instance.options, DiscordOptions)
        super().__init__(instance, context)
        self._token = instance.secret(TOKEN)
        self._options = instance.options
        self.capabilities = replace(CAPABILITIES, edit_interval=instance.options.edit_interval)
        self._media = MediaDownloads("Discord", instance.options, HOSTS, seconds=60)
        self._no_reaction: set[str] = set()
        self._session: DiscordSession | None = None

    async def _receive(self) -> None:
        """Hold a connection, and make another when it ends; raises ``AccountRefused`` for a wrong token or intents."""
        point_to(self._options)
        failures = 0
        while True:
            begun = monotonic()
            failure = await self._hold()
            failures = 0 if monotonic() - begun > STEADY_SECONDS else failures
            refused = refusal(failure) if failure is not None else None
            if refused is not None:
                raise refused
            why = describe(failure) if failure is not None else "Discord ended the connection"
            await self.report_broken(f"{why}; another connection is made in a moment")
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand a chunk over under its key; raises a ``SendFailure``."""
        session = self._connected()
        with discord_errors():
            return await session.replies.reply(message) or await send.post(session, self._quoting(message))

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for a chunk that has no receipt and is so old that Discord forgot its key."""
        if message.tried_at is None:
            return None
        with discord_errors():
            return await send.find(self._connected(), self._quoting(message), message.tried_at)

    async def edit(self, message: OutgoingMessage) -> None:
        """Change the text of a sent message; raises a ``SendFailure``.

        The library itself waits for rate limits, and repeats the call while Discord has trouble.
        """
        session = self._connected()
        with discord_errors():
            await send.edit(session, message)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction to a message; commands and button presses get none.

        A channel that forbids reactions is tried once: Discord bans an account that is refused too often.
        """
        emoji = self._options.ack_reaction
        if not emoji or not message_id.isdecimal() or address.channel in self._no_reaction:
            return
        with discord_errors():
            try:
                await send.react(self._connected(), address, message_id, emoji)
            except discord.Forbidden:
                self._no_reaction.add(address.channel)
                log.warning("discord.reaction_forbidden", account=self.account, channel=address.channel)

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written, for ten seconds or until the next message."""
        session = self._connected()
        with discord_errors():
            await send.channel_of(session, address).typing()

    def render(self, text: str) -> str:
        """Return Markdown as Discord shows it best."""
        return send.render(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file of a message into the folder; raises a ``FetchFailure``."""
        if self._session is None:
            raise RetryableFetch("there is no connection to Discord")
        self._media.check_size(attachment.size)
        status = 0
        for number in range(TRIES):
            path = folder / str(number)
            status = (await self._media.ask(await _link(self._session, attachment), path)).status
            if status == HTTPStatus.OK:
                return path
            if status not in EXPIRED:
                raise RetryableFetch(f"Discord's file server answered {status}")
        raise PermanentFetch(f"Discord's file server answered {status}, to a fresh link too")

    async def catch_up(self) -> None:
        """Read what every known channel has after its cursor; each new connection does so by itself."""
        await self._connected().catch_up()

    def _quoting(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return a chunk as it quotes what it answers, or does not."""
        return message if self._options.quote_replies == "always" else message.model_copy(update={"reply_to": ""})

    def _connected(self) -> DiscordSession:
        """Return the connection; raises ``NotDispatched`` while there is none."""
        if self._session is None or self._session.is_closed() or self._session.user is None:
            raise NotDispatched("there is no connection to Discord")
        return self._session

    async def _hold(self) -> Exception | None:
        """Hold one connection and return why it ended, None when Discord closed it normally."""
        self._session = DiscordSession(self, self._options, self._context)
        try:
            await self._session.hold(self._token)
        except TROUBLE as error:
            return error
        finally:
            self._session = None
        return None


async def _link(client: discord.Client, attachment: Attachment) -> str:
    """Request the message of a file again, because each request returns a fresh link."""
    channel, message, number = (int(part) for part in attachment.id.split("/"))
    try:
        found = await client.get_partial_messageable(channel).fetch_message(message)
    except TROUBLE as error:
        raise fetch_failure(send_failure(error)) from None
    for file in files_of(found):
        if file.id == number:
            return file.url
    raise PermanentFetch("the file is no longer in its message")


def describe(failure: Exception) -> str:
    """Return what happened to a connection without the text of the error, which may hold an address with a token."""
    if isinstance(failure, discord.HTTPException):
        return f"Discord answered {failure.status}"
    if isinstance(failure, discord.ConnectionClosed):
        return f"Discord closed the connection with code {failure.code}"
    return f"Discord cannot be reached ({type(failure).__name__})"

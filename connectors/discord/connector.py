"""The Discord connector: receive over the gateway, send over REST."""

import asyncio
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any

import discord
import structlog

from connectors.account import AccountConnector
from connectors.base import (
    AmbiguousSend,
    Capabilities,
    ConnectorContext,
    FailureScope,
    Idempotency,
    LengthUnit,
    Markup,
    PermanentSend,
)
from connectors.discord import interactions
from connectors.discord.config import PLATFORM, TOKEN, DiscordOptions
from connectors.discord.errors import TROUBLE, discord_errors, refusal, send_failure
from connectors.discord.gateway import DiscordSession, point_to
from connectors.discord.interactions import button_view
from connectors.discord.receive import files_of, target
from connectors.failures import NotDispatched, PermanentFetch, RetryableFetch, fetch_failure
from connectors.markdown import blocks
from connectors.media import MediaDownloads
from connectors.platforms import Instance
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

DEEP_HEADING = re.compile(r"[ \t]{0,3}#{4,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\s]+\))")

SKEW = timedelta(seconds=30)
"""How far Discord's clock and the local one may be apart."""
LOOKED_AT = 500
"""Messages of a channel among which a sent one is looked for."""
_CHANGED = re.compile(r"[^A-Za-z0-9_.-]")
"""What Discord leaves out of a file's name; it writes an underscore for a blank."""

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


def render(text: str) -> str:
    """Return Markdown for Discord: tables become code, deep headings bold, images links; code stays as it is."""
    return "\n".join(line for block in blocks(text.split("\n"), _line) for line in block)


def _line(line: str) -> str:
    heading = DEEP_HEADING.match(line)
    return IMAGE.sub(r"\1", f"**{heading.group(1)}**" if heading else line)


def channel_of(client: discord.Client, address: Address) -> discord.PartialMessageable:
    """Return the channel without asking for it; raises ``PermanentSend`` when it can be none of Discord's."""
    number = target(address)
    if number is None:
        raise PermanentSend("this is not the id of a channel on Discord", FailureScope.CHANNEL)
    return client.get_partial_messageable(number)


async def post(client: discord.Client, message: OutgoingMessage) -> Receipt:
    """Send a chunk: a repeat with the same key gives the message that is there already.

    Nobody is pinged and no link is previewed: a preview would tell an address what a model was led to write into it.
    """
    channel = channel_of(client, message.address)
    how: dict[str, Any] = {"nonce": message.key or None, "reference": reference(message, channel.id)}
    if message.filename:
        how["file"] = discord.File(io.BytesIO(await _bytes(message)), filename=message.filename)
    if text := _words(message):
        how["content"] = text
    if (buttons := button_view(message)) is not None:
        how["view"] = buttons
    sent = await channel.send(allowed_mentions=discord.AllowedMentions.none(), suppress_embeds=True, **how)
    return Receipt(platform_message_id=str(sent.id))


async def edit(client: discord.Client, message: OutgoingMessage) -> None:
    """Edit a sent message; what it quotes, and that no link is previewed, stays as it was."""
    channel = channel_of(client, message.address)
    how: dict[str, Any] = {"view": buttons} if (buttons := button_view(message)) is not None else {}
    await channel.get_partial_message(_number(message.edits)).edit(
        content=render(message.content), allowed_mentions=discord.AllowedMentions.none(), **how
    )


async def react(client: discord.Client, address: Address, message_id: str, emoji: str) -> None:
    """Put a reaction to a message; Discord takes one that is there already as put."""
    shown = discord.PartialEmoji.from_str(emoji)
    await channel_of(client, address).get_partial_message(_number(message_id)).add_reaction(shown)


async def find(client: discord.Client, message: OutgoingMessage, since: datetime) -> Receipt | None:
    """Look for a chunk among the bot's messages since then: by its key, which not every answer holds, or by content.

    Raises ``AmbiguousSend`` where so much was said meanwhile that not all of it was looked at.
    """
    channel, looked_at = channel_of(client, message.address), 0
    me = client.user.id if client.user else 0
    async for found in channel.history(after=since - SKEW, oldest_first=True, limit=LOOKED_AT):
        if found.author.id == me and _is_it(found, message):
            return Receipt(platform_message_id=str(found.id))
        looked_at += 1
    if looked_at == LOOKED_AT:
        raise AmbiguousSend(f"it is not among the first {LOOKED_AT} messages since it was sent")
    return None


def reference(message: OutgoingMessage, channel: int) -> discord.MessageReference | None:
    """Return what a chunk replies to; one that is gone costs no answer, and a slash command is no message."""
    answered = message.reply_to.partition(":")[0]
    if not answered.isdecimal():
        return None
    return discord.MessageReference(message_id=int(answered), channel_id=channel, fail_if_not_exists=False)


def _number(message_id: str) -> int:
    """Read the id of a message; raises ``PermanentSend`` for what is none."""
    if not (message_id.isascii() and message_id.isdecimal()):
        raise PermanentSend("this is not the id of a message on Discord", FailureScope.MESSAGE)
    return int(message_id)


def _is_it(found: discord.Message, message: OutgoingMessage) -> bool:
    if found.nonce is not None:
        return str(found.nonce) == message.key
    if message.filename:
        return any(_plain(file.filename) == _plain(message.filename) for file in found.attachments)
    asked = reference(message, found.channel.id)
    to_another = asked is not None and found.reference is not None and found.reference.message_id != asked.message_id
    return not to_another and found.content.strip() == render(message.content).strip()


def _plain(name: str) -> str:
    """Return a file's name as Discord keeps it."""
    return _CHANGED.sub("", name.replace(" ", "_"))


def _words(message: OutgoingMessage) -> str:
    """Return what the message itself says: what is said below a file, nothing where the content is the file."""
    return "" if message.filename and message.path is None else render(message.content)


async def _bytes(message: OutgoingMessage) -> bytes:
    if message.path is None:
        return message.content.encode()
    return await asyncio.to_thread(message.path.read_bytes)


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
            return await session.replies.reply(message) or await post(session, self._quoting(message))

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for a chunk that has no receipt and is so old that Discord forgot its key."""
        if message.tried_at is None:
            return None
        with discord_errors():
            return await find(self._connected(), self._quoting(message), message.tried_at)

    async def edit(self, message: OutgoingMessage) -> None:
        """Change the text of a sent message; raises a ``SendFailure``.

        The library itself waits for rate limits, and repeats the call while Discord has trouble.
        """
        session = self._connected()
        with discord_errors():
            await edit(session, message)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction to a message; commands and button presses get none.

        A channel that forbids reactions is tried once: Discord bans an account that is refused too often.
        """
        emoji = self._options.ack_reaction
        if not emoji or not message_id.isdecimal() or address.channel in self._no_reaction:
            return
        with discord_errors():
            try:
                await react(self._connected(), address, message_id, emoji)
            except discord.Forbidden:
                self._no_reaction.add(address.channel)
                log.warning("discord.reaction_forbidden", account=self.account, channel=address.channel)

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written, for ten seconds or until the next message."""
        session = self._connected()
        with discord_errors():
            await channel_of(session, address).typing()

    def render(self, text: str) -> str:
        """Return Markdown as Discord shows it best."""
        return render(text)

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

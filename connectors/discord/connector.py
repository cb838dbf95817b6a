"""The Discord connector, which receives over the gateway and sends over REST."""

import asyncio
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any

import discord
import structlog

from connectors.account import AccountConnector, MediaDownloads, read_content
from connectors.base import Capabilities, ConnectorContext, Idempotency, LengthUnit
from connectors.discord import receive
from connectors.discord.errors import TROUBLE, discord_errors, refusal_error, send_failure
from connectors.discord.gateway import DiscordSession, set_endpoints
from connectors.discord.platform import PLATFORM, TOKEN, DiscordOptions
from connectors.discord.receive import button_view, message_files
from connectors.failures import (
    AmbiguousSend,
    FailureScope,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    fetch_failure,
)
from connectors.markdown import render_blocks
from connectors.options import Instance
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

DEEP_HEADING = re.compile(r"[ \t]{0,3}#{4,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\s]+\))")

SKEW = timedelta(seconds=30)
"""The greatest expected difference between Discord's clock and the local clock."""
MAX_SEARCHED = 500
"""The most messages of a channel that are read in the search for a sent message."""

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TRIES = 2
"""The most attempts at a download: after an expired link, a fresh link is requested once."""
EXPIRED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)

CAPABILITIES = Capabilities(
    max_length=2000,
    unit=LengthUnit.UTF16,  # Discord does not document its unit; UTF-16 units give the larger number
    typing_interval=8.0,
    idempotency=Idempotency.NATIVE,
    native_window=timedelta(minutes=2),
    max_file_bytes=10 * 1000**2,
    max_buttons=receive.MAX_BUTTONS,
)
PAUSES: Sequence[float] = (1, 2, 4, 8, 15, 30, 60, 120)
"""Seconds before each reconnection: Discord resets the token of a bot that logs in 1000 times a day."""
STEADY_SECONDS = 600.0
"""After a connection that lasted this long, the pauses start again from the first."""

log = structlog.get_logger(__name__)


def render(text: str) -> str:
    """Return Markdown for Discord: tables become code, deep headings bold, and images links; code stays unchanged."""
    return "\n".join(line for block in render_blocks(text.split("\n"), _render_line) for line in block)


def _render_line(line: str) -> str:
    heading = DEEP_HEADING.match(line)
    return IMAGE.sub(r"\1", f"**{heading.group(1)}**" if heading else line)


def find_channel(client: discord.Client, address: Address) -> discord.PartialMessageable:
    """Return a channel without a request to Discord; raises ``PermanentSend`` for an invalid id."""
    number = address.thread or address.channel
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise PermanentSend("the channel id is not a valid Discord id", FailureScope.CHANNEL)
    return client.get_partial_messageable(int(number))


def _message_number(message_id: str) -> int:
    """Return a message id as a number; raises ``PermanentSend`` for an id that is no number."""
    if not (message_id.isascii() and message_id.isdecimal()):
        raise PermanentSend("the message id is not a valid Discord id", FailureScope.MESSAGE)
    return int(message_id)


def stored_file_name(name: str) -> str:
    """Return the name under which Discord stores a file: underscores for spaces, and most other marks dropped."""
    return re.sub(r"[^A-Za-z0-9_.-]", "", name.replace(" ", "_"))


class DiscordConnector(AccountConnector):
    """The connector of one Discord bot."""

    platform = PLATFORM
    render = staticmethod(render)

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
        """Reconnect whenever the connection ends; raises ``AccountRefused`` for a wrong token or missing intents."""
        set_endpoints(self._options)
        failures = 0
        while True:
            started, failure = monotonic(), None
            self._session = DiscordSession(self, self._options, self._context)
            try:
                await self._session.run_until_closed(self._token)
            except TROUBLE as error:
                failure = error
            finally:
                self._session = None
            failures = 0 if monotonic() - started > STEADY_SECONDS else failures
            refused = refusal_error(failure) if failure is not None else None
            if refused is not None:
                raise refused
            why = describe_error(failure) if failure is not None else "Discord ended the connection"
            await self.report_broken(f"{why}; Maestro reconnects in a moment")
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk under its key; a repeated key returns the earlier message. Raises a ``SendFailure``."""
        session = self._require_session()
        with discord_errors():
            return await session.replies.send_reply(message) or await self._post_message(session, message)

    async def _post_message(self, session: DiscordSession, message: OutgoingMessage) -> Receipt:
        channel = find_channel(session, message.address)
        options: dict[str, Any] = {
            "nonce": message.key or None,
            "reference": self._reply_reference(message, channel.id),
        }
        if message.filename:
            options["file"] = discord.File(io.BytesIO(await read_content(message)), filename=message.filename)
        # If the content is the file itself, the message has no text.
        if text := "" if message.filename and message.path is None else render(message.content):
            options["content"] = text
        if (buttons := button_view(message)) is not None:
            options["view"] = buttons
        # No link previews: Discord would request an address that a prompt injection may have put into the answer.
        no_mentions = discord.AllowedMentions.none()
        sent = await channel.send(allowed_mentions=no_mentions, suppress_embeds=True, **options)
        return Receipt(platform_message_id=str(sent.id))

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Find a sent chunk in the channel's history: by its key if Discord returns the key, else by its content.

        Raises ``AmbiguousSend`` when the channel has too many later messages to read them all.
        """
        if message.tried_at is None:
            return None
        session, count = self._require_session(), 0
        own_id = session.user.id if session.user else 0
        with discord_errors():
            channel = find_channel(session, message.address)
            history = channel.history(after=message.tried_at - SKEW, oldest_first=True, limit=MAX_SEARCHED)
            async for post in history:
                if post.author.id == own_id and self._is_same_message(post, message):
                    return Receipt(platform_message_id=str(post.id))
                count += 1
        if count == MAX_SEARCHED:
            raise AmbiguousSend(f"the message is not among the first {MAX_SEARCHED} messages since the send")
        return None

    async def edit(self, message: OutgoingMessage) -> None:
        """Edit a sent message; Discord keeps the reply reference and shows no previews. Raises a ``SendFailure``.

        The library itself waits for rate limits, and repeats the call after an internal error of Discord.
        """
        session = self._require_session()
        options: dict[str, Any] = {"view": buttons} if (buttons := button_view(message)) is not None else {}
        with discord_errors():
            await (
                find_channel(session, message.address)
                .get_partial_message(_message_number(message.edits))
                .edit(content=render(message.content), allowed_mentions=discord.AllowedMentions.none(), **options)
            )

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction to a message; a slash command or button press gets no reaction.

        A channel that forbids reactions is tried only once, because Discord bans clients after many refused requests.
        """
        emoji = self._options.ack_reaction
        if not emoji or not message_id.isdecimal() or address.channel in self._no_reaction:
            return
        with discord_errors():
            message = find_channel(self._require_session(), address).get_partial_message(_message_number(message_id))
            try:
                await message.add_reaction(discord.PartialEmoji.from_str(emoji))
            except discord.Forbidden:
                self._no_reaction.add(address.channel)
                log.warning("discord.reaction_forbidden", account=self.account, channel=address.channel)

    async def typing(self, address: Address) -> None:
        with discord_errors():
            await find_channel(self._require_session(), address).typing()

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        if self._session is None:
            raise RetryableFetch("there is no connection to Discord")
        self._media.check_size(attachment.size)
        status = 0
        for number in range(TRIES):
            path = folder / str(number)
            status = (await self._media.request_file(await request_fresh_link(self._session, attachment), path)).status
            if status == HTTPStatus.OK:
                return path
            if status not in EXPIRED:
                raise RetryableFetch(f"Discord's file server answered {status}")
        raise PermanentFetch(f"Discord's file server answered {status}, even to a fresh link")

    def _reply_reference(self, message: OutgoingMessage, channel: int) -> discord.MessageReference | None:
        """Return a reference to the message that a chunk replies to; None for no reply and for a slash command."""
        answered = message.reply_to.partition(":")[0] if self._options.quote_replies == "always" else ""
        if not answered.isdecimal():
            return None
        # The answer is sent even if the message was deleted.
        return discord.MessageReference(message_id=int(answered), channel_id=channel, fail_if_not_exists=False)

    def _is_same_message(self, post: discord.Message, message: OutgoingMessage) -> bool:
        if post.nonce is not None:
            return str(post.nonce) == message.key
        if message.filename:
            return any(
                stored_file_name(file.filename) == stored_file_name(message.filename) for file in post.attachments
            )
        expected, actual = self._reply_reference(message, post.channel.id), post.reference
        if expected is not None and actual is not None and actual.message_id != expected.message_id:
            return False
        return post.content.strip() == render(message.content).strip()

    def _require_session(self) -> DiscordSession:
        """Return the open session; raises ``NotDispatched`` while there is none."""
        if self._session is None or self._session.is_closed() or self._session.user is None:
            raise NotDispatched("there is no connection to Discord")
        return self._session


async def request_fresh_link(client: discord.Client, attachment: Attachment) -> str:
    """Return a fresh download link of a file, which Discord creates at each request of the file's message."""
    channel_id, message_id, file_id = map(int, attachment.id.split("/"))
    try:
        message = await client.get_partial_messageable(channel_id).fetch_message(message_id)
    except TROUBLE as error:
        raise fetch_failure(send_failure(error)) from None
    for file in message_files(message):
        if file.id == file_id:
            return file.url
    raise PermanentFetch("the file is no longer in its message")


def describe_error(failure: Exception) -> str:
    """Describe the error of a connection without the error's text, which may contain an address with a token."""
    if isinstance(failure, discord.HTTPException):
        return f"Discord answered {failure.status}"
    if isinstance(failure, discord.ConnectionClosed):
        return f"Discord closed the connection with code {failure.code}"
    return f"Discord cannot be reached ({type(failure).__name__})"

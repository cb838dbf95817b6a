"""Sends to Discord: one chunk to one channel, under a key that Discord remembers."""

import asyncio
import io
import re
from datetime import datetime, timedelta
from typing import Any

import discord

from connectors.base import AmbiguousSend, FailureScope, PermanentSend
from connectors.discord.interactions import button_view
from connectors.discord.receive import target
from connectors.markdown import blocks
from maestro.domain.messages import Address, OutgoingMessage, Receipt

DEEP_HEADING = re.compile(r"[ \t]{0,3}#{4,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\s]+\))")

SKEW = timedelta(seconds=30)
"""How far Discord's clock and the local one may be apart."""
LOOKED_AT = 500
"""Messages of a channel among which a sent one is looked for."""
_CHANGED = re.compile(r"[^A-Za-z0-9_.-]")
"""What Discord leaves out of a file's name; it writes an underscore for a blank."""


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

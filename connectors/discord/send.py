"""The way out: one chunk to one channel, under a key that Discord remembers."""

import io
from datetime import datetime, timedelta
from typing import Any

import discord

from connectors.base import AmbiguousSend, PermanentSend, Scope
from connectors.discord.receive import target
from connectors.discord.render import render
from maestro.domain.messages import Address, OutgoingMessage, Receipt

SKEW = timedelta(seconds=30)
"""How far Discord's clock and ours may be apart."""
LOOKED_AT = 500
"""Messages of a channel that are looked at for one of ours."""


def channel_of(client: discord.Client, address: Address) -> discord.PartialMessageable:
    """Return the channel without asking for it; raises ``PermanentSend`` when it can be none of Discord's."""
    number = target(address)
    if number is None:
        raise PermanentSend("this is not the id of a channel on Discord", Scope.CHANNEL)
    return client.get_partial_messageable(number)


async def post(client: discord.Client, message: OutgoingMessage) -> Receipt:
    """Send a chunk: a repeat with the same key gives the message that is there already.

    Nobody is pinged and no link is previewed: a preview would tell an address what a model was led to write into it.
    """
    channel = channel_of(client, message.address)
    how: dict[str, Any] = {"nonce": message.key or None, "reference": reference(message, channel.id)}
    if message.filename:
        how["file"] = _file(message)
    else:
        how["content"] = render(message.content)
    sent = await channel.send(allowed_mentions=discord.AllowedMentions.none(), suppress_embeds=True, **how)
    return Receipt(platform_message_id=str(sent.id))


async def find(client: discord.Client, message: OutgoingMessage, since: datetime) -> Receipt | None:
    """Look for a chunk among what we wrote since then: by its key, which not every answer holds, or by its content.

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


def _is_it(found: discord.Message, message: OutgoingMessage) -> bool:
    if message.filename:
        return any(file.filename == message.filename for file in found.attachments)
    if found.nonce is not None:
        return str(found.nonce) == message.key
    asked = reference(message, found.channel.id)
    to_another = asked is not None and found.reference is not None and found.reference.message_id != asked.message_id
    return not to_another and found.content.strip() == render(message.content).strip()


def _file(message: OutgoingMessage) -> discord.File:
    return discord.File(io.BytesIO(message.content.encode()), filename=message.filename)

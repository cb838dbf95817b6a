"""Discord's messages as incoming messages of Maestro; files as references only."""

from collections.abc import Sequence
from dataclasses import dataclass

import discord

from connectors.discord.config import PLATFORM
from maestro.domain.messages import Address, Addressing, Attachment, IncomingMessage, control_word

MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""The types of messages that users write; all others are announcements of Discord."""

COMMAND_PREFIX = "command:"
"""The prefix of a slash command's id; an answer cannot reply to a command."""


@dataclass(frozen=True)
class DiscordChannel:
    """A channel of Discord, by the id that it has there; a thread's ``parent`` is the channel it belongs to."""

    id: int
    parent: int = 0
    guild: int | None = None

    @property
    def direct(self) -> bool:
        """Whether it is a direct message channel."""
        return self.guild is None

    @property
    def address_channel(self) -> str:
        """The channel of the address; threads share their channel's binding and outbound lane."""
        return str(self.parent or self.id)

    @property
    def thread(self) -> str:
        """The thread of the address, empty in the channel itself."""
        return str(self.id) if self.parent else ""

    def address(self, account: str) -> Address:
        """Return the address for answers."""
        return Address(platform=PLATFORM, account=account, channel=self.address_channel, thread=self.thread)


@dataclass(frozen=True)
class DiscordBot:
    """The bot's identity on Discord; with ``every_line`` no message needs to mention it."""

    account: str
    id: int
    every_line: bool = False


def incoming(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Return an incoming message; None for the bot's own, for announcements, and without readable content.

    Stickers, polls, and messages whose content the bot may not see have none.
    """
    content, files = text_of(message, bot.id), references(message)
    if message.author.id == bot.id or message.type not in MESSAGE_TYPES or not (content.strip() or files):
        return None
    return IncomingMessage(
        id=str(message.id),
        address=channel.address(bot.account),
        user_id=str(message.author.id),
        user_name=message.author.display_name,
        content=content,
        sent_at=message.created_at,
        attachments=files,
        is_direct=channel.direct,
        from_bot=message.author.bot or message.webhook_id is not None,
        reply_to=_reply_to(message),
        addressing=addressing(message, bot),
    )


def edited(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Return an edit as an incoming message; None for Discord's own changes, such as the preview of a link."""
    if message.edited_at is None:
        return None
    changed = incoming(message, channel, bot)
    if changed is None:
        return None
    number = f"{message.id}:{int(message.edited_at.timestamp() * 1000)}"
    return changed.model_copy(update={"id": number, "edit_of": str(message.id), "sent_at": message.edited_at})


def command(interaction: discord.Interaction, word: str, channel: DiscordChannel, account: str) -> IncomingMessage:
    """Return a slash command as the control word that it stands for."""
    return IncomingMessage(
        id=f"{COMMAND_PREFIX}{interaction.id}",
        address=channel.address(account),
        user_id=str(interaction.user.id),
        user_name=interaction.user.display_name,
        content=word,
        sent_at=interaction.created_at,
        is_direct=channel.direct,
        from_bot=interaction.user.bot,
    )


def addressing(message: discord.Message, bot: DiscordBot) -> Addressing:
    """Tell whether a message mentions the bot, by its name or by its role, or replies to it."""
    roles = (role.tags for role in message.role_mentions)
    if bot.id in message.raw_mentions or any(tags is not None and tags.bot_id == bot.id for tags in roles):
        return Addressing.US
    answered = message.reference.resolved if _reply_to(message) and message.reference is not None else None
    if isinstance(answered, discord.Message) and answered.author.id == bot.id:
        return Addressing.REPLY
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def text_of(message: discord.Message, me: int) -> str:
    """Return the text of a message, with names instead of ids, and of what it forwards.

    A mention of the bot before a control word is left out: that is how users address a bot in a channel.
    """
    text = message.clean_content
    for mention in (f"<@{me}>", f"<@!{me}>"):
        rest = message.content.removeprefix(mention).strip()
        if rest != message.content.strip() and control_word(rest) is not None:
            text = rest
    return "\n".join([text, *(forwarded.content for forwarded in message.message_snapshots)]).strip("\n")


def files_of(message: discord.Message) -> Sequence[discord.Attachment]:
    """Return the files of a message and of what it forwards."""
    forwarded = (file for snapshot in message.message_snapshots for file in snapshot.attachments)
    return [*message.attachments, *forwarded]


def references(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files by reference: a link would expire, so it is asked for when the file is fetched."""
    return tuple(
        Attachment(
            id=f"{message.channel.id}/{message.id}/{file.id}",
            filename=file.filename,
            content_type=file.content_type or "",
            size=file.size,
        )
        for file in files_of(message)
    )


def _reply_to(message: discord.Message) -> str:
    reference = message.reference
    is_reply = message.type is discord.MessageType.reply and reference is not None and reference.message_id
    return str(reference.message_id) if is_reply and reference is not None else ""

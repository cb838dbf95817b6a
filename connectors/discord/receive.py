"""The conversion of Discord's messages into Maestro's incoming messages; files are references only."""

from collections.abc import Sequence
from dataclasses import dataclass

import discord

from connectors.discord.config import PLATFORM
from maestro.domain.messages import Address, Addressing, Attachment, IncomingMessage, control_word

MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""The types of messages that users write; all others are announcements of Discord."""

COMMAND_PREFIX = "command:"
"""The prefix of a slash command's message id; Discord shows no reply reference to a command."""


@dataclass(frozen=True)
class DiscordChannel:
    """A Discord channel, by its id; ``parent`` of a thread is the id of the thread's channel."""

    id: int
    parent: int = 0
    guild: int | None = None

    @property
    def direct(self) -> bool:
        """Whether the channel is a direct message channel."""
        return self.guild is None

    @property
    def address_channel(self) -> str:
        """The channel part of the address; a thread shares the binding and outbound lane of its channel."""
        return str(self.parent or self.id)

    @property
    def thread(self) -> str:
        """The thread part of the address, empty for a channel that is no thread."""
        return str(self.id) if self.parent else ""

    def address(self, account: str) -> Address:
        """Return the address for answers."""
        return Address(platform=PLATFORM, account=account, channel=self.address_channel, thread=self.thread)


@dataclass(frozen=True)
class DiscordBot:
    """The bot's identity on Discord; with ``every_line`` the bot also answers messages that do not mention it."""

    account: str
    id: int
    every_line: bool = False


def incoming_message(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Convert a message; None for the bot's own messages, announcements, and messages without readable content.

    Stickers and polls, and messages with content that the bot may not see, have no readable content.
    """
    content, files = text_of(message, bot.id), file_references(message)
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
        reply_to=_replied_message_id(message),
        addressing=find_addressing(message, bot),
    )


def edited_message(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Convert an edited message; None for Discord's own changes, for example a link preview."""
    if message.edited_at is None:
        return None
    changed = incoming_message(message, channel, bot)
    if changed is None:
        return None
    number = f"{message.id}:{int(message.edited_at.timestamp() * 1000)}"
    return changed.model_copy(update={"id": number, "edit_of": str(message.id), "sent_at": message.edited_at})


def read_command(interaction: discord.Interaction, word: str, channel: DiscordChannel, account: str) -> IncomingMessage:
    """Convert a slash command into a message with the control word."""
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


def find_addressing(message: discord.Message, bot: DiscordBot) -> Addressing:
    """Tell whether a message mentions the bot, by its name or by its role, or replies to it."""
    roles = (role.tags for role in message.role_mentions)
    if bot.id in message.raw_mentions or any(tags is not None and tags.bot_id == bot.id for tags in roles):
        return Addressing.US
    answered = message.reference.resolved if _replied_message_id(message) and message.reference is not None else None
    if isinstance(answered, discord.Message) and answered.author.id == bot.id:
        return Addressing.REPLY
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def text_of(message: discord.Message, bot_id: int) -> str:
    """Return the text of a message and of the messages it forwards, with names instead of ids.

    A mention of the bot before a control word is removed: in a channel, users address a bot in this way.
    """
    text = message.clean_content
    for mention in (f"<@{bot_id}>", f"<@!{bot_id}>"):
        rest = message.content.removeprefix(mention).strip()
        if rest != message.content.strip() and control_word(rest) is not None:
            text = rest
    return "\n".join([text, *(forwarded.content for forwarded in message.message_snapshots)]).strip("\n")


def files_of(message: discord.Message) -> Sequence[discord.Attachment]:
    """Return the files of a message and of the messages it forwards."""
    forwarded = (file for snapshot in message.message_snapshots for file in snapshot.attachments)
    return [*message.attachments, *forwarded]


def file_references(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files of a message by reference: a link would expire, so a link is requested at the download."""
    return tuple(
        Attachment(
            id=f"{message.channel.id}/{message.id}/{file.id}",
            filename=file.filename,
            content_type=file.content_type or "",
            size=file.size,
        )
        for file in files_of(message)
    )


def _replied_message_id(message: discord.Message) -> str:
    reference = message.reference
    is_reply = message.type is discord.MessageType.reply and reference is not None and reference.message_id
    return str(reference.message_id) if is_reply and reference is not None else ""

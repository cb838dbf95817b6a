"""The conversion of Discord's messages into incoming messages, and the handling of slash commands and buttons."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import discord
import structlog
from discord import app_commands, ui

from connectors.account import BUTTON_EXPIRED, BUTTON_OF_OTHERS, CONTROL_WORDS
from connectors.base import ConnectorContext
from connectors.discord.errors import TROUBLE
from connectors.discord.platform import PLATFORM
from maestro.domain.errors import MaestroError
from maestro.domain.messages import (
    Address,
    Addressing,
    Attachment,
    ControlWord,
    IncomingMessage,
    OutgoingMessage,
    Receipt,
    control_word,
)

MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""The types of messages that users write; all others are announcements of Discord."""

COMMAND_PREFIX = "command:"
"""The prefix of a slash command's message id; Discord allows no reply reference to such an id."""

UNANSWERED_SECONDS = 60.0
"""Seconds without a reply after which the connector tells the user of a command that there is no answer."""
COMMAND_UNANSWERED = "There is no answer to this command now. Either you may not use it here, or Maestro is very busy."
COMMAND_FULL = "Maestro is busy; try again in a moment."

log = structlog.get_logger(__name__)

CommandHandler = Callable[[discord.Interaction, ControlWord], Awaitable[None]]

MAX_BUTTONS = 25
"""The most buttons below one message: five rows of five."""
LABEL_CHARS = 80


@dataclass(frozen=True)
class DiscordChannel:
    """A Discord channel, by its id; ``parent`` of a thread is the id of the thread's channel."""

    id: int
    parent: int = 0
    guild: int | None = None

    @property
    def is_direct(self) -> bool:
        """Whether the channel is a direct message channel."""
        return self.guild is None

    @property
    def address_channel(self) -> str:
        """The channel id in an address; a thread has that of its channel, and so the same binding to an agent."""
        return str(self.parent or self.id)

    @property
    def thread(self) -> str:
        """The thread part of the address, empty for a channel that is no thread."""
        return str(self.id) if self.parent else ""

    def build_address(self, account: str) -> Address:
        """Return the address of this channel for the bot ``account``."""
        return Address(platform=PLATFORM, account=account, channel=self.address_channel, thread=self.thread)


@dataclass(frozen=True)
class DiscordBot:
    """The bot's identity on Discord; with ``every_line`` the bot also answers messages that do not mention it."""

    account: str
    id: int
    every_line: bool = False


def incoming_message(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Convert a Discord message; None for the bot's own messages, announcements, and messages without readable content.

    Stickers and polls, and messages with content that the bot may not see, have no readable content.
    """
    content, files = message_text(message, bot.id), file_references(message)
    if message.author.id == bot.id or message.type not in MESSAGE_TYPES or not (content.strip() or files):
        return None
    return IncomingMessage(
        id=str(message.id),
        address=channel.build_address(bot.account),
        user_id=str(message.author.id),
        user_name=message.author.display_name,
        content=content,
        sent_at=message.created_at,
        attachments=files,
        is_direct=channel.is_direct,
        from_bot=message.author.bot or message.webhook_id is not None,
        reply_to=_replied_message_id(message),
        addressing=find_addressing(message, bot),
    )


def edited_message(message: discord.Message, channel: DiscordChannel, bot: DiscordBot) -> IncomingMessage | None:
    """Convert an edited message; None for changes by Discord itself, for example a link preview."""
    if message.edited_at is None:
        return None
    changed = incoming_message(message, channel, bot)
    if changed is None:
        return None
    number = f"{message.id}:{int(message.edited_at.timestamp() * 1000)}"
    return changed.model_copy(update={"id": number, "edit_of": str(message.id), "sent_at": message.edited_at})


def interaction_message(
    interaction: discord.Interaction, content: str, channel: DiscordChannel, account: str
) -> IncomingMessage:
    """Return a slash command or button press as a message; ``content`` is the control word or the button's text."""
    return IncomingMessage(
        id=f"{COMMAND_PREFIX}{interaction.id}",
        address=channel.build_address(account),
        user_id=str(interaction.user.id),
        user_name=interaction.user.display_name,
        content=content,
        sent_at=interaction.created_at,
        is_direct=channel.is_direct,
        from_bot=interaction.user.bot,
    )


def find_addressing(message: discord.Message, bot: DiscordBot) -> Addressing:
    """Return how a message addresses the bot: by a mention of the bot or its role, by a reply to the bot, or not."""
    roles = (role.tags for role in message.role_mentions)
    if bot.id in message.raw_mentions or any(tags is not None and tags.bot_id == bot.id for tags in roles):
        return Addressing.US
    answered = message.reference.resolved if _replied_message_id(message) and message.reference is not None else None
    if isinstance(answered, discord.Message) and answered.author.id == bot.id:
        return Addressing.REPLY
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def message_text(message: discord.Message, bot_id: int) -> str:
    """Return the text of a message and of the messages it forwards, with names instead of ids.

    A mention of the bot before a control word is removed: in a channel, users address a bot in this way.
    """
    text = message.clean_content
    for mention in (f"<@{bot_id}>", f"<@!{bot_id}>"):
        rest = message.content.removeprefix(mention).strip()
        if rest != message.content.strip() and control_word(rest) is not None:
            text = rest
    return "\n".join([text, *(forwarded.content for forwarded in message.message_snapshots)]).strip("\n")


def message_files(message: discord.Message) -> Sequence[discord.Attachment]:
    """Return the files of a message and of the messages it forwards."""
    forwarded = (file for snapshot in message.message_snapshots for file in snapshot.attachments)
    return [*message.attachments, *forwarded]


def file_references(message: discord.Message) -> tuple[Attachment, ...]:
    """Return references to the files of a message, without links: links expire, so the download requests new ones."""
    return tuple(
        Attachment(
            id=f"{message.channel.id}/{message.id}/{file.id}",
            filename=file.filename,
            content_type=file.content_type or "",
            size=file.size,
        )
        for file in message_files(message)
    )


def _replied_message_id(message: discord.Message) -> str:
    reference = message.reference
    is_reply = message.type is discord.MessageType.reply and reference is not None and reference.message_id
    return str(reference.message_id) if is_reply and reference is not None else ""


async def register_commands(tree: "app_commands.CommandTree[discord.Client]", handler: CommandHandler) -> None:
    """Register a slash command for each control word; if that fails, control words still work as messages."""
    for word, description in CONTROL_WORDS.items():
        tree.add_command(_create_command(word, description, handler))
    try:
        await tree.sync()
    except TROUBLE as error:
        log.warning("discord.commands_not_registered", error=type(error).__name__)


class CommandReplies:
    """The slash commands that wait for a reply; a reply is visible only to the command's user."""

    def __init__(self) -> None:
        self._waiting: dict[str, discord.Interaction] = {}

    def expect_reply(self, interaction: discord.Interaction) -> None:
        """Register a command that waits for its reply."""
        self._waiting[f"{COMMAND_PREFIX}{interaction.id}"] = interaction

    async def send_reply(self, message: OutgoingMessage) -> Receipt | None:
        """Send a message as the reply to its slash command; None if it answers no command or comes too late."""
        interaction = self._waiting.get(message.reply_to)
        if interaction is None or message.filename:
            return None
        try:
            reply = await interaction.edit_original_response(
                content=message.content, allowed_mentions=discord.AllowedMentions.none()
            )
        except discord.HTTPException as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            reply = None
        del self._waiting[message.reply_to]
        return Receipt(platform_message_id=str(reply.id)) if reply is not None else None

    async def end_waiting(self, interaction: discord.Interaction, text: str, after: float = 0.0) -> None:
        """Tell the user after ``after`` seconds that there is no reply, unless a reply was sent by then."""
        await asyncio.sleep(after)
        if self._waiting.pop(f"{COMMAND_PREFIX}{interaction.id}", None) is not None:
            await interaction.edit_original_response(content=text)


def _create_command(
    word: ControlWord, description: str, handler: CommandHandler
) -> "app_commands.Command[Any, ..., None]":
    async def run(interaction: discord.Interaction) -> None:
        await handler(interaction, word)

    return app_commands.Command(name=word.removeprefix("/"), description=description, callback=run)


def button_view(message: OutgoingMessage) -> ui.View | None:
    """Return the buttons of a chunk, None if it has none."""
    if not message.buttons:
        return None
    view = ui.View(timeout=None)
    for number, button in enumerate(message.buttons[:MAX_BUTTONS]):
        view.add_item(ui.Button(label=button.label[:LABEL_CHARS], custom_id=f"{message.key}:{number}"))
    # Without stop, the library would wait for presses in this process; the gateway handles all presses instead.
    view.stop()
    return view


async def accept_press(
    interaction: discord.Interaction, channel: DiscordChannel, account: str, context: ConnectorContext
) -> None:
    """Store a button press, then acknowledge it to Discord, within three seconds.

    A message about an expired button, or about a button for other users, is visible to the pressing user only.
    """
    custom_id = interaction.data.get("custom_id", "") if interaction.data is not None else ""
    key, _, number = str(custom_id).rpartition(":")
    is_button = key and number.isascii() and number.isdecimal()
    content = await context.pressed(key, int(number)) if is_button else None
    if content is None:
        await _answer_press(interaction, BUTTON_EXPIRED)
        return
    below = interaction.message.id if interaction.message is not None else 0
    # A press counts as no mention, so that the press of a user without permission never reaches an agent.
    message = interaction_message(interaction, content, channel, account)
    ids = {"id": f"{below}:{interaction.id}", "reply_to": str(below or "")}
    try:
        accepted = await context.accept(message.model_copy(update=ids))
    except MaestroError as error:
        log.warning("discord.press_not_taken", error=type(error).__name__)
        await _answer_press(interaction, "Maestro is busy; press the button again in a moment.")
        return
    await _answer_press(interaction, BUTTON_OF_OTHERS if accepted.ignored else "")


async def _answer_press(interaction: discord.Interaction, text: str) -> None:
    """Acknowledge a button press to Discord; show the text, if any, to the pressing user only."""
    try:
        if text:
            await interaction.response.send_message(text, ephemeral=True)
        else:
            await interaction.response.defer()
    except (*TROUBLE, LookupError, TypeError) as error:  # The last two mean an unreadable answer of Discord.
        log.warning("discord.press_not_acknowledged", error=type(error).__name__)

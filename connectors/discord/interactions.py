"""Interactions on Discord: slash commands and buttons."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import discord
import structlog
from discord import app_commands, ui

from connectors.base import ConnectorContext
from connectors.discord.errors import TROUBLE
from connectors.discord.receive import COMMAND_PREFIX, DiscordChannel
from maestro.domain.errors import MaestroError
from maestro.domain.messages import ControlWord, IncomingMessage, OutgoingMessage, Receipt

DESCRIPTIONS = {
    ControlWord.STOP: "Stop what is being answered here",
    ControlWord.STATUS: "Tell what is being worked on here",
    ControlWord.NEW: "Begin a new conversation with the next message",
}
UNANSWERED_SECONDS = 60.0
"""Seconds without a reply after which the user of a command is told that there is none."""
COMMAND_UNANSWERED = "There is no answer to this command now. Either you may not use it here, or Maestro is very busy."
COMMAND_FULL = "Maestro is busy; try again in a moment."

log = structlog.get_logger(__name__)

CommandHandler = Callable[[discord.Interaction, ControlWord], Awaitable[None]]

MAX_BUTTONS = 25
"""Buttons below one message: five rows of five."""
LABEL_CHARS = 80
BUTTON_EXPIRED = "This button has expired."
BUTTON_OF_OTHERS = "Another user has to answer this."


async def register_commands(tree: "app_commands.CommandTree[discord.Client]", handler: CommandHandler) -> None:
    """Register a slash command for each control word; if that fails, control words still work as messages."""
    for word, description in DESCRIPTIONS.items():
        tree.add_command(_create_command(word, description, handler))
    try:
        await tree.sync()
    except TROUBLE as error:
        log.warning("discord.commands_not_registered", error=type(error).__name__)


class CommandReplies:
    """The slash commands that wait for a reply; a reply is visible only to the command's user."""

    def __init__(self) -> None:
        self._waiting: dict[str, discord.Interaction] = {}

    def expect(self, interaction: discord.Interaction) -> None:
        """Register a command that waits for its reply."""
        self._waiting[f"{COMMAND_PREFIX}{interaction.id}"] = interaction

    async def reply(self, message: OutgoingMessage) -> Receipt | None:
        """Reply to a slash command; None when the message is no reply to one, or too late to be shown as a reply."""
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
            del self._waiting[message.reply_to]
            return None
        del self._waiting[message.reply_to]
        return Receipt(platform_message_id=str(reply.id))

    async def give_up(self, interaction: discord.Interaction, text: str, after: float = 0.0) -> None:
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
    message = IncomingMessage(
        id=f"{below}:{interaction.id}",
        address=channel.address(account),
        user_id=str(interaction.user.id),
        user_name=interaction.user.display_name,
        content=content,
        sent_at=interaction.created_at,
        is_direct=channel.direct,
        from_bot=interaction.user.bot,
        reply_to=str(below or ""),
    )
    try:
        accepted = await context.accept(message)
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
    except (*TROUBLE, LookupError, TypeError) as error:  # the last two: an unreadable answer of Discord
        log.warning("discord.press_not_acknowledged", error=type(error).__name__)

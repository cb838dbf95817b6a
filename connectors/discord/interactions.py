"""Interactions on Discord: slash commands, and buttons below a message."""

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
from maestro.domain.messages import Button, ControlWord, IncomingMessage, OutgoingMessage, Receipt

DESCRIPTIONS = {
    ControlWord.STOP: "Stop what is being answered here",
    ControlWord.STATUS: "Tell what is being worked on here",
    ControlWord.NEW: "Begin a new conversation with the next message",
}
UNANSWERED_SECONDS = 60.0
"""How long a user waits for the reply to a command before a text says that there is none."""
COMMAND_UNANSWERED = "There is no answer to this command now. Either it is not for you here, or Maestro is very busy."
COMMAND_FULL = "Maestro is busy; try again in a moment."

log = structlog.get_logger(__name__)

CommandHandler = Callable[[discord.Interaction, ControlWord], Awaitable[None]]

MAX_BUTTONS = 25
"""Buttons below one message: five rows of five."""
LABEL_CHARS = 80
BUTTON_EXPIRED = "This button is for nothing any more."
BUTTON_OF_OTHERS = "This is for somebody else to answer."
PRESS_FULL = "Maestro is busy; press it again in a moment."


def add_commands(tree: "app_commands.CommandTree[discord.Client]", said: CommandHandler) -> None:
    """Add one command for each control word; ``said`` is called when a user gives it."""
    for word, description in DESCRIPTIONS.items():
        tree.add_command(_command(word, description, said))


async def register_commands(tree: "app_commands.CommandTree[discord.Client]") -> None:
    """Tell Discord of the commands; without them, control words are still understood as messages."""
    try:
        await tree.sync()
    except TROUBLE as error:
        log.warning("discord.commands_not_registered", error=type(error).__name__)


class CommandReplies:
    """The commands that wait for a reply, which only the user of the command sees."""

    def __init__(self) -> None:
        self._waiting: dict[str, discord.Interaction] = {}

    def expect(self, interaction: discord.Interaction) -> None:
        """Register a command that waits for its reply."""
        self._waiting[f"{COMMAND_PREFIX}{interaction.id}"] = interaction

    async def reply(self, message: OutgoingMessage) -> Receipt | None:
        """Reply to a command; None when this is no reply to one, or it comes too late for Discord to show it there."""
        interaction = self._waiting.get(message.reply_to)
        if interaction is None or message.filename:
            return None
        try:
            shown = await interaction.edit_original_response(
                content=message.content, allowed_mentions=discord.AllowedMentions.none()
            )
        except discord.HTTPException as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            del self._waiting[message.reply_to]
            return None
        del self._waiting[message.reply_to]
        return Receipt(platform_message_id=str(shown.id))

    async def give_up(self, interaction: discord.Interaction, text: str, after: float = 0.0) -> None:
        """Tell the user that there is no reply, if none was sent by then."""
        await asyncio.sleep(after)
        if self._waiting.pop(f"{COMMAND_PREFIX}{interaction.id}", None) is not None:
            await interaction.edit_original_response(content=text)


def _command(word: ControlWord, description: str, said: CommandHandler) -> "app_commands.Command[Any, ..., None]":
    async def use(interaction: discord.Interaction) -> None:
        await said(interaction, word)

    return app_commands.Command(name=word.removeprefix("/"), description=description, callback=use)


def button_view(message: OutgoingMessage) -> ui.View | None:
    """Return the buttons of a chunk, None where it has none.

    The library would keep what it sends and wait for presses itself; it is told that it has ended, for presses of
    earlier processes have to be understood all the same.
    """
    if not message.buttons:
        return None
    view = ui.View(timeout=None)
    for number, button in enumerate(message.buttons[:MAX_BUTTONS]):
        view.add_item(_button_item(message.key, number, button))
    view.stop()
    return view


def pressed_button(interaction: discord.Interaction) -> tuple[str, int] | None:
    """Return the key and the number of a pressed button; None for anything but a button of the bot."""
    if interaction.type is not discord.InteractionType.component or interaction.data is None:
        return None
    key, _, number = str(interaction.data.get("custom_id", "")).rpartition(":")
    return (key, int(number)) if key and number.isascii() and number.isdecimal() else None


def press_message(interaction: discord.Interaction, says: str, place: DiscordChannel, account: str) -> IncomingMessage:
    """Return a press as an incoming message with the button's text, in reply to the message with the button.

    It has no mention: a press by a user who was not asked is no message for an agent.
    """
    below = interaction.message.id if interaction.message is not None else 0
    return IncomingMessage(
        id=f"{below}:{interaction.id}",
        address=place.address(account),
        user_id=str(interaction.user.id),
        user_name=interaction.user.display_name,
        content=says,
        sent_at=interaction.created_at,
        is_direct=place.direct,
        from_bot=interaction.user.bot,
        reply_to=str(below or ""),
    )


async def take_press(
    interaction: discord.Interaction, place: DiscordChannel, account: str, context: ConnectorContext
) -> None:
    """Commit a press, then acknowledge it to Discord, within three seconds.

    A user of an expired button, or of one for other users, is told so alone.
    """
    pressed = pressed_button(interaction)
    says = await context.pressed(*pressed) if pressed is not None else None
    if says is None:
        await _answer_press(interaction, BUTTON_EXPIRED)
        return
    try:
        accepted = await context.accept(press_message(interaction, says, place, account))
    except MaestroError as error:
        log.warning("discord.press_not_taken", error=type(error).__name__)
        await _answer_press(interaction, PRESS_FULL)
        return
    await _answer_press(interaction, BUTTON_OF_OTHERS if accepted.ignored else "")


async def _answer_press(interaction: discord.Interaction, text: str) -> None:
    """Say to Discord that a press was taken, or to its person alone why it was not."""
    try:
        if text:
            await interaction.response.send_message(text, ephemeral=True)
        else:
            await interaction.response.defer()
    except (*TROUBLE, LookupError, TypeError) as error:  # the last two: Discord's answer could not be parsed
        log.warning("discord.press_not_acknowledged", error=type(error).__name__)


def _button_item(key: str, number: int, button: Button) -> "ui.Button[ui.View]":
    return ui.Button(label=button.label[:LABEL_CHARS], custom_id=f"{key}:{number}")

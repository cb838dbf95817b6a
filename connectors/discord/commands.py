"""The slash commands: control words that Discord offers to people as they type, answered to nobody else."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import discord
import structlog
from discord import app_commands

from connectors.discord.errors import TROUBLE
from connectors.discord.receive import COMMAND_PREFIX
from maestro.domain.messages import ControlWord, OutgoingMessage, Receipt

DESCRIPTIONS = {
    ControlWord.STOP: "Stop what is being answered here",
    ControlWord.STATUS: "Tell what is being worked on here",
    ControlWord.NEW: "Begin a new conversation with the next message",
}
UNANSWERED_SECONDS = 60.0
"""How long somebody waits for the reply to a command before they are told that there is none."""
UNANSWERED = "There is no answer to this command now. Either it is not for you here, or Maestro is very busy."
FULL = "Maestro is busy; try again in a moment."

log = structlog.get_logger(__name__)

Said = Callable[[discord.Interaction, ControlWord], Awaitable[None]]


def add_commands(tree: "app_commands.CommandTree[discord.Client]", said: Said) -> None:
    """Add one command for each control word; ``said`` is called when somebody uses it."""
    for word, description in DESCRIPTIONS.items():
        tree.add_command(_command(word, description, said))


async def register(tree: "app_commands.CommandTree[discord.Client]") -> None:
    """Tell Discord of the commands; without them, control words are still understood as messages."""
    try:
        await tree.sync()
    except TROUBLE as error:
        log.warning("discord.commands_not_registered", error=type(error).__name__)


class Replies:
    """The commands that wait for a reply, which is shown to nobody but the person who used them."""

    def __init__(self) -> None:
        self._waiting: dict[str, discord.Interaction] = {}

    def expect(self, interaction: discord.Interaction) -> None:
        """Let a reply find its command."""
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
        """Tell the person that there is no reply, if there was none by then."""
        await asyncio.sleep(after)
        if self._waiting.pop(f"{COMMAND_PREFIX}{interaction.id}", None) is not None:
            await interaction.edit_original_response(content=text)


def _command(word: ControlWord, description: str, said: Said) -> "app_commands.Command[Any, ..., None]":
    async def use(interaction: discord.Interaction) -> None:
        await said(interaction, word)

    return app_commands.Command(name=word.removeprefix("/"), description=description, callback=use)

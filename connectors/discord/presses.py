"""Buttons: how they are put below a message, and what happens when somebody presses one."""

import discord
import structlog
from discord import ui

from connectors.base import ConnectorContext
from connectors.discord.errors import TROUBLE
from connectors.discord.receive import Place
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Button, IncomingMessage, OutgoingMessage

MOST = 25
"""Buttons below one message: five rows of five."""
LABEL_CHARS = 80
GONE = "This button is for nothing any more."
NOT_FOR_YOU = "This is for somebody else to answer."
FULL = "Maestro is busy; press it again in a moment."

log = structlog.get_logger(__name__)


def row_of(message: OutgoingMessage) -> ui.View | None:
    """Return the buttons of a chunk, None where it has none.

    The library would keep what it sends and wait for presses itself; it is told that it has ended, for presses of
    earlier processes have to be understood all the same.
    """
    if not message.buttons:
        return None
    view = ui.View(timeout=None)
    for number, button in enumerate(message.buttons[:MOST]):
        view.add_item(_drawn(message.key, number, button))
    view.stop()
    return view


def named(interaction: discord.Interaction) -> tuple[str, int] | None:
    """Return the key and the number of the button that was pressed; None for what is no button of ours."""
    if interaction.type is not discord.InteractionType.component or interaction.data is None:
        return None
    key, _, number = str(interaction.data.get("custom_id", "")).rpartition(":")
    return (key, int(number)) if key and number.isascii() and number.isdecimal() else None


def press(interaction: discord.Interaction, says: str, place: Place, account: str) -> IncomingMessage:
    """Return a press as what it says, in reply to the message with the button.

    It mentions nobody: from somebody who was not asked it is no line for an agent.
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


async def take(interaction: discord.Interaction, place: Place, account: str, context: ConnectorContext) -> None:
    """Commit a press, then tell Discord so, for which there are three seconds.

    Who pressed what is for nothing any more, or for somebody else, alone sees so.
    """
    pressed = named(interaction)
    says = await context.pressed(*pressed) if pressed is not None else None
    if says is None:
        await _tell(interaction, GONE)
        return
    try:
        accepted = await context.accept(press(interaction, says, place, account))
    except MaestroError as error:
        log.warning("discord.press_not_taken", error=type(error).__name__)
        await _tell(interaction, FULL)
        return
    await _tell(interaction, NOT_FOR_YOU if accepted.ignored else "")


async def _tell(interaction: discord.Interaction, text: str) -> None:
    """Say to Discord that a press was taken, or to its person alone why it was not."""
    try:
        if text:
            await interaction.response.send_message(text, ephemeral=True)
        else:
            await interaction.response.defer()
    except (*TROUBLE, LookupError, TypeError) as error:  # the last two for an answer the library cannot read
        log.warning("discord.press_not_acknowledged", error=type(error).__name__)


def _drawn(key: str, number: int, button: Button) -> "ui.Button[ui.View]":
    return ui.Button(label=button.label[:LABEL_CHARS], custom_id=f"{key}:{number}")

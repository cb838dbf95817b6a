"""What to do about a chunk that was handed over without a word back (docs/adr/0022)."""

import asyncio
from datetime import datetime
from enum import StrEnum

from connectors.base import (
    Connector,
    Edits,
    Idempotency,
    OnAmbiguous,
    PermanentSend,
    Reconciles,
    Scope,
    SendFailure,
    attempt,
)
from maestro.domain.messages import OutgoingMessage, Receipt


class Move(StrEnum):
    """Send it, look first whether the platform has it, send it again in doubt, or leave it unconfirmed."""

    SEND = "send"
    LOOK = "look"
    RESEND = "resend"
    LEAVE = "leave"


def move_for(message: OutgoingMessage, connector: Connector, now: datetime) -> Move:
    """Say what is safe with a chunk.

    One that surely never arrived is sent, and so is one that takes the place of another: it may do so twice. While the
    platform remembers the key of a message, a repeat is harmless. After that, or where it knows no keys, it is looked
    for; where that cannot be done either, the rule of its account counts.
    """
    if message.tried_at is None or message.edits:
        return Move.SEND
    able = connector.capabilities
    window = able.native_window
    if able.idempotency is Idempotency.NATIVE and (window is None or now - message.tried_at < window):
        return Move.SEND
    return Move.LOOK if isinstance(connector, Reconciles) else unsettled(message, connector)


def unsettled(message: OutgoingMessage, connector: Connector) -> Move:
    """Say what becomes of a chunk of which nobody will ever know whether the platform has it."""
    rule = connector.capabilities.on_ambiguous
    held = rule is OnAmbiguous.HOLD or (rule is OnAmbiguous.AUTO and message.unasked)
    return Move.LEAVE if held else Move.RESEND


async def hand_over(connector: Connector, message: OutgoingMessage, move: Move) -> Receipt | SendFailure:
    """Look for the chunk if that is the move, send it unless it was found, and return how it went as a value.

    One that takes the place of another message is written there. A file that is gone is gone for good: only what the
    platform may have of it already is looked for.
    """
    if message.edits:
        return await _rewrite(connector, message)
    found = await _look(connector, message) if move is Move.LOOK else None
    if found is not None:
        return found
    if message.path is not None and not await asyncio.to_thread(message.path.is_file):
        return PermanentSend(f"the file {message.filename} is not kept any more", Scope.MESSAGE)
    return await attempt(connector, message)


async def _rewrite(connector: Connector, message: OutgoingMessage) -> Receipt | SendFailure:
    if not isinstance(connector, Edits):
        return PermanentSend("this platform changes no message that was sent", Scope.MESSAGE)
    try:
        await connector.edit(message)
    except SendFailure as failure:
        return failure
    return Receipt(platform_message_id=message.edits)


async def _look(connector: Connector, message: OutgoingMessage) -> Receipt | SendFailure | None:
    if not isinstance(connector, Reconciles):
        return None
    try:
        return await connector.find(message)
    except SendFailure as failure:
        return failure

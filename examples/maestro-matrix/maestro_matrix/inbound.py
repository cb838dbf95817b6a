"""The intake of a room's events: each event is processed in order, before the sync position moves on."""

from collections.abc import Awaitable, Sequence

import structlog
from mautrix.types import EventType

from connectors.base import ConnectorContext
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import Addressing, IncomingMessage
from maestro_matrix.errors import Busy, MatrixTrouble, Refused, Unreachable, account_refusal
from maestro_matrix.homeserver import Homeserver, Json
from maestro_matrix.platform import MatrixOptions
from maestro_matrix.receive import ENCRYPTED, MESSAGE, MOVED, Event, MatrixBot, find_inviter, parse_message
from maestro_matrix.rooms import Rooms

UNREADABLE = (
    "I cannot read encrypted messages. Please talk to me in a room without encryption: "
    "it cannot be switched off in this one."
)

log = structlog.get_logger(__name__)


class Inbound:
    """The intake of events; after an error the caller passes all events of the poll again."""

    def __init__(self, server: Homeserver, context: ConnectorContext, rooms: Rooms, options: MatrixOptions) -> None:
        self._server, self._context, self._rooms, self._options = server, context, rooms, options

    async def process_events(self, room: str, events: Sequence[Event], bot: MatrixBot) -> None:
        """Process the events of a room in their order."""
        for event in events:
            self._rooms.update_members(room, event)
            if event.get("type") == MESSAGE and event.get("sender") != bot.user_id:
                await self._accept_message(room, event, bot)
            elif event.get("type") == MOVED:
                await self._follow_replacement(room, event, bot)
        encrypted = sum(one.get("type") == ENCRYPTED and one.get("sender") != bot.user_id for one in events)
        if encrypted:
            await self._explain_encryption(room, encrypted)

    async def accept_invitation(self, room: str, room_state: Json, bot: MatrixBot) -> None:
        """Join a room if the option ``autoJoin`` allows the invitation; a refused join is not tried again."""
        inviter = find_inviter(room_state, bot)
        allowed = self._options.auto_join
        if allowed == "always" or (allowed == "homeserver" and inviter.partition(":")[2] == bot.homeserver):
            await self._join(room)
        else:
            log.info("matrix.invitation_left", room=room, by=inviter, why=f"autoJoin is {allowed}")

    async def _accept_message(self, room: str, event: Event, bot: MatrixBot) -> None:
        message = await self._parse_event(room, event, bot)
        if message is None or not (message.is_direct or not self._options.channels or room in self._options.channels):
            return
        try:
            await self._context.accept(message)
        except InvalidMessage as error:
            log.info("matrix.message_refused", room=room, reason=str(error))

    async def _parse_event(self, room: str, event: Event, bot: MatrixBot) -> IncomingMessage | None:
        names = await self._rooms.members(room)
        try:
            message = parse_message(event, room, bot, names)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            # A malformed event is skipped: a retry would fail again and block later events.
            log.warning("matrix.unreadable", room=room, event_id=str(event.get("event_id")), error=type(error).__name__)
            return None
        if message is None or message.is_direct or message.addressing is not Addressing.NOBODY:
            return message
        answered = message.reply_to or message.address.thread
        if answered and await self._rooms.author(room, answered) == bot.user_id:
            return message.model_copy(update={"addressing": Addressing.REPLY})
        return message

    async def _explain_encryption(self, room: str, count: int) -> None:
        """Explain once in a room that encrypted messages cannot be read; a cursor records that this was done."""
        await self._context.skipped(room, count, "they are encrypted")
        if await self._context.cursor(room, ENCRYPTED) is None:
            content = {"msgtype": "m.notice", "body": UNREADABLE, "m.mentions": {}}
            await self._try(room, self._server.put(room, EventType.ROOM_MESSAGE, f"unreadable-{room}", content))
            await self._context.advance(room, "said", ENCRYPTED)

    async def _follow_replacement(self, room: str, event: Event, bot: MatrixBot) -> None:
        """Follow a replaced room to its successor, if the successor confirms the room as its predecessor."""
        to = str(event["content"].get("replacement_room") or "")
        if not to or event.get("state_key") != "" or event.get("sender") == bot.user_id or not await self._join(to):
            return
        try:
            replaced = await self._server.predecessor(to)
        except Refused:
            replaced = ""
        if replaced == room:
            await self._context.moved(room, to)
        else:
            log.warning("matrix.not_followed", room=room, to=to, why="the new room does not confirm the replacement")

    async def _join(self, room: str) -> bool:
        return await self._try(room, self._server.join(room))

    async def _try(self, room: str, call: Awaitable[object]) -> bool:
        """Make a call that another server may refuse; raises only the trouble of the account's own homeserver."""
        try:
            await call
        except MatrixTrouble as trouble:
            if isinstance(trouble, Busy | Unreachable) or account_refusal(trouble) is not None:
                raise
            log.warning("matrix.refused", room=room, reason=str(trouble))
            return False
        return True

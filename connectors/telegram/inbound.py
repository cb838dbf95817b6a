"""Incoming messages of Telegram: stored before they are confirmed, in the order of each chat."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime

import structlog
import telegram

from connectors.account import MessageIntake
from connectors.base import ConnectorContext
from connectors.telegram.api import RawUpdate
from connectors.telegram.receive import (
    TelegramBot,
    TelegramPress,
    join_album,
    message_in,
    migration_in,
    press_in,
    press_message,
)
from maestro.domain.messages import IncomingMessage
from maestro.domain.texts import tidied

Group = Sequence[RawUpdate]
"""The updates of one message: the parts of an album, or a single update."""

OPEN_SECONDS = 1.0
"""Seconds after its last part in which an album may get another part."""
MOST_LOOKED_AFTER = 1_000

BUTTON_EXPIRED = "This button does nothing any more."
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError, RuntimeError)
"""Errors that the library raises for updates that do not have the documented form."""

log = structlog.get_logger(__name__)

Migration = tuple[str, str]
TelegramEvent = IncomingMessage | TelegramPress | Migration | None


def is_group(channel: str) -> bool:
    """Tell whether a chat is a group: groups and channels have negative ids."""
    return channel.startswith("-")


class GroupMigrations:
    """The current ids of groups that became supergroups."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._now: dict[str, str] = {}

    async def current(self, channel: str) -> str:
        """Return the current id of a chat; a direct chat never migrates."""
        if not is_group(channel):
            return channel
        if channel not in self._now:
            self._now[channel] = await self._context.moved_to(channel)
        return self._now[channel]

    async def add(self, channel: str, to: str) -> None:
        """Record that a group continues under another id."""
        await self._context.moved(channel, to)
        self._now = {known: to if now == channel else now for known, now in self._now.items()} | {channel: to}


def group_albums(updates: Sequence[RawUpdate]) -> list[Group]:
    """Group the parts of each album, at the position of its first part."""
    found: dict[object, list[RawUpdate]] = {}
    for update in updates:
        found.setdefault(_album(update) or update["update_id"], []).append(update)
    return list(found.values())


def confirmable(found: Sequence[Group], unfinished: Sequence[Group]) -> Sequence[Group]:
    """Return the leading groups that can be confirmed without confirming a part of an unfinished one.

    Telegram confirms all updates up to one id, so an update between the parts of a later album cannot be confirmed
    alone.
    """
    end = next((at for at, group in enumerate(found) if group in unfinished), len(found))
    while end < len(found) and any(_last(group) > _first(found[end]) for group in found[:end]):
        end -= 1
    return found[:end]


class OpenAlbums:
    """The albums that may get another part, with the time of their last part."""

    def __init__(self) -> None:
        self._grown: dict[object, tuple[int, float]] = {}

    def among(self, found: Sequence[Group], now: float) -> list[Group]:
        """Return the albums that may get another part; ``now`` is in seconds of a monotonic clock."""
        return [group for group in found if self._is_open(group, now)]

    def _is_open(self, group: Group, now: float) -> bool:
        album = _album(group[0])
        if album is None:
            return False
        count, since = self._grown.get(album, (0, now))
        if count != len(group):
            if len(self._grown) >= MOST_LOOKED_AFTER:
                self._grown.clear()
            self._grown[album] = len(group), now
            return True
        return now - since < OPEN_SECONDS


def _album(update: RawUpdate) -> tuple[str, str] | None:
    """Return the key that all parts of an album share, None for other messages."""
    return next(((chat, album) for chat, album in _albums(update)), None)


def _albums(update: RawUpdate) -> Iterator[tuple[str, str]]:
    for kind in ("message", "channel_post"):
        message = update.get(kind)
        if isinstance(message, dict) and isinstance(message.get("media_group_id"), str):
            chat = message.get("chat")
            yield str(chat.get("id") if isinstance(chat, dict) else chat), message["media_group_id"]


def _first(group: Group) -> int:
    return int(group[0]["update_id"])


def _last(group: Group) -> int:
    return int(group[-1]["update_id"])


class TelegramInbound:
    """The receiver of Telegram's updates; after an error Telegram has to deliver them again.

    ``confirm_press`` confirms a button press, with a text for the user or ""; it never fails.
    """

    def __init__(
        self,
        context: ConnectorContext,
        bot: TelegramBot,
        migrations: GroupMigrations,
        confirm_press: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._bot = bot
        self._migrations = migrations
        self._confirm_press = confirm_press
        self._intake = MessageIntake(context)
        self._channels: frozenset[str] = frozenset()

    async def restrict_to(self, channels: Sequence[str]) -> None:
        """Accept direct messages and those of these groups, under old and new ids; an empty list accepts all groups."""
        now = [await self._migrations.current(channel) for channel in channels]
        self._channels = frozenset([*channels, *now])

    async def take(self, group: Group) -> None:
        """Accept the updates of one message; raises ``Backlogged`` and the errors of the store."""
        events = [self._read(update) for update in group]
        messages = [one for one in events if isinstance(one, IncomingMessage) and self._is_wanted(one)]
        if messages:
            await self._intake.accept_in_order(join_album(messages))
        for one in events:
            if isinstance(one, TelegramPress):
                await self._press(one)
            elif isinstance(one, tuple):
                await self._migrate(*one)

    def _read(self, update: RawUpdate) -> TelegramEvent:
        try:
            read = telegram.Update.de_json(tidied(dict(update)), None)
            return migration_in(read) or press_in(read, self._bot) or message_in(read, self._bot)
        except UNREADABLE as error:
            # A malformed update is skipped: a retry would fail again and block the updates after it.
            kind = next((str(name) for name in update if name != "update_id"), "")
            log.warning("telegram.unreadable", kind=kind[:40], error=type(error).__name__)
            return None

    async def _press(self, press: TelegramPress) -> None:
        """Accept the text behind a button, then confirm the press to Telegram."""
        content = await self._context.pressed(press.key, press.number) if press.number >= 0 else None
        message = press_message(press, content or "", datetime.now(UTC))
        is_known = content is not None and self._is_wanted(message)
        if is_known:
            await self._intake.accept_in_order(message)
        await self._confirm_press(press.query.id, "" if is_known else BUTTON_EXPIRED)

    async def _migrate(self, channel: str, to: str) -> None:
        log.info("telegram.group_moved", channel=channel, to=to)
        await self._migrations.add(channel, to)
        self._channels = self._channels | {to} if channel in self._channels else self._channels

    def _is_wanted(self, message: IncomingMessage) -> bool:
        return message.is_direct or not self._channels or message.address.channel in self._channels

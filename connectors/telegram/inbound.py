"""The intake of Telegram's messages: stored before they are confirmed to Telegram, in the order of each chat."""

from collections.abc import Awaitable, Callable, Sequence
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
from maestro.domain.texts import replace_unstorable

Group = Sequence[RawUpdate]
"""The updates of one message: the parts of an album, or a single update."""

OPEN_SECONDS = 1.0
"""Seconds after the last part of an album in which another part may arrive."""
MAX_ALBUMS = 1_000

BUTTON_EXPIRED = "This button has expired."
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError, RuntimeError)
"""Errors that the library raises for updates that do not have the documented form."""

log = structlog.get_logger(__name__)

Migration = tuple[str, str]
TelegramEvent = IncomingMessage | TelegramPress | Migration | None


def is_group(channel: str) -> bool:
    """Tell whether a chat is a group: groups and channels have negative ids."""
    return channel.startswith("-")


class GroupMigrations:
    """The current ids of groups that Telegram turned into supergroups."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._current: dict[str, str] = {}

    async def current_id(self, channel: str) -> str:
        """Return the current id of a chat; only the id of a group can change."""
        if not is_group(channel):
            return channel
        if channel not in self._current:
            self._current[channel] = await self._context.moved_to(channel)
        return self._current[channel]

    async def add(self, channel: str, to: str) -> None:
        """Record that a group has a new id."""
        await self._context.moved(channel, to)
        moved = {known: to if current == channel else current for known, current in self._current.items()}
        self._current = moved | {channel: to}


def group_albums(updates: Sequence[RawUpdate]) -> list[Group]:
    """Group the updates that belong to one album, at the position of the album's first part."""
    groups: dict[object, list[RawUpdate]] = {}
    for update in updates:
        groups.setdefault(_album_key(update) or update["update_id"], []).append(update)
    return list(groups.values())


def confirmable_groups(groups: Sequence[Group], unfinished: Sequence[Group]) -> Sequence[Group]:
    """Return the leading groups that can be confirmed without confirming a part of an unfinished group.

    Telegram confirms all updates up to one id, so an update between the parts of a later album cannot be confirmed
    alone.
    """
    end = next((at for at, group in enumerate(groups) if group in unfinished), len(groups))
    while end < len(groups) and any(
        int(group[-1]["update_id"]) > int(groups[end][0]["update_id"]) for group in groups[:end]
    ):
        end -= 1
    return groups[:end]


class OpenAlbums:
    """The albums to which another part may still arrive, with the time of their last part."""

    def __init__(self) -> None:
        self._sizes: dict[object, tuple[int, float]] = {}

    def find_open(self, groups: Sequence[Group], now: float) -> list[Group]:
        """Return the albums to which another part may still arrive; ``now`` is in seconds of a monotonic clock."""
        return [group for group in groups if self._is_open(group, now)]

    def _is_open(self, group: Group, now: float) -> bool:
        album = _album_key(group[0])
        if album is None:
            return False
        count, since = self._sizes.get(album, (0, now))
        if count != len(group):
            if len(self._sizes) >= MAX_ALBUMS:
                self._sizes.clear()
            self._sizes[album] = len(group), now
            return True
        return now - since < OPEN_SECONDS


def _album_key(update: RawUpdate) -> tuple[str, str] | None:
    """Return the key that all parts of an album share, None for a message outside an album."""
    for kind in ("message", "channel_post"):
        message = update.get(kind)
        if isinstance(message, dict) and isinstance(message.get("media_group_id"), str):
            chat = message.get("chat")
            return str(chat.get("id") if isinstance(chat, dict) else chat), message["media_group_id"]
    return None


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
        """Accept group messages only from these groups, under old and new ids; an empty list accepts all groups."""
        current = [await self._migrations.current_id(channel) for channel in channels]
        self._channels = frozenset([*channels, *current])

    async def take(self, group: Group) -> None:
        """Accept the updates of one message; raises ``Backlogged`` and the errors of the store."""
        events = [self._parse_update(update) for update in group]
        messages = [event for event in events if isinstance(event, IncomingMessage) and self._is_wanted(event)]
        if messages:
            await self._intake.accept_in_order(join_album(messages))
        for event in events:
            if isinstance(event, TelegramPress):
                await self._accept_press(event)
            elif isinstance(event, tuple):
                channel, to = event
                log.info("telegram.group_moved", channel=channel, to=to)
                await self._migrations.add(channel, to)
                self._channels = self._channels | {to} if channel in self._channels else self._channels

    def _parse_update(self, update: RawUpdate) -> TelegramEvent:
        try:
            parsed = telegram.Update.de_json(replace_unstorable(dict(update)), None)
            return migration_in(parsed) or press_in(parsed, self._bot) or message_in(parsed, self._bot)
        except UNREADABLE as error:
            # A malformed update is skipped: a retry would fail again and block later updates.
            kind = next((str(name) for name in update if name != "update_id"), "")
            log.warning("telegram.unreadable", kind=kind[:40], error=type(error).__name__)
            return None

    async def _accept_press(self, press: TelegramPress) -> None:
        """Accept the text behind a button, then confirm the press to Telegram."""
        content = await self._context.pressed(press.key, press.number) if press.number >= 0 else None
        message = press_message(press, content or "", datetime.now(UTC))
        is_known = content is not None and self._is_wanted(message)
        if is_known:
            await self._intake.accept_in_order(message)
        await self._confirm_press(press.query.id, "" if is_known else BUTTON_EXPIRED)

    def _is_wanted(self, message: IncomingMessage) -> bool:
        return message.is_direct or not self._channels or message.address.channel in self._channels

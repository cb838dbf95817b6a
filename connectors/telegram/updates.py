"""The intake of Telegram's updates over two transports: each update is stored in its chat's order, then confirmed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import NoReturn

import structlog
import telegram
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from telegram import WebhookInfo

from connectors.account import BUTTON_EXPIRED, AccountConnector, ButtonPress, MessageIntake
from connectors.base import ConnectorContext
from connectors.failures import AmbiguousSend
from connectors.telegram.api import RawUpdate, TelegramClient, TelegramConflict, telegram_errors
from connectors.telegram.receive import (
    KINDS,
    PRESS,
    TelegramBot,
    join_album,
    parse_button_press,
    parse_message_update,
    parse_migration,
)
from connectors.webhooks import WebhookEndpoint, is_same_secret, parse_object
from maestro.domain.messages import IncomingMessage
from maestro.domain.texts import replace_unstorable

Group = Sequence[RawUpdate]
"""The updates of one message: the parts of an album, or a single update."""

OPEN_SECONDS = 1.0
"""Seconds after the last part of an album in which another part may arrive."""
MAX_ALBUMS = 1_000

UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError, RuntimeError)
"""Errors that the library raises for updates that do not have the documented form."""

log = structlog.get_logger(__name__)

TelegramEvent = IncomingMessage | ButtonPress | tuple[str, str] | None

WAIT_SECONDS = 50
"""Seconds for which Telegram may hold a poll until there is an update."""

STORE_SECONDS = 20.0
"""Seconds to store an update in the inbox."""
LOOK_SECONDS = 60.0
"""Seconds between two checks of the webhook registration."""
SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header, not a secret


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

    async def add_migration(self, channel: str, new_id: str) -> None:
        """Record that a group has a new id."""
        await self._context.moved(channel, new_id)
        moved = {known: new_id if current == channel else current for known, current in self._current.items()}
        self._current = moved | {channel: new_id}


def group_albums(updates: Sequence[RawUpdate]) -> list[Group]:
    """Group the updates that belong to one album, at the position of the album's first part."""
    groups: dict[object, list[RawUpdate]] = {}
    for update in updates:
        groups.setdefault(_album_key(update) or update["update_id"], []).append(update)
    return list(groups.values())


def confirmable_groups(groups: Sequence[Group], unfinished: Sequence[Group]) -> Sequence[Group]:
    """Return the leading groups that can be confirmed without confirming part of an unfinished group.

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

    async def accept_updates(self, group: Group) -> None:
        """Accept the updates of one message; raises ``Backlogged`` and the errors of the store."""
        events = [self._parse_update(update) for update in group]
        messages = [event for event in events if isinstance(event, IncomingMessage) and self._is_in_enabled_chat(event)]
        if messages:
            await self._intake.accept_in_order(join_album(messages))
        for event in events:
            if isinstance(event, ButtonPress):
                await self._accept_press(event)
            elif isinstance(event, tuple):
                channel, to = event
                log.info("telegram.group_moved", channel=channel, to=to)
                await self._migrations.add_migration(channel, to)
                self._channels = self._channels | {to} if channel in self._channels else self._channels

    def _parse_update(self, update: RawUpdate) -> TelegramEvent:
        now = datetime.now(UTC)
        try:
            parsed = telegram.Update.de_json(replace_unstorable(dict(update)), None)
            return (
                parse_migration(parsed)
                or parse_button_press(parsed, self._bot, now)
                or parse_message_update(parsed, self._bot)
            )
        except UNREADABLE as error:
            # A malformed update is skipped: a retry would fail again and block later updates.
            kind = next((str(name) for name in update if name != "update_id"), "")
            log.warning("telegram.unreadable", kind=kind[:40], error=type(error).__name__)
            return None

    async def _accept_press(self, press: ButtonPress) -> None:
        """Accept the text behind a button, then confirm the press to Telegram."""
        content = await self._context.pressed(press.key, press.number) if press.number >= 0 else None
        is_known = content is not None and self._is_in_enabled_chat(press.message)
        if is_known:
            await self._intake.accept_in_order(press.message.model_copy(update={"content": content}))
        await self._confirm_press(press.message.id.removeprefix(PRESS), "" if is_known else BUTTON_EXPIRED)

    def _is_in_enabled_chat(self, message: IncomingMessage) -> bool:
        return message.is_direct or not self._channels or message.address.channel in self._channels


class TelegramPolling:
    """Long polling for the updates of one bot.

    Polling begins without an offset, because Telegram knows which updates are confirmed. No offset is stored: after a
    quiet week Telegram may continue with a lower number.
    """

    def __init__(
        self, client: TelegramClient, inbound: TelegramInbound, running: Callable[[], Awaitable[None]]
    ) -> None:
        """``running`` is called after each poll, once all its updates were accepted."""
        self._client = client
        self._inbound = inbound
        self._running = running
        self._albums = OpenAlbums()
        self._offset: int | None = None
        self._webhook_deleted = False
        self._wait = 0

    async def poll_updates(self) -> None:
        """Poll once and accept the updates; the next poll confirms only the accepted updates."""
        # The first poll, and a poll after a failure, returns at once, so that its answer proves the connection.
        wait, self._wait = self._wait, 0
        if not self._webhook_deleted:
            # Telegram refuses polling while a webhook is registered; the webhook's pending updates are kept.
            with telegram_errors():
                await self._client.delete_webhook(drop_pending_updates=False)
            self._webhook_deleted = True
        updates = await self._request_updates(wait)
        await self._accept_updates(updates)
        await self._running()
        self._wait = WAIT_SECONDS

    async def _request_updates(self, wait: int) -> Sequence[RawUpdate]:
        try:
            updates = await self._client.request_updates(self._offset, wait, KINDS)
        except TelegramConflict:
            # After a conflict a long poll is made. A short poll would end the other process's poll, and the other
            # process would then end the poll of this process, endlessly and without a pause.
            self._webhook_deleted, self._wait = False, WAIT_SECONDS
            raise
        numbered = [update for update in updates if isinstance(update.get("update_id"), int)]
        if updates and not numbered:
            raise AmbiguousSend("Telegram's answer could not be read: no update has an update_id")
        return numbered

    async def _accept_updates(self, updates: Sequence[RawUpdate]) -> None:
        groups = group_albums(updates)
        ready = confirmable_groups(groups, self._albums.find_open(groups, monotonic()))
        for group in ready:
            await self._inbound.accept_updates(group)
        if len(ready) < len(groups):
            self._offset = int(groups[len(ready)][0]["update_id"])
            # No part of an open album is confirmed, so the next poll returns the first parts again with later parts.
            await asyncio.sleep(OPEN_SECONDS)
        elif updates:
            self._offset = max(int(update["update_id"]) for update in updates) + 1


class TelegramEndpoint(WebhookEndpoint):
    """The webhook endpoint for Telegram's updates, guarded by a shared secret.

    Each part of an album is a message of its own here, because Telegram sends the next part only after the
    acknowledgement of the previous part.
    """

    def __init__(self, secret: str) -> None:
        super().__init__("Telegram", STORE_SECONDS)
        self._secret = secret

    async def receive_request(self, request: Request) -> Response:
        """Answer one request; the secret is in a header, so the body of a forged request is not read."""
        if not self.is_genuine(request.headers, b""):
            return PlainTextResponse("not signed by Telegram", HTTPStatus.UNAUTHORIZED)
        return await super().receive_request(request)

    def is_genuine(self, headers: Mapping[str, str], _: bytes) -> bool:
        """Tell whether the request's header contains the configured secret."""
        return is_same_secret(self._secret, headers.get(SECRET, ""))

    async def answer_genuine(self, _: Request, body: bytes) -> Response:
        """Store an update and acknowledge it."""
        update = parse_object(body)
        if not isinstance(update.get("update_id"), int):
            return PlainTextResponse("the body is not an update of Telegram", HTTPStatus.BAD_REQUEST)
        return await self.store_events([update])


async def keep_webhook_registered(
    connector: AccountConnector, client: TelegramClient, url: str, secret: str, detail: str
) -> NoReturn:
    """Register the webhook with Telegram, and check its registration and errors until cancelled.

    Another program may change the registration; Telegram never returns the secret for a comparison. Raises
    ``AccountRefused``.
    """
    seen = datetime.now(UTC)

    async def subscribe() -> None:
        with telegram_errors():
            await client.set_webhook(url, secret_token=secret, allowed_updates=KINDS)

    async def check() -> WebhookInfo:
        with telegram_errors():
            info = await client.get_webhook_info()
        if info.url != url or set(info.allowed_updates or KINDS) != set(KINDS):
            log.warning("telegram.webhook_changed")
            await subscribe()
        return info

    await connector.repeat_until_success(subscribe)
    while True:
        info = await connector.repeat_until_success(check)
        if info.last_error_date is not None and info.last_error_date > seen:
            seen = info.last_error_date
            reason = info.last_error_message or "Telegram gives no reason"
            await connector.report_broken(f"Telegram cannot post to webhookUrl: {reason}")
        else:
            await connector.report_running(detail)
        await asyncio.sleep(LOOK_SECONDS)

"""Pure functions that turn Slack's events and commands into incoming messages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from connectors.slack.platform import PLATFORM
from maestro.domain.messages import PAIR, Address, Addressing, Attachment, ControlWord, IncomingMessage

Event = Mapping[str, Any]
Names = Mapping[str, str]
"""Display names of users by their ids."""

CONTENT_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})
"""The message subtypes with content from a user; other subtypes report joins, topics and other changes."""
UNAVAILABLE_MODES = frozenset({"tombstone", "hidden_by_limit"})
"""Modes of files that were deleted, or that Slack hides."""

TS = re.compile(r"[0-9]{1,11}\.[0-9]{1,6}")
"""A message's timestamp, which is the message's id within its channel."""
_ANGLED = re.compile(r"<([^<>]*)>")
_SPECIAL = {"!here": "@here", "!channel": "@channel", "!everyone": "@everyone"}


@dataclass(frozen=True)
class SlackBot:
    """The bot's identity in a workspace; with ``every_line`` the bot answers also messages that do not mention it."""

    account: str
    team: str
    user_id: str
    bot_id: str
    name: str
    every_line: bool = False


def parse_message_event(event: Event, bot: SlackBot, names: Names) -> IncomingMessage | None:
    """Return the message of an event; None for an event without a message, and for the bot's own messages.

    Slack may send two events for one message, ``message`` and ``app_mention``. Both have the same channel and time,
    which form the id, so the second is a duplicate.
    """
    if event.get("type") not in ("message", "app_mention"):
        return None
    if event.get("subtype") == "message_changed":
        return _parse_edit(event, bot, names)
    return _parse_message(event, str(event.get("channel") or ""), bot, names)


def parse_slash_command(command: Event, bot: SlackBot, now: datetime) -> IncomingMessage | None:
    """Return a slash command as an incoming message, None for an unknown command."""
    content = _control_command(str(command.get("command") or ""), str(command.get("text") or ""))
    channel, trigger = str(command.get("channel_id") or ""), str(command.get("trigger_id") or "")
    if not content or not channel or not trigger:
        return None
    return IncomingMessage(
        id=f"command:{trigger}",
        address=Address(platform=PLATFORM, account=bot.account, channel=channel),
        user_id=str(command.get("user_id") or ""),
        user_name=str(command.get("user_name") or ""),
        content=content,
        sent_at=now,
        is_direct=is_direct(channel),
    )


def is_direct(channel: str) -> bool:
    """Tell whether a channel is a direct conversation with one user; direct messages of several users are groups."""
    return channel.startswith("D")


def find_author_id(event: Event) -> str:
    """Return the user id of an event's author, "" if the author is no user."""
    return str((event.get("message") or event).get("user") or "")


def _parse_message(event: Event, channel: str, bot: SlackBot, names: Names) -> IncomingMessage | None:
    ts, text = str(event.get("ts") or ""), str(event.get("text") or "")
    user, app = str(event.get("user") or ""), str(event.get("bot_id") or "")
    if str(event.get("subtype") or "") not in CONTENT_SUBTYPES or bot.user_id == user or (app and bot.bot_id == app):
        return None
    files = tuple(_parse_files(event))
    if not TS.fullmatch(ts) or not channel or not (user or app) or not (text.strip() or files):
        return None
    thread = str(event.get("thread_ts") or "")
    own_thread = "" if is_direct(channel) else ts  # In a channel, each message begins a thread of its own.
    return IncomingMessage(
        id=ts,
        address=Address(platform=PLATFORM, account=bot.account, channel=channel, thread=thread or own_thread),
        user_id=user or app,
        user_name=names.get(user) or str(event.get("username") or ""),
        content=_readable_content(text, bot, names),
        sent_at=message_time(ts),
        attachments=files,
        is_direct=is_direct(channel),
        from_bot=bool(app),
        reply_to=thread if thread != ts else "",
        addressing=_find_addressing(event, bot),
    )


def _find_addressing(event: Event, bot: SlackBot) -> Addressing:
    """Return how a message addresses the bot: by a mention, by a reply in a thread that the bot began, or not."""
    codes = _ANGLED.finditer(str(event.get("text")))
    if any(code[1].partition("|")[0] == f"@{bot.user_id}" for code in codes):
        return Addressing.US
    if event.get("parent_user_id") == bot.user_id:
        return Addressing.REPLY
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def _parse_edit(event: Event, bot: SlackBot, names: Names) -> IncomingMessage | None:
    """Return the new version of an edited message; changes by Slack itself, for example link previews, are no edits."""
    now, before = event.get("message") or {}, event.get("previous_message") or {}
    edited = str((now.get("edited") or {}).get("ts") or "")
    if not edited or now.get("text") == before.get("text"):
        return None
    message = _parse_message(now, str(event.get("channel") or ""), bot, names)
    if message is None:
        return None
    return message.model_copy(update={"id": f"{message.id}:{edited}", "edit_of": message.id})


def message_time(ts: str) -> datetime:
    """Return the time in a message id."""
    return datetime.fromtimestamp(float(ts), UTC)


def _parse_files(event: Event) -> Iterator[Attachment]:
    for file in event.get("files") or ():
        if file.get("id") and file.get("mode") not in UNAVAILABLE_MODES:
            yield Attachment(
                id=str(file["id"]),
                filename=str(file.get("name") or file.get("title") or ""),
                content_type=str(file.get("mimetype") or ""),
                size=max(0, int(file.get("size") or 0)),
            )


def _readable_content(text: str, bot: SlackBot, names: Names) -> str:
    """Return the text without Slack's codes; for a command after a mention, the command alone.

    Slack allows no slash commands in a thread, so users write ``@maestro /stop`` there.
    """
    plain = readable_text(text, {**names, bot.user_id: bot.name})
    addressed = plain.strip().removeprefix(f"@{bot.name}").strip()
    return addressed if addressed.startswith("/") else plain


def readable_text(text: str, names: Names) -> str:
    """Return the text with user names instead of ids, and with plain links."""
    decoded = _ANGLED.sub(lambda code: _decode_markup(code[1], names), text)
    return decoded.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _decode_markup(code: str, names: Names) -> str:
    target, _, label = code.partition("|")
    if target.startswith("@"):
        return "@" + (names.get(target[1:]) or label or target[1:])
    if target.startswith("#"):
        return "#" + (label or target[1:])
    if target.startswith("!"):
        return _SPECIAL.get(target) or label or target
    if target.startswith("mailto:"):
        return label or target.removeprefix("mailto:")
    return f"{label} ({target})" if label and label not in target else target


def _control_command(command: str, text: str) -> str:
    """Return the control word and arguments of a slash command, "" for an unknown command.

    ``/status`` belongs to Slack, so an app's command may be ``/maestro-status`` or ``/maestro status``.
    """
    name, arguments = command.strip().lower().lstrip("/"), text.strip()
    first, _, rest = arguments.partition(" ")
    known = (*ControlWord, PAIR)
    for word in known:
        if name == word[1:] or name.endswith(f"-{word[1:]}"):
            return f"{word} {arguments}".strip() if word == PAIR else str(word)
    for word in known:
        if first.lower().lstrip("/") == word[1:]:
            return f"{word} {rest.strip()}".strip() if word == PAIR else str(word)
    return ""

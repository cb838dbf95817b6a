"""Pure functions that turn events of rooms into incoming messages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from maestro.domain.messages import Address, Addressing, Attachment, IncomingMessage
from maestro_matrix.platform import NAME

Event = Mapping[str, Any]
Names = Mapping[str, str]
"""The display names of a room's members by user id."""

MESSAGE, ENCRYPTED, MEMBER, MOVED = "m.room.message", "m.room.encrypted", "m.room.member", "m.room.tombstone"
TEXTS = frozenset({"m.text", "m.emote", "m.notice", "m.location"})
FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
BOTS = "m.notice"
"""The message type of bots, by the convention of Matrix; bots do not answer it."""
INSIDE = frozenset({"invite", "join"})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 200_000_000_000_000
"""The latest accepted time, in milliseconds since 1970: Python cannot represent much later times."""
QUOTED = re.compile(r"\A(?:> [^\n]*\n)+\n")
"""The quoted message with which older clients begin a reply."""


@dataclass(frozen=True)
class MatrixBot:
    """The bot's identity on Matrix; with ``every_line`` the bot also answers messages that do not mention it."""

    account: str
    user_id: str
    every_line: bool = False

    @property
    def homeserver(self) -> str:
        """The name of the bot's homeserver, which is a part of every id that the homeserver assigns."""
        return self.user_id.partition(":")[2]


def parse_message(event: Event, room: str, bot: MatrixBot, names: Names) -> IncomingMessage | None:
    """Return the message of an event; None for an event without content and for the bot's own messages.

    A room of two members is a direct conversation. Whether a message replies to the bot is not known here.
    """
    content, relation = event["content"], _relation(event)
    edits = relation["event_id"] if relation.get("rel_type") == "m.replace" else ""
    new_content = content["m.new_content"] if edits else content
    kind = new_content.get("msgtype")
    if event["type"] != MESSAGE or event["sender"] == bot.user_id or kind not in TEXTS | FILES:
        return None
    thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else ""
    files, text = tuple(_files(new_content)), _text(new_content, names.get(event["sender"]) or event["sender"])
    if not (files or text.strip()):
        return None
    return IncomingMessage(
        id=event["event_id"],
        address=Address(platform=NAME, account=bot.account, channel=room, thread=thread),
        user_id=event["sender"],
        user_name=names.get(event["sender"]) or _local(event["sender"]),
        content=_command(text, bot, names),
        sent_at=event_time(event),
        attachments=files,
        is_direct=is_direct(names),
        from_bot=kind == BOTS,
        reply_to=_reply_to(relation),
        addressing=_addressing(new_content, text, bot, names),
        edit_of=edits,
    )


def is_direct(names: Names) -> bool:
    """Tell whether a room is a direct conversation of the bot with one user."""
    return len(names) == 2


def event_time(event: Event) -> datetime:
    """Return the time of an event as the sender's homeserver reports it, limited to valid times."""
    sent_at = event.get("origin_server_ts")
    return EPOCH + timedelta(milliseconds=min(max(sent_at, 0), LATEST) if isinstance(sent_at, int) else 0)


def events_since_invitation(events: Sequence[Event], bot: MatrixBot) -> tuple[Sequence[Event], bool]:
    """Return the events after the bot's invitation, or after its join without one, and whether these events show it.

    A user writes the first message right after the invitation, before the bot can accept the invitation.
    """
    for at in reversed(range(len(events))):
        before, after = _bot_membership(events[at], bot)
        if after in INSIDE and before not in INSIDE:
            return events[at + 1 :], True
    return events, False


def has_joined(events: Sequence[Event], bot: MatrixBot) -> bool:
    """Tell whether the bot joined the room in one of these events."""
    steps = (_bot_membership(event, bot) for event in events)
    return any(after == "join" and before != "join" for before, after in steps)


def find_inviter(invite: Mapping[str, Any], bot: MatrixBot) -> str:
    """Return the id of the user that invites the bot to a room, "" if unknown."""
    events = (invite.get("invite_state") or {}).get("events") or ()
    own_events = (one for one in events if one.get("type") == MEMBER and one.get("state_key") == bot.user_id)
    return next((str(one["sender"]) for one in own_events if one["content"].get("membership") == "invite"), "")


def _bot_membership(event: Event, bot: MatrixBot) -> tuple[str, str]:
    """Return the bot's membership before and after an event; "" for none, and for events about other users."""
    if event.get("type") != MEMBER or event.get("state_key") != bot.user_id:
        return "", ""
    before = (event.get("unsigned") or {}).get("prev_content") or {}
    return str(before.get("membership") or ""), str(event["content"].get("membership") or "")


def _relation(event: Event) -> Mapping[str, Any]:
    return event["content"].get("m.relates_to") or {}


def _reply_to(relation: Mapping[str, Any]) -> str:
    """Return the id of the message that is replied to; "" for the fallback that old clients show in a thread."""
    return "" if relation.get("is_falling_back") else str((relation.get("m.in_reply_to") or {}).get("event_id") or "")


def _text(new_content: Mapping[str, Any], author: str) -> str:
    """Return the text of a message; of a file, the caption, which exists only besides a separate file name."""
    body = str(new_content.get("body") or "")
    if new_content["msgtype"] in FILES:
        return body if new_content.get("filename") not in (None, body) else ""
    text = QUOTED.sub("", body) if "m.in_reply_to" in (new_content.get("m.relates_to") or {}) else body
    return f"* {author} {text}" if new_content["msgtype"] == "m.emote" else text


def _files(new_content: Mapping[str, Any]) -> Iterator[Attachment]:
    if new_content["msgtype"] in FILES and new_content.get("url"):
        about = new_content.get("info") or {}
        yield Attachment(
            id=str(new_content["url"]),
            filename=str(new_content.get("filename") or new_content.get("body") or ""),
            content_type=str(about.get("mimetype") or ""),
            size=max(0, int(about.get("size") or 0)),
        )


def _addressing(new_content: Mapping[str, Any], text: str, bot: MatrixBot, names: Names) -> Addressing:
    mentioned = (new_content.get("m.mentions") or {}).get("user_ids") or ()
    if bot.user_id in mentioned or re.search(rf"(?<!\w){_name_pattern(bot, names)}(?!\w)", text, re.IGNORECASE):
        return Addressing.US
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def _command(text: str, bot: MatrixBot, names: Names) -> str:
    """Return the text; of a command after a mention of the bot, only the command: clients keep ``/`` to themselves."""
    found = re.match(rf"@?{_name_pattern(bot, names)}\s*[:,]?\s*(/\w.*)", text.strip(), re.IGNORECASE | re.DOTALL)
    return found[1] if found else text


def _name_pattern(bot: MatrixBot, names: Names) -> str:
    """Return a pattern of the names by which users address the bot."""
    ways = {bot.user_id, f"@{_local(bot.user_id)}", names.get(bot.user_id) or _local(bot.user_id)}
    return f"(?:{'|'.join(re.escape(one) for one in sorted(ways, key=len, reverse=True))})"


def _local(user_id: str) -> str:
    return user_id.partition(":")[0].removeprefix("@")

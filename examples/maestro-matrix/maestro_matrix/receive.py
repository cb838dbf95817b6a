"""Events of rooms as messages: pure functions of what came over the wire."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from maestro.domain.messages import Address, Addressing, Attachment, IncomingMessage
from maestro_matrix.platform import NAME

Event = Mapping[str, Any]
Names = Mapping[str, str]
"""What everybody in a room is called, by their ids."""

MESSAGE, ENCRYPTED, MEMBER, MOVED = "m.room.message", "m.room.encrypted", "m.room.member", "m.room.tombstone"
TEXTS = frozenset({"m.text", "m.emote", "m.notice", "m.location"})
FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
BOTS = "m.notice"
"""What programs say, by the convention of Matrix; nobody is to answer it."""
INSIDE = frozenset({"invite", "join"})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 200_000_000_000_000
"""Milliseconds; later is no time that can be told."""
QUOTED = re.compile(r"\A(?:> [^\n]*\n)+\n")
"""How older clients begin a reply: with a copy of what it is about."""


@dataclass(frozen=True)
class Us:
    """Who we are, under the account of ours that it is; ``every_line``: none need mention us."""

    account: str
    user_id: str
    every_line: bool = False

    @property
    def homeserver(self) -> str:
        """The name of our homeserver, which is part of every id that it gives."""
        return self.user_id.partition(":")[2]


def heard(event: Event, room: str, us: Us, names: Names) -> IncomingMessage | None:
    """Return the message that an event is, None for one that says nothing, or that is ours.

    A room of two is a direct conversation. Whether a line that does not mention us replies to us is not known here.
    """
    content, relation = event["content"], _relation(event)
    edits = relation["event_id"] if relation.get("rel_type") == "m.replace" else ""
    said = content["m.new_content"] if edits else content
    kind = said.get("msgtype")
    if event["type"] != MESSAGE or event["sender"] == us.user_id or kind not in TEXTS | FILES:
        return None
    thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else ""
    files, text = tuple(_files(said)), _text(said, names.get(event["sender"]) or event["sender"])
    if not (files or text.strip()):
        return None
    return IncomingMessage(
        id=event["event_id"],
        address=Address(platform=NAME, account=us.account, channel=room, thread=thread),
        user_id=event["sender"],
        user_name=names.get(event["sender"]) or _local(event["sender"]),
        content=_command(text, us, names),
        sent_at=moment(event),
        attachments=files,
        is_direct=is_direct(names),
        from_bot=kind == BOTS,
        reply_to=_reply_to(relation),
        addressing=_addressing(said, text, us, names),
        edit_of=edits,
    )


def is_direct(names: Names) -> bool:
    """Tell whether a room is one person's with us."""
    return len(names) == 2


def moment(event: Event) -> datetime:
    """Return when an event was sent, as its sender's homeserver says, which may say anything."""
    told = event.get("origin_server_ts")
    return EPOCH + timedelta(milliseconds=min(max(told, 0), LATEST) if isinstance(told, int) else 0)


def since_let_in(events: Sequence[Event], us: Us) -> tuple[Sequence[Event], bool]:
    """Return what came after we were invited, or came without, and whether that was among these events.

    Who begins a conversation writes the first line at once, before we can have accepted the invitation.
    """
    for at in reversed(range(len(events))):
        before, after = _our_membership(events[at], us)
        if after in INSIDE and before not in INSIDE:
            return events[at + 1 :], True
    return events, False


def came(events: Sequence[Event], us: Us) -> bool:
    """Tell whether we came into the room with one of these events."""
    steps = (_our_membership(event, us) for event in events)
    return any(after == "join" and before != "join" for before, after in steps)


def invitation(told: Mapping[str, Any], us: Us) -> str:
    """Return who invites us to a room, "" when that is not told."""
    events = (told.get("invite_state") or {}).get("events") or ()
    ours = (one for one in events if one.get("type") == MEMBER and one.get("state_key") == us.user_id)
    return next((str(one["sender"]) for one in ours if one["content"].get("membership") == "invite"), "")


def _our_membership(event: Event, us: Us) -> tuple[str, str]:
    """Return what we were to the room before an event and after it, "" for nothing, or nothing that it is about."""
    if event.get("type") != MEMBER or event.get("state_key") != us.user_id:
        return "", ""
    before = (event.get("unsigned") or {}).get("prev_content") or {}
    return str(before.get("membership") or ""), str(event["content"].get("membership") or "")


def _relation(event: Event) -> Mapping[str, Any]:
    return event["content"].get("m.relates_to") or {}


def _reply_to(relation: Mapping[str, Any]) -> str:
    """Return what a message replies to; in a thread, clients that know none are told the message before it."""
    return "" if relation.get("is_falling_back") else str((relation.get("m.in_reply_to") or {}).get("event_id") or "")


def _text(said: Mapping[str, Any], author: str) -> str:
    """Return what somebody wrote; of a file it is what stands below it, if its name is told apart from that."""
    body = str(said.get("body") or "")
    if said["msgtype"] in FILES:
        return body if said.get("filename") not in (None, body) else ""
    text = QUOTED.sub("", body) if "m.in_reply_to" in (said.get("m.relates_to") or {}) else body
    return f"* {author} {text}" if said["msgtype"] == "m.emote" else text


def _files(said: Mapping[str, Any]) -> Iterator[Attachment]:
    if said["msgtype"] in FILES and said.get("url"):
        about = said.get("info") or {}
        yield Attachment(
            id=str(said["url"]),
            filename=str(said.get("filename") or said.get("body") or ""),
            content_type=str(about.get("mimetype") or ""),
            size=max(0, int(about.get("size") or 0)),
        )


def _addressing(said: Mapping[str, Any], text: str, us: Us, names: Names) -> Addressing:
    mentioned = (said.get("m.mentions") or {}).get("user_ids") or ()
    if us.user_id in mentioned or re.search(rf"(?<!\w){_called(us, names)}(?!\w)", text, re.IGNORECASE):
        return Addressing.US
    return Addressing.ANYBODY if us.every_line else Addressing.NOBODY


def _command(text: str, us: Us, names: Names) -> str:
    """Return the text; a command that is said to us is the command alone, for clients keep ``/`` to themselves."""
    found = re.match(rf"@?{_called(us, names)}\s*[:,]?\s*(/\w.*)", text.strip(), re.IGNORECASE | re.DOTALL)
    return found[1] if found else text


def _called(us: Us, names: Names) -> str:
    """Return a pattern of how people may write whom they mean."""
    ways = {us.user_id, f"@{_local(us.user_id)}", names.get(us.user_id) or _local(us.user_id)}
    return f"(?:{'|'.join(re.escape(one) for one in sorted(ways, key=len, reverse=True))})"


def _local(user_id: str) -> str:
    return user_id.partition(":")[0].removeprefix("@")

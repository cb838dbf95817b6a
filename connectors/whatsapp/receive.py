"""Meta's requests as events: messages of every kind, statuses of sent messages, and new numbers of users."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from connectors.whatsapp.api import failure_sentence
from connectors.whatsapp.config import PLATFORM
from maestro.domain.messages import Address, Attachment, IncomingMessage, ReceiptReport, ReceiptState

Json = Mapping[str, Any]

SILENT = frozenset({"reaction", "revoke", "request_welcome", "ephemeral"})
"""Kinds of messages without content."""
MEDIA = ("image", "video", "audio", "voice", "document", "sticker")
UNKNOWN = "[a message of a kind that WhatsApp does not hand on]"
MOST_LISTED = 10

FIELD = "messages"
STANDINGS: Mapping[str, ReceiptState] = {
    "sent": ReceiptState.SENT,
    "delivered": ReceiptState.DELIVERED,
    "read": ReceiptState.READ,
    "played": ReceiptState.READ,
    "failed": ReceiptState.FAILED,
}
EDIT, SYSTEM = "edit", "system"
NEW_NUMBER = "user_changed_number"
_PRESS = re.compile(r"([A-Za-z0-9]{1,25}):([0-9]{1,2})")
"""The payload of a sent button: the key of its message and its number."""
_KEY = re.compile(r"[A-Za-z0-9]{1,25}")


@dataclass(frozen=True)
class MessageText:
    """The content of a message; ``handed_back`` is the payload of a pressed button or ""."""

    content: str
    attachments: tuple[Attachment, ...] = ()
    handed_back: str = ""


def text_of(message: Json) -> MessageText:
    """Return the content of a message; raises ``ValueError`` or a similar error for an unknown form."""
    kind = str(message.get("type") or "")
    if kind in MEDIA:
        return _media(message[kind])
    read = _KINDS.get(kind)
    return read(message[kind]) if read is not None else MessageText(UNKNOWN)


def _text(part: Json) -> MessageText:
    return MessageText(str(part["body"]))


def _media(part: Json) -> MessageText:
    content_type = str(part.get("mime_type") or "").partition(";")[0].strip()
    file = Attachment(id=str(part["id"]), filename=str(part.get("filename") or ""), content_type=content_type)
    return MessageText(str(part.get("caption") or ""), (file,))


def _interactive(part: Json) -> MessageText:
    kind = str(part["type"])
    if kind not in ("button_reply", "list_reply"):
        return MessageText(f"[a filled-in form: {_part(part, kind).get('body') or kind!s}]")
    reply = part[kind]
    return MessageText(str(reply["title"]), handed_back=str(reply["id"]))


def _button(part: Json) -> MessageText:
    """Read a quick reply below a template; the operator defined its payload."""
    return MessageText(str(part["text"]), handed_back=str(part.get("payload") or ""))


def _location(part: Json) -> MessageText:
    where = [f"{float(part['latitude'])}, {float(part['longitude'])}"]
    return MessageText(
        f"[location: {', '.join(where + [str(part[name]) for name in ('name', 'address') if part.get(name)])}]"
    )


def _contacts(part: list[Json]) -> MessageText:
    return MessageText("\n".join(f"[contact: {_contact(one)}]" for one in part[:MOST_LISTED]))


def _contact(one: Json) -> str:
    numbers = [str(phone.get("phone") or "") for phone in one.get("phones") or ()]
    return ", ".join(said for said in (str(_part(one, "name").get("formatted_name") or ""), *numbers) if said)


def _order(part: Json) -> MessageText:
    count = len(part.get("product_items") or ())
    said = str(part.get("text") or "")
    return MessageText(
        f"[an order of {count} {'product' if count == 1 else 'products'}]" + (f" {said}" if said else "")
    )


def _part(part: Json, name: str) -> Json:
    found = part.get(name)
    return found if isinstance(found, dict) else {}


_KINDS: Mapping[str, Callable[[Any], MessageText]] = {
    "text": _text,
    "interactive": _interactive,
    "button": _button,
    "location": _location,
    "contacts": _contacts,
    "order": _order,
}


@dataclass(frozen=True)
class WhatsAppNumber:
    """The connected number, and its account in Maestro."""

    account: str
    number_id: str


@dataclass(frozen=True)
class WhatsAppPress:
    """A button press: the key of its message and its number."""

    key: str
    number: int


@dataclass(frozen=True)
class WhatsAppMessage:
    """A message; if it has a ``press``, its content is only the label of the pressed button."""

    message: IncomingMessage
    press: WhatsAppPress | None = None


@dataclass(frozen=True)
class StatusReport:
    """The status of a sent message."""

    key: str
    report: ReceiptReport


@dataclass(frozen=True)
class NumberChange:
    """The new number of a user."""

    channel: str
    to: str


@dataclass(frozen=True)
class ForeignEvents:
    """The number of events in a request that concern another number."""

    count: int


@dataclass(frozen=True)
class SkippedEvent:
    """A skipped event, and the reason."""

    why: str


WhatsAppEvent = WhatsAppMessage | StatusReport | NumberChange | ForeignEvents | SkippedEvent


def events_in(payload: Json, number: WhatsAppNumber) -> Iterator[WhatsAppEvent]:
    """Yield all events of a request, in their order."""
    for entry in _objects(payload.get("entry")):
        for change in _objects(entry.get("changes")):
            if change.get("field") == FIELD:
                yield from _of(_object(change.get("value")), number)


def press_in(handed_back: str) -> WhatsAppPress | None:
    """Return the button press with this payload, None for any other payload."""
    found = _PRESS.fullmatch(handed_back)
    return WhatsAppPress(found[1], int(found[2])) if found else None


def author_of(message: Json) -> str:
    """Return the author's id: the number without its plus, or Meta's id of a user without a visible number."""
    return str(message.get("from") or message.get("from_user_id") or "")


def _of(value: Json, number: WhatsAppNumber) -> Iterator[WhatsAppEvent]:
    messages, statuses = _objects(value.get("messages")), _objects(value.get("statuses"))
    if _object(value.get("metadata")).get("phone_number_id") != number.number_id:
        yield ForeignEvents(len(messages) + len(statuses))
        return
    if value.get("errors"):
        yield SkippedEvent(failure_sentence(value["errors"]))
    names = _names(value)
    yield from (found for one in messages if (found := _readable(_message, one, number, names)) is not None)
    yield from (found for one in statuses if (found := _readable(_status, one)) is not None)


def _readable(read: Callable[..., WhatsAppEvent | None], *about: object) -> WhatsAppEvent | None:
    try:
        return read(*about)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        # A malformed message is skipped: a retry would fail again and block the messages after it.
        return SkippedEvent(f"unreadable ({type(error).__name__})")


def _message(message: Json, number: WhatsAppNumber, names: Mapping[str, str]) -> WhatsAppEvent | None:
    kind = str(message.get("type") or "")
    if kind in SILENT:
        return None
    if kind == SYSTEM:
        return _system(message)
    if message.get("group_id"):
        return SkippedEvent("a message in a group")
    return _edited(message, number, names) if kind == EDIT else _received(message, number, names)


def _received(message: Json, number: WhatsAppNumber, names: Mapping[str, str]) -> WhatsAppMessage:
    author, words = author_of(message), text_of(message)
    if not author.strip() or not (words.content.strip() or words.attachments):
        raise ValueError("nobody said anything")
    said = IncomingMessage(
        id=str(message["id"]),
        address=Address(platform=PLATFORM, account=number.account, channel=author),
        user_id=author,
        user_name=names.get(author, ""),
        content=words.content,
        sent_at=datetime.fromtimestamp(int(message["timestamp"]), UTC),
        attachments=words.attachments,
        is_direct=True,
        reply_to=str(_object(message.get("context")).get("id") or ""),
    )
    return WhatsAppMessage(said, press_in(words.handed_back))


def _edited(message: Json, number: WhatsAppNumber, names: Mapping[str, str]) -> WhatsAppMessage:
    """Return the new text of an edited message; the edit has an id of its own."""
    edit = message[EDIT]
    said = _received({**message, **edit["message"]}, number, names).message
    own = {"id": str(message["id"]), "edit_of": str(edit["original_message_id"])}
    return WhatsAppMessage(IncomingMessage.model_validate({**said.model_dump(), **own}))


def _system(message: Json) -> NumberChange | None:
    told = _object(message.get(SYSTEM))
    before, after = author_of(message), str(told.get("wa_id") or "")
    return NumberChange(before, after) if told.get("type") == NEW_NUMBER and before and after else None


def _status(status: Json) -> StatusReport | None:
    key, standing = str(status.get("biz_opaque_callback_data") or ""), STANDINGS.get(str(status.get("status")))
    if standing is None or not _KEY.fullmatch(key):
        return None
    error = failure_sentence(status.get("errors")) if standing is ReceiptState.FAILED else ""
    return StatusReport(key, ReceiptReport(platform_message_id=str(status["id"]), standing=standing, error=error))


def _names(value: Json) -> Mapping[str, str]:
    """Return the display names of users, by both of their ids."""
    return {
        str(contact[of]): str(_object(contact.get("profile")).get("name") or "")
        for contact in _objects(value.get("contacts"))
        for of in ("wa_id", "user_id")
        if contact.get(of)
    }


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

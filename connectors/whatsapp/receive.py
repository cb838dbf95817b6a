"""The conversion of Meta's requests into events: messages, statuses of sent messages, and new numbers of users."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from connectors.whatsapp.api import describe_errors
from connectors.whatsapp.platform import PLATFORM
from maestro.domain.messages import Address, Attachment, IncomingMessage, ReceiptReport, ReceiptState

Json = Mapping[str, Any]

SILENT = frozenset({"reaction", "revoke", "request_welcome", "ephemeral"})
"""Types of messages without content, which are skipped."""
MEDIA = ("image", "video", "audio", "voice", "document", "sticker")
UNKNOWN = "[a message of a type that WhatsApp does not pass on]"
MAX_CONTACTS = 10

STATES: Mapping[str, ReceiptState] = {
    "sent": ReceiptState.SENT,
    "delivered": ReceiptState.DELIVERED,
    "read": ReceiptState.READ,
    "played": ReceiptState.READ,
    "failed": ReceiptState.FAILED,
}
EDIT, SYSTEM = "edit", "system"
_PRESS = re.compile(r"([A-Za-z0-9]{1,25}):([0-9]{1,2})")
"""The payload of a button that Maestro sent: the key of its message and the button's number."""
_KEY = re.compile(r"[A-Za-z0-9]{1,25}")


@dataclass(frozen=True)
class MessageText:
    """The content of a message; ``payload`` is the payload of a pressed button or ""."""

    content: str
    attachments: tuple[Attachment, ...] = ()
    payload: str = ""


def message_text(message: Json) -> MessageText:
    """Return the content of a message; raises ``ValueError`` or a similar error for a malformed message."""
    kind = str(message.get("type") or "")
    if kind in MEDIA:
        return _read_media(message[kind])
    read = _KINDS.get(kind)
    return read(message[kind]) if read is not None else MessageText(UNKNOWN)


def _read_media(part: Json) -> MessageText:
    content_type = str(part.get("mime_type") or "").partition(";")[0].strip()
    file = Attachment(id=str(part["id"]), filename=str(part.get("filename") or ""), content_type=content_type)
    return MessageText(str(part.get("caption") or ""), (file,))


def _read_interactive(part: Json) -> MessageText:
    kind = str(part["type"])
    if kind not in ("button_reply", "list_reply"):
        return MessageText(f"[a filled-in form: {_as_object(part.get(kind)).get('body') or kind!s}]")
    reply = part[kind]
    return MessageText(str(reply["title"]), payload=str(reply["id"]))


def _read_location(part: Json) -> MessageText:
    names = [str(part[name]) for name in ("name", "address") if part.get(name)]
    return MessageText(
        f"[location: {', '.join([str(float(part['latitude'])), str(float(part['longitude'])), *names])}]"
    )


def _read_contacts(part: list[Json]) -> MessageText:
    lines = []
    for contact in part[:MAX_CONTACTS]:
        name = str(_as_object(contact.get("name")).get("formatted_name") or "")
        phones = (str(phone.get("phone") or "") for phone in contact.get("phones") or ())
        lines.append(f"[contact: {', '.join(filter(None, (name, *phones)))}]")
    return MessageText("\n".join(lines))


def _read_order(part: Json) -> MessageText:
    count = len(part.get("product_items") or ())
    text = str(part.get("text") or "")
    return MessageText(f"[an order of {count} {'product' if count == 1 else 'products'}] {text}".rstrip())


_KINDS: Mapping[str, Callable[[Any], MessageText]] = {
    "text": lambda part: MessageText(str(part["body"])),
    "interactive": _read_interactive,
    # The press of a quick reply below a template; the operator defined the payload.
    "button": lambda part: MessageText(str(part["text"]), payload=str(part.get("payload") or "")),
    "location": _read_location,
    "contacts": _read_contacts,
    "order": _read_order,
}


@dataclass(frozen=True)
class WhatsAppNumber:
    """The connected number, and its account in Maestro."""

    account: str
    number_id: str


@dataclass(frozen=True)
class WhatsAppMessage:
    """A received message; for a button press, ``press`` is the key and button number, and the content is the label."""

    message: IncomingMessage
    press: tuple[str, int] | None = None


@dataclass(frozen=True)
class StatusReport:
    """The status of the sent message with this key."""

    key: str
    report: ReceiptReport


@dataclass(frozen=True)
class NumberChange:
    """The change of a user's number, which is the channel's id, to another number."""

    channel: str
    to: str


@dataclass(frozen=True)
class ForeignEvents:
    """The count of events in a request that concern another number of the business account."""

    count: int


@dataclass(frozen=True)
class SkippedEvent:
    """An event that was skipped, and the reason."""

    why: str


WhatsAppEvent = WhatsAppMessage | StatusReport | NumberChange | ForeignEvents | SkippedEvent


def parse_events(payload: Json, number: WhatsAppNumber) -> Iterator[WhatsAppEvent]:
    """Yield all events of a request, in their order."""
    for entry in _as_objects(payload.get("entry")):
        for change in _as_objects(entry.get("changes")):
            if change.get("field") == "messages":
                yield from _events_of_change(_as_object(change.get("value")), number)


def parse_button_press(payload: str) -> tuple[str, int] | None:
    """Return the key of the message and the number of the button with this payload, None for any other payload."""
    match = _PRESS.fullmatch(payload)
    return (match[1], int(match[2])) if match else None


def author_id(message: Json) -> str:
    """Return the author's id: the number without its plus, or Meta's id of a user without a visible number."""
    return str(message.get("from") or message.get("from_user_id") or "")


def _events_of_change(value: Json, number: WhatsAppNumber) -> Iterator[WhatsAppEvent]:
    messages, statuses = _as_objects(value.get("messages")), _as_objects(value.get("statuses"))
    if _as_object(value.get("metadata")).get("phone_number_id") != number.number_id:
        yield ForeignEvents(len(messages) + len(statuses))
        return
    if value.get("errors"):
        yield SkippedEvent(describe_errors(value["errors"]))
    names = _display_names(value)
    events = [_read_safely(_read_message, message, number, names) for message in messages]
    events += [_read_safely(_read_status, status) for status in statuses]
    yield from (event for event in events if event is not None)


def _read_safely(read: Callable[..., WhatsAppEvent | None], *arguments: object) -> WhatsAppEvent | None:
    try:
        return read(*arguments)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        # A malformed message is skipped: a retry would fail again and block later messages.
        return SkippedEvent(f"unreadable ({type(error).__name__})")


def _read_message(message: Json, number: WhatsAppNumber, names: Mapping[str, str]) -> WhatsAppEvent | None:
    kind = str(message.get("type") or "")
    if kind in SILENT:
        return None
    if kind == SYSTEM:
        system = _as_object(message.get(SYSTEM))
        before, after = author_id(message), str(system.get("wa_id") or "")
        return NumberChange(before, after) if system.get("type") == "user_changed_number" and before and after else None
    if message.get("group_id"):
        return SkippedEvent("a message in a group")
    if kind != EDIT:
        return _read_incoming(message, number, names)
    edit = message[EDIT]
    edited = _read_incoming({**message, **edit["message"]}, number, names).message
    ids = {"id": str(message["id"]), "edit_of": str(edit["original_message_id"])}
    return WhatsAppMessage(IncomingMessage.model_validate({**edited.model_dump(), **ids}))


def _read_incoming(message: Json, number: WhatsAppNumber, names: Mapping[str, str]) -> WhatsAppMessage:
    author, text = author_id(message), message_text(message)
    if not author.strip() or not (text.content.strip() or text.attachments):
        raise ValueError("the message has no author or no content")
    received = IncomingMessage(
        id=str(message["id"]),
        address=Address(platform=PLATFORM, account=number.account, channel=author),
        user_id=author,
        user_name=names.get(author, ""),
        content=text.content,
        sent_at=datetime.fromtimestamp(int(message["timestamp"]), UTC),
        attachments=text.attachments,
        is_direct=True,
        reply_to=str(_as_object(message.get("context")).get("id") or ""),
    )
    return WhatsAppMessage(received, parse_button_press(text.payload))


def _read_status(status: Json) -> StatusReport | None:
    key, state = str(status.get("biz_opaque_callback_data") or ""), STATES.get(str(status.get("status")))
    if state is None or not _KEY.fullmatch(key):
        return None
    error = describe_errors(status.get("errors")) if state is ReceiptState.FAILED else ""
    return StatusReport(key, ReceiptReport(platform_message_id=str(status["id"]), standing=state, error=error))


def _display_names(value: Json) -> Mapping[str, str]:
    """Return the display names of users, by number and by Meta's id."""
    return {
        str(contact[of]): str(_as_object(contact.get("profile")).get("name") or "")
        for contact in _as_objects(value.get("contacts"))
        for of in ("wa_id", "user_id")
        if contact.get(of)
    }


def _as_objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _as_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

"""The kinds of messages that people send, as what they say: text, files by reference, or a short text in brackets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maestro.domain.messages import Attachment

Json = Mapping[str, Any]

SILENT = frozenset({"reaction", "revoke", "request_welcome", "ephemeral"})
"""Kinds that say nothing to anybody."""
MEDIA = ("image", "video", "audio", "voice", "document", "sticker")
UNKNOWN = "[a message of a kind that WhatsApp does not hand on]"
MOST_LISTED = 10


@dataclass(frozen=True)
class Words:
    """What a message says; ``handed_back`` is what a pressed button brings with it, empty where none was pressed."""

    content: str
    attachments: tuple[Attachment, ...] = ()
    handed_back: str = ""


def words_of(message: Json) -> Words:
    """Return what a message says; raises ``ValueError`` and the like for one that has not the shape of its kind."""
    kind = str(message.get("type") or "")
    if kind in MEDIA:
        return _media(message[kind])
    read = _KINDS.get(kind)
    return read(message[kind]) if read is not None else Words(UNKNOWN)


def _text(part: Json) -> Words:
    return Words(str(part["body"]))


def _media(part: Json) -> Words:
    content_type = str(part.get("mime_type") or "").partition(";")[0].strip()
    file = Attachment(id=str(part["id"]), filename=str(part.get("filename") or ""), content_type=content_type)
    return Words(str(part.get("caption") or ""), (file,))


def _interactive(part: Json) -> Words:
    kind = str(part["type"])
    if kind not in ("button_reply", "list_reply"):
        return Words(f"[a filled-in form: {_of(part, kind).get('body') or kind!s}]")
    reply = part[kind]
    return Words(str(reply["title"]), handed_back=str(reply["id"]))


def _button(part: Json) -> Words:
    """A quick reply below a template, whose payload is what the operator gave it."""
    return Words(str(part["text"]), handed_back=str(part.get("payload") or ""))


def _location(part: Json) -> Words:
    where = [f"{float(part['latitude'])}, {float(part['longitude'])}"]
    return Words(
        f"[location: {', '.join(where + [str(part[name]) for name in ('name', 'address') if part.get(name)])}]"
    )


def _contacts(part: list[Json]) -> Words:
    return Words("\n".join(f"[contact: {_contact(one)}]" for one in part[:MOST_LISTED]))


def _contact(one: Json) -> str:
    numbers = [str(phone.get("phone") or "") for phone in one.get("phones") or ()]
    return ", ".join(said for said in (str(_of(one, "name").get("formatted_name") or ""), *numbers) if said)


def _order(part: Json) -> Words:
    count = len(part.get("product_items") or ())
    said = str(part.get("text") or "")
    return Words(f"[an order of {count} {'product' if count == 1 else 'products'}]" + (f" {said}" if said else ""))


def _of(part: Json, name: str) -> Json:
    found = part.get(name)
    return found if isinstance(found, dict) else {}


_KINDS: Mapping[str, Callable[[Any], Words]] = {
    "text": _text,
    "interactive": _interactive,
    "button": _button,
    "location": _location,
    "contacts": _contacts,
    "order": _order,
}

"""The rules of the Graph API: what a message may be, and which code refuses what it may not."""

import re
from collections.abc import Callable, Mapping

from tests.support.whatsapp_server.business import TEMPLATE, Business, Json

IMAGES = ("image/jpeg", "image/png")
SOUNDS = ("audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg")
FILMS = ("video/mp4", "video/3gpp")
DOCUMENTS = ("text/plain", "application/pdf", "application/msword", "application/vnd.ms-excel")
MEGABYTE = 1024**2
LARGEST = {"image": 5 * MEGABYTE, "audio": 16 * MEGABYTE, "video": 16 * MEGABYTE, "document": 100 * MEGABYTE}
FORBIDDEN_IN_TEMPLATES = re.compile(r"[\n\t]| {5,}")


class GraphError(Exception):
    """A refusal by its code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


def check(allowed: object, code: int = 100) -> None:
    """Refuse what is not allowed."""
    if not allowed:
        raise GraphError(code)


def check_message(business: Business, body: Json) -> None:
    """Refuse a message that WhatsApp would refuse."""
    kind = body.get("type", "text")
    person = body.get("to") or body.get("recipient")
    check(body.get("messaging_product") == "whatsapp")
    check(isinstance(person, str) and person)
    check(len(body.get("biz_opaque_callback_data", "")) <= 512)
    check(kind in _CHECKS, 131051)
    check(kind == "template" or business.is_open(str(person)), 131047)
    _CHECKS[kind](business, body[kind])


def _text(_: Business, part: Json) -> None:
    check(0 < len(part["body"]) <= 4096)


def _reaction(_: Business, part: Json) -> None:
    check(part["message_id"].startswith("wamid.") and part["emoji"])


def _interactive(_: Business, part: Json) -> None:
    check(0 < len(part["body"]["text"]) <= 1024)
    if part["type"] == "button":
        replies = [button["reply"] for button in part["action"]["buttons"]]
        check(1 <= len(replies) <= 3)
        check(all(1 <= len(reply["title"]) <= 20 and len(reply["id"]) <= 256 for reply in replies))
        check(len({reply["title"] for reply in replies}) == len(replies), 131009)
        return
    rows = [row for section in part["action"]["sections"] for row in section["rows"]]
    check(part["type"] == "list" and 1 <= len(rows) <= 10 and len(part["action"]["button"]) <= 20)
    check(all(1 <= len(row["title"]) <= 24 and len(row.get("description", "")) <= 72 for row in rows))
    check(len({row["id"] for row in rows}) == len(rows), 131009)


def _template(_: Business, part: Json) -> None:
    check((part["name"], part["language"]["code"]) == (TEMPLATE, "en"), 132001)
    [component] = part["components"]
    check(component["type"] == "body" and len(component["parameters"]) == 1, 132000)
    said = component["parameters"][0]["text"]
    check(said and len(said) <= 1024 and not FORBIDDEN_IN_TEMPLATES.search(said), 132012)


def _file(kind: str, types: tuple[str, ...]) -> Callable[[Business, Json], None]:
    def look(business: Business, part: Json) -> None:
        file = business.files.get(part["id"])
        check(file is not None)
        assert file is not None
        check(file.mime_type in types and len(file.content) <= LARGEST[kind], 131053)
        check(len(part.get("caption", "")) <= 1024 and not (kind == "audio" and "caption" in part))

    return look


_CHECKS: Mapping[str, Callable[[Business, Json], None]] = {
    "text": _text,
    "reaction": _reaction,
    "interactive": _interactive,
    "template": _template,
    "image": _file("image", IMAGES),
    "audio": _file("audio", SOUNDS),
    "video": _file("video", FILMS),
    "document": _file("document", (*DOCUMENTS, *IMAGES, *SOUNDS, *FILMS)),
}
UPLOADED = frozenset({*IMAGES, *SOUNDS, *FILMS, *DOCUMENTS, "image/webp"})

"""What Meta posts as what it means: pure functions that are never stopped by what has not the shape it should have."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from connectors.whatsapp.config import PLATFORM
from connectors.whatsapp.errors import failure_sentence
from connectors.whatsapp.kinds import SILENT, words_of
from maestro.domain.messages import Address, IncomingMessage, Report, Standing

Json = Mapping[str, Any]

FIELD = "messages"
STANDINGS: Mapping[str, Standing] = {
    "sent": Standing.SENT,
    "delivered": Standing.DELIVERED,
    "read": Standing.READ,
    "played": Standing.READ,
    "failed": Standing.FAILED,
}
EDIT, SYSTEM = "edit", "system"
NEW_NUMBER = "user_changed_number"
_PRESS = re.compile(r"([A-Za-z0-9]{1,25}):([0-9]{1,2})")
"""What a button of ours hands back: the key of its message and its number."""
_KEY = re.compile(r"[A-Za-z0-9]{1,25}")


@dataclass(frozen=True)
class Us:
    """Which number is ours, under the account that it has here."""

    account: str
    number_id: str


@dataclass(frozen=True)
class Press:
    """A button of ours, by the key of its message and its number."""

    key: str
    number: int


@dataclass(frozen=True)
class Said:
    """A message; with a ``press`` what the button says is asked for, and the content is what stands on it."""

    message: IncomingMessage
    press: Press | None = None


@dataclass(frozen=True)
class Told:
    """What became of a message of ours."""

    key: str
    report: Report


@dataclass(frozen=True)
class Moved:
    """A person goes on under another number."""

    channel: str
    to: str


@dataclass(frozen=True)
class Other:
    """So much of a request that is about another number than ours."""

    count: int


@dataclass(frozen=True)
class Passed:
    """What is passed over, and why."""

    why: str


Happening = Said | Told | Moved | Other | Passed


def happenings(payload: Json, us: Us) -> Iterator[Happening]:
    """Yield all that a request tells of, in its order."""
    for entry in _objects(payload.get("entry")):
        for change in _objects(entry.get("changes")):
            if change.get("field") == FIELD:
                yield from _of(_object(change.get("value")), us)


def pressed(handed_back: str) -> Press | None:
    """Return the button of ours that hands this back, None where it is none of ours."""
    found = _PRESS.fullmatch(handed_back)
    return Press(found[1], int(found[2])) if found else None


def author_of(message: Json) -> str:
    """Return the id of who wrote: the number without its plus, or Meta's own id of who shows no number."""
    return str(message.get("from") or message.get("from_user_id") or "")


def _of(value: Json, us: Us) -> Iterator[Happening]:
    messages, statuses = _objects(value.get("messages")), _objects(value.get("statuses"))
    if _object(value.get("metadata")).get("phone_number_id") != us.number_id:
        yield Other(len(messages) + len(statuses))
        return
    if value.get("errors"):
        yield Passed(failure_sentence(value["errors"]))
    names = _names(value)
    yield from (found for one in messages if (found := _readable(_message, one, us, names)) is not None)
    yield from (found for one in statuses if (found := _readable(_status, one)) is not None)


def _readable(read: Callable[..., Happening | None], *about: object) -> Happening | None:
    try:
        return read(*about)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        # What has not the shape of a message is none when it comes again either, and must hold up no other.
        return Passed(f"unreadable ({type(error).__name__})")


def _message(message: Json, us: Us, names: Mapping[str, str]) -> Happening | None:
    kind = str(message.get("type") or "")
    if kind in SILENT:
        return None
    if kind == SYSTEM:
        return _system(message)
    if message.get("group_id"):
        return Passed("a message in a group")
    return _edited(message, us, names) if kind == EDIT else _said(message, us, names)


def _said(message: Json, us: Us, names: Mapping[str, str]) -> Said:
    author, words = author_of(message), words_of(message)
    if not author.strip() or not (words.content.strip() or words.attachments):
        raise ValueError("nobody said anything")
    said = IncomingMessage(
        id=str(message["id"]),
        address=Address(platform=PLATFORM, account=us.account, channel=author),
        user_id=author,
        user_name=names.get(author, ""),
        content=words.content,
        sent_at=datetime.fromtimestamp(int(message["timestamp"]), UTC),
        attachments=words.attachments,
        is_direct=True,
        reply_to=str(_object(message.get("context")).get("id") or ""),
    )
    return Said(said, pressed(words.handed_back))


def _edited(message: Json, us: Us, names: Mapping[str, str]) -> Said:
    """Return the new text of a message; the edit has an id of its own."""
    edit = message[EDIT]
    said = _said({**message, **edit["message"]}, us, names).message
    own = {"id": str(message["id"]), "edit_of": str(edit["original_message_id"])}
    return Said(IncomingMessage.model_validate({**said.model_dump(), **own}))


def _system(message: Json) -> Moved | None:
    told = _object(message.get(SYSTEM))
    before, after = author_of(message), str(told.get("wa_id") or "")
    return Moved(before, after) if told.get("type") == NEW_NUMBER and before and after else None


def _status(status: Json) -> Told | None:
    key, standing = str(status.get("biz_opaque_callback_data") or ""), STANDINGS.get(str(status.get("status")))
    if standing is None or not _KEY.fullmatch(key):
        return None
    error = failure_sentence(status.get("errors")) if standing is Standing.FAILED else ""
    return Told(key, Report(platform_message_id=str(status["id"]), standing=standing, error=error))


def _names(value: Json) -> Mapping[str, str]:
    """Return what people call themselves, by either of their ids."""
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

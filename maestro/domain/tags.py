"""The tags in a model's answer: one grammar, read by one pure function (decision 7; contract, Tags)."""

from dataclasses import dataclass
from enum import StrEnum


class TagName(StrEnum):
    """Every tag there is."""

    MEMORY = "MEMORY"
    STATE = "STATE"
    DELEGATE = "DELEGATE"
    CREATE_AGENT = "CREATE_AGENT"
    UPDATE_AGENT = "UPDATE_AGENT"
    CREATE_CRON = "CREATE_CRON"
    CREATE_HEARTBEAT = "CREATE_HEARTBEAT"
    CREATE_CLIENT = "CREATE_CLIENT"


CONDUCTOR_TAGS = frozenset(TagName) - {TagName.MEMORY, TagName.STATE, TagName.DELEGATE}
"""The tags that only a conductor's answer acts on."""


@dataclass(frozen=True)
class Tag:
    """One tag of an answer: its key (category, key or slug, as written), the words after the key, and what it holds.

    ``complete`` is false for a block that was never closed: it is reported and not acted on.
    """

    name: TagName
    key: str
    options: tuple[str, ...]
    body: str
    complete: bool


@dataclass(frozen=True)
class Parsed:
    """What people may see of an answer, and its tags in the order they were written."""

    visible: str
    tags: tuple[Tag, ...]


def parse(answer: str) -> Parsed:
    """Read an answer."""
    return Parsed(answer.strip(), ())

"""Actions: the recorded outcomes of the tags in an answer, and the check whether a tag is a quotation."""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.tags.grammar import Tag, TagName

RUN_CHARS = 5
"""The length in characters of the runs that are compared; unrelated texts have many shorter runs in common."""
SHORT_BODY_CHARS = 8
"""The fewest characters of a tag body that is compared by runs; of a shorter body, body and key must be equal."""


class ActionState(StrEnum):
    """The outcome of a tag.

    ``refused``: the tag may not act, because a permission is missing or the tag is a quotation. ``failed``: the tag
    cannot be done as written.
    """

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


KEPT_AS = "kept as "
"""The prefix of ``detail`` if a memory tag named an unknown category, so that the nearest category was used."""


def needs_report(state: ActionState, detail: str) -> bool:
    """Return whether the outcome of a tag differs from what its agent wrote, so that the agent must be informed."""
    return state is not ActionState.DONE or detail.startswith(KEPT_AS)


class Action(SQLModel, table=True):
    """The outcome of the tag at position ``seq`` of a job's answer; ``detail`` is the sentence shown to users."""

    __tablename__ = "actions"
    __table_args__ = (UniqueConstraint("job_id", "seq"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    seq: int
    tag: str
    subject: str = ""
    state: ActionState = Field(sa_type=enum_column_type(ActionState))
    detail: str = ""
    at: datetime = Field(sa_type=UtcDateTime)


def normalize_texts(texts: Iterable[str]) -> str:
    """Return texts as one normalized text, without the differences that a model makes when it quotes.

    Case, white space, punctuation, markup and the escapes of JSON and HTML (in which tools return texts) are removed.
    Letters, digits, brackets and slashes remain.
    """
    return "".join(map(_normalize_text, texts))


def is_quotation(tag: Tag, sources: str) -> bool:
    """Return whether a tag in an answer repeats a tag in ``sources``, normalized texts that the agent was given.

    Each opening tag of the same name in ``sources`` begins a known body, which ends at the next tag of that name. The
    tag is a quotation if at least half of its body, in runs of ``RUN_CHARS`` characters, occurs in known bodies. It
    therefore remains a quotation when the model closes it, omits or reorders lines, changes a value or the key, or
    joins parts of several sources. A body of fewer than ``SHORT_BODY_CHARS`` characters is a quotation if a known tag
    begins with the same key and body.

    The body alone, without a tag, may occur in the sources: with "remember that I like tea" a user asks for a fact. The
    time grows about linearly with the length of the sources.
    """
    head, body = _normalize_text(tag.key + "".join(tag.options)) + "]", _normalize_text(tag.body)
    directives = find_directives(tag.name, sources, len(head) + len(body))
    if len(body) < SHORT_BODY_CHARS:
        return any(directive.startswith(head + body) for directive in directives)
    runs, known_runs = _character_runs(body), set[str]().union(*map(_character_runs, directives))
    return 2 * len(runs & known_runs) >= len(runs)


def find_directives(name: TagName, sources: str, longest: int) -> Iterator[str]:
    """Yield the text after each opening tag of this name; without a closing tag, only ``longest`` characters."""
    marks = list(re.finditer(rf"\[(/?){_normalize_text(name)}", sources))
    for number, mark in enumerate(marks):
        if mark[1]:
            continue
        following = marks[number + 1] if number + 1 < len(marks) else None
        end = following.start() if following else len(sources)
        is_closed = following is not None and bool(following[1])
        yield sources[mark.end() : end if is_closed else min(end, mark.end() + longest)]


def _character_runs(text: str) -> set[str]:
    return {text[start : start + RUN_CHARS] for start in range(len(text) - RUN_CHARS + 1)}


def _normalize_text(text: str) -> str:
    plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda escape: chr(int(escape[1], 16)), html.unescape(text))
    plain = unicodedata.normalize("NFKC", re.sub(r"\\[nrt]", " ", plain)).casefold()
    return re.sub(r"[^\w\[\]/]|_", "", plain)

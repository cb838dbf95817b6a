"""What operators look for in the audit log, and how it is shown to them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from maestro.domain.fields import Moment, SearchText, in_order
from maestro.domain.jobs.filters import PageCursor
from maestro.domain.people.people import AuditEntry
from maestro.domain.values import Value, View, readable_by

LIMIT = 100
MOST = 1000


class AuditFilter(Value):
    """Which entries are wanted.

    ``actor``, ``action`` and ``subject`` are whole. ``since`` counts itself, ``until`` does not.
    """

    actor: SearchText | None = Field(default=None, description="the author, such as operator, viewer or unknown")
    action: SearchText | None = Field(default=None, description="such as login or job.resume")
    subject: SearchText | None = Field(default=None, description="what it was done to, such as the id of a job")
    q: SearchText | None = Field(default=None, description="a part of any text of an entry, in any case")
    since: Moment | None = Field(default=None, description="from this time on, UTC")
    until: Moment | None = Field(default=None, description="before this time, UTC")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        in_order(self.since, self.until)
        return self


class AuditQuery(AuditFilter):
    """A filter and a page of its result; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(lambda text: read_mark(text))] | None = None

    @property
    def after(self) -> "AuditMark | None":
        """Return where the page begins."""
        return read_mark(self.cursor) if self.cursor is not None else None


AuditMark = tuple[datetime, int]
"""When the last entry of a page was written, and its number."""


def read_mark(text: str) -> AuditMark:
    """Read a cursor; raises ``ValueError`` for a text that is none of ours."""
    cursor = PageCursor.decode(text)
    if not (cursor.job_id.isascii() and cursor.job_id.isdecimal() and len(cursor.job_id) < 19):
        raise ValueError("this is not a cursor from an earlier answer")
    return cursor.created_at, int(cursor.job_id)


class AuditView(View):
    """Who did what to what, and from where; ``origin`` is an address, and empty for a terminal of this machine."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: str
    origin: str


class AuditPage(View):
    """Entries, newest first."""

    items: tuple[AuditView, ...]
    next: str | None


def mark_of(entry: AuditEntry) -> AuditMark:
    """Return where a page goes on that ended with this entry."""
    return entry.at, entry.id or 0


def audit_page(entries: Sequence[AuditEntry], limit: int) -> AuditPage:
    """Show a page of what was read, which has one entry too many while there are more."""
    shown = entries[:limit]
    at, number = mark_of(shown[-1]) if shown else (None, 0)
    following = PageCursor(at, str(number)).encode() if at is not None and len(entries) > limit else None
    return AuditPage(items=tuple(map(AuditView.model_validate, shown)), next=following)


COLUMNS = tuple(AuditView.model_fields)


def audit_rows(entries: Sequence[AuditEntry]) -> Iterator[tuple[str, ...]]:
    """Yield the texts of entries, in the order of ``COLUMNS``."""
    for entry in entries:
        yield (
            str(entry.id),
            entry.at.isoformat(),
            entry.actor,
            entry.action,
            entry.subject,
            entry.detail,
            entry.origin,
        )

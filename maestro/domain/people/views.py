"""The API models of owners, known users, pairings, invitations, ignored messages and the audit log."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from maestro.domain.jobs.filters import PageCursor
from maestro.domain.people.people import AuditEntry, KnownPerson, Owner, Pairing, PairingStatus, PersonId
from maestro.domain.values import Moment, Page, SearchText, Value, View, readable_by, require_time_order

LIMIT = 100
MOST = 1000


class PairingView(View):
    """An unknown user's request for access; ``status`` is pending, approved, refused or expired."""

    id: int
    code: str
    person: str
    user_name: str
    account: str
    channel: str
    status: str
    created_at: datetime
    expires_at: datetime
    settled_at: datetime | None
    settled_by: str


class PairingPage(Page[PairingView]):
    """A page of pairings, newest first."""


class PairingApproval(Value):
    """The options for the approval of a pairing."""

    owner: bool = Field(default=False, description="whether the user also becomes an owner")


class InvitationView(View):
    """The code of an invitation, which is shown only once; the user sends ``/pair`` and the code."""

    code: str
    owner: bool
    expires_at: datetime


class PersonView(View):
    """A user that an operator approved."""

    id: str
    user_name: str
    added_at: datetime
    added_by: str


class PersonPage(Page[PersonView]):
    """A page of known users by platform and user id."""


class IgnoredView(View):
    """The number of messages in a channel that were ignored before a job was created, for one reason."""

    platform: str
    account: str
    channel: str
    reason: str
    count: int
    first_at: datetime
    last_at: datetime


class IgnoredPage(Page[IgnoredView]):
    """A page of counts of ignored messages, the largest first."""


def pairing_view(row: Pairing, now: datetime) -> PairingView:
    """Return the API model of a pairing; a pending pairing past its expiry is shown as expired."""
    is_expired = row.status is PairingStatus.PENDING and not row.is_open(now)
    person = str(PersonId(row.platform, row.user_id))
    return PairingView.from_row(row, person=person, status="expired" if is_expired else str(row.status))


def person_view(row: KnownPerson) -> PersonView:
    return PersonView.from_row(row, id=str(PersonId(row.platform, row.user_id)))


class AuditFilter(Value):
    """A filter of audit entries.

    ``actor``, ``action`` and ``subject`` match whole values. ``since`` is inclusive, ``until`` exclusive.
    """

    actor: SearchText | None = Field(default=None, description="the author, such as operator, viewer or unknown")
    action: SearchText | None = Field(default=None, description="the action, such as login or job.resume")
    subject: SearchText | None = Field(default=None, description="the changed object, such as the id of a job")
    q: SearchText | None = Field(default=None, description="a part of any text of an entry, upper or lower case")
    since: Moment | None = Field(default=None, description="from this time on, UTC")
    until: Moment | None = Field(default=None, description="before this time, UTC")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        require_time_order(self.since, self.until)
        return self


class AuditQuery(AuditFilter):
    """A filter of the audit log and the requested page; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(PageCursor.parse_row_position)] | None = None


class AuditView(View):
    """An entry of the audit log: actor, action, subject and origin.

    ``origin`` is a network address, empty for an action from this machine's terminal.
    """

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: str
    origin: str


class AuditPage(Page[AuditView]):
    """A page of the audit log, newest first."""


def audit_page(entries: Sequence[AuditEntry], limit: int) -> AuditPage:
    """Return a page of up to ``limit`` entries; ``entries`` has one entry more if there is a next page."""
    items = tuple(map(AuditView.model_validate, entries[:limit]))
    cursor = PageCursor(items[-1].at, str(items[-1].id)).encode_text() if len(entries) > limit else None
    return AuditPage(items=items, next=cursor)


COLUMNS = tuple(AuditView.model_fields)


def audit_rows(entries: Sequence[AuditEntry]) -> Iterator[tuple[str, ...]]:
    """Yield the entries as rows of text, in the order of ``COLUMNS``."""
    for entry in entries:
        yield str(entry.id), entry.at.isoformat(), *(getattr(entry, name) for name in COLUMNS[2:])


class OwnerView(View):
    """An owner; ``configured`` means that the configuration names the user.

    ``added_at`` and ``added_by`` are set if a command added the owner.
    """

    id: str
    platform: str
    user_id: str
    configured: bool
    added_at: datetime | None = None
    added_by: str = ""


class OwnerPage(Page[OwnerView]):
    """All owners by platform and user id; ``next`` is always null."""

    next: str | None = None


def owner_page(configured: Iterable[str], owners: Sequence[Owner]) -> OwnerPage:
    """Return every owner once, from the configuration (``platform:userId``), from commands, or both."""
    named = {PersonId.parse_text(text) for text in configured}
    rows = {PersonId(row.platform, row.user_id): row for row in owners}
    views = []
    for person in sorted(named | {*rows}):
        added = rows[person].model_dump(include={"added_at", "added_by"}) if person in rows else {}
        views.append(OwnerView(id=str(person), **person._asdict(), configured=person in named, **added))
    return OwnerPage(items=tuple(views))

"""The API models of known users, pairings, invitations and counts of ignored messages."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from maestro.domain.people.people import IgnoredLines, KnownPerson, Pairing, PairingStatus, PersonId
from maestro.domain.values import Value, View

RAN_OUT = "expired"


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


class PairingPage(View):
    """Pairings, newest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[PairingView, ...]
    next: str | None


class PairingApproval(Value):
    """The options for the approval of a pairing."""

    owner: bool = Field(default=False, description="whether the user becomes an owner too")


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


class PersonPage(View):
    """Known users by platform and user id; ``next`` is the last id of this page while there are more."""

    items: tuple[PersonView, ...]
    next: str | None


class IgnoredView(View):
    """The number of messages in a channel that were ignored before a job was created, for one reason."""

    platform: str
    account: str
    channel: str
    reason: str
    count: int
    first_at: datetime
    last_at: datetime


class IgnoredPage(View):
    """Counts of ignored messages, the largest first; ``next`` is the offset of the following page, null at the end."""

    items: tuple[IgnoredView, ...]
    next: str | None


def pairing_view(row: Pairing, now: datetime) -> PairingView:
    """Return the API model of a pairing; a pending one past its time is expired."""
    over = row.status is PairingStatus.PENDING and not row.waits(now)
    fields = row.model_dump(include=set(PairingView.model_fields) - {"status"})
    person = str(PersonId(row.platform, row.user_id))
    return PairingView(**fields, person=person, status=RAN_OUT if over else str(row.status))


def pairing_page(rows: Sequence[Pairing], limit: int, now: datetime) -> PairingPage:
    """Return a page of pairings; ``rows`` has one more than ``limit`` where there are more."""
    following = str(rows[limit - 1].id) if len(rows) > limit else None
    return PairingPage(items=tuple(pairing_view(row, now) for row in rows[:limit]), next=following)


def person_view(row: KnownPerson) -> PersonView:
    """Return the API model of a known user."""
    return PersonView(
        id=str(PersonId(row.platform, row.user_id)),
        user_name=row.user_name,
        added_at=row.added_at,
        added_by=row.added_by,
    )


def person_page(rows: Sequence[KnownPerson], limit: int) -> PersonPage:
    """Return a page of known users; ``rows`` has one more than ``limit`` where there are more."""
    items = tuple(map(person_view, rows[:limit]))
    return PersonPage(items=items, next=items[-1].id if len(rows) > limit else None)


def ignored_page(rows: Sequence[IgnoredLines], offset: int, limit: int) -> IgnoredPage:
    """Return a page of counts; ``rows`` has one more than ``limit`` where there are more."""
    items = tuple(map(IgnoredView.model_validate, rows[:limit]))
    return IgnoredPage(items=items, next=str(offset + limit) if len(rows) > limit else None)

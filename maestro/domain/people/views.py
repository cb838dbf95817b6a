"""The API models of known users, pairings, invitations and counts of ignored messages."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from maestro.domain.people.people import IgnoredLines, KnownPerson, Pairing, PairingStatus, PersonId
from maestro.domain.values import Page, Value, View


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
    columns = row.model_dump(include=set(PairingView.model_fields) - {"status"})
    person = str(PersonId(row.platform, row.user_id))
    return PairingView(**columns, person=person, status="expired" if is_expired else str(row.status))


def pairing_page(rows: Sequence[Pairing], limit: int, now: datetime) -> PairingPage:
    """Return a page of pairings; ``rows`` has more than ``limit`` rows if there is a next page."""
    items = tuple(pairing_view(row, now) for row in rows[:limit])
    return PairingPage(items=items, next=str(items[-1].id) if len(rows) > limit else None)


def person_view(row: KnownPerson) -> PersonView:
    """Return the API model of a known user."""
    columns = row.model_dump(include={"user_name", "added_at", "added_by"})
    return PersonView(id=str(PersonId(row.platform, row.user_id)), **columns)


def person_page(rows: Sequence[KnownPerson], limit: int) -> PersonPage:
    """Return a page of known users; ``rows`` has more than ``limit`` rows if there is a next page."""
    items = tuple(map(person_view, rows[:limit]))
    return PersonPage(items=items, next=items[-1].id if len(rows) > limit else None)


def ignored_page(rows: Sequence[IgnoredLines], offset: int, limit: int) -> IgnoredPage:
    """Return a page of counts; ``rows`` has more than ``limit`` rows if there is a next page."""
    items = tuple(map(IgnoredView.model_validate, rows[:limit]))
    return IgnoredPage(items=items, next=str(offset + limit) if len(rows) > limit else None)

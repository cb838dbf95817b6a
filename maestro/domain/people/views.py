"""People who are known, who wishes to be, and what was dropped at the door, as operators see them."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from maestro.domain.people.people import IgnoredLines, KnownPerson, Pairing, PairingStatus, PersonId
from maestro.domain.values import Value, View

RAN_OUT = "expired"


class PairingView(View):
    """A person's wish to be let in; ``status`` is pending, approved, refused or expired."""

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
    """Wishes, newest first."""

    items: tuple[PairingView, ...]
    next: str | None


class PairingApproval(Value):
    """How a person is let in."""

    owner: bool = Field(default=False, description="whether the person becomes an owner too")


class InvitationView(View):
    """The code of an invitation, which is told only now; the person sends ``/pair`` and the code."""

    code: str
    owner: bool
    expires_at: datetime


class PersonView(View):
    """A person whom an operator let in."""

    id: str
    user_name: str
    added_at: datetime
    added_by: str


class PersonPage(View):
    """People by platform and user id; ``next`` is the last id of this page while there are more."""

    items: tuple[PersonView, ...]
    next: str | None


class IgnoredView(View):
    """How many messages of a channel were dropped at the door, for one reason."""

    platform: str
    account: str
    channel: str
    reason: str
    count: int
    first_at: datetime
    last_at: datetime


class IgnoredPage(View):
    """Counts, the largest first."""

    items: tuple[IgnoredView, ...]
    next: str | None


def pairing_view(row: Pairing, now: datetime) -> PairingView:
    """Show a wish; one that nobody settled in time is expired."""
    over = row.status is PairingStatus.PENDING and not row.waits(now)
    fields = row.model_dump(include=set(PairingView.model_fields) - {"status"})
    person = str(PersonId(row.platform, row.user_id))
    return PairingView(**fields, person=person, status=RAN_OUT if over else str(row.status))


def pairing_page(rows: Sequence[Pairing], limit: int, now: datetime) -> PairingPage:
    """Show a page of wishes; ``rows`` has one more than ``limit`` where there are more."""
    following = str(rows[limit - 1].id) if len(rows) > limit else None
    return PairingPage(items=tuple(pairing_view(row, now) for row in rows[:limit]), next=following)


def person_view(row: KnownPerson) -> PersonView:
    """Show a person."""
    return PersonView(
        id=str(PersonId(row.platform, row.user_id)),
        user_name=row.user_name,
        added_at=row.added_at,
        added_by=row.added_by,
    )


def person_page(rows: Sequence[KnownPerson], limit: int) -> PersonPage:
    """Show a page of people; ``rows`` has one more than ``limit`` where there are more."""
    items = tuple(map(person_view, rows[:limit]))
    return PersonPage(items=items, next=items[-1].id if len(rows) > limit else None)


def ignored_page(rows: Sequence[IgnoredLines], offset: int, limit: int) -> IgnoredPage:
    """Show a page of counts; ``rows`` has one more than ``limit`` where there are more."""
    items = tuple(map(IgnoredView.model_validate, rows[:limit]))
    return IgnoredPage(items=items, next=str(offset + limit) if len(rows) > limit else None)

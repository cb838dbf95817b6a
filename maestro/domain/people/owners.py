"""The owners as people write them and as operators see them (docs/decisions.md: access)."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from maestro.domain.people.people import Owner
from maestro.domain.values import View


class PersonId(NamedTuple):
    """A person on a platform, written ``platform:userId``."""

    platform: str
    user_id: str

    @classmethod
    def parse(cls, text: str) -> "PersonId":
        """Read ``platform:userId``, which must be well formed; the user id may contain colons."""
        platform, _, user_id = text.partition(":")
        return cls(platform, user_id)

    def __str__(self) -> str:
        """Write it as in the configuration."""
        return f"{self.platform}:{self.user_id}"


class OwnerView(View):
    """An owner; ``configured`` says that the configuration names them, ``added_at`` when a command did."""

    id: str
    platform: str
    user_id: str
    configured: bool
    added_at: datetime | None = None
    added_by: str = ""


class OwnerPage(View):
    """The owners by platform and user id; all of them, so ``next`` is always null."""

    items: tuple[OwnerView, ...]
    next: str | None = None


def owner_page(configured: Iterable[str], added: Sequence[Owner]) -> OwnerPage:
    """Show every owner once, whether the configuration names them (``platform:userId``), a command, or both."""
    named = {PersonId.parse(text) for text in configured}
    rows = {PersonId(row.platform, row.user_id): row for row in added}
    return OwnerPage(
        items=tuple(_view(person, person in named, rows.get(person)) for person in sorted(named | {*rows}))
    )


def _view(person: PersonId, configured: bool, row: Owner | None) -> OwnerView:
    return OwnerView(
        id=str(person),
        platform=person.platform,
        user_id=person.user_id,
        configured=configured,
        added_at=row.added_at if row else None,
        added_by=row.added_by if row else "",
    )

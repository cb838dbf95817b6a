"""The owners that were added while Maestro runs; those of the configuration are not here.

See docs/decisions.md: access.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select

from maestro.domain.people.owners import PersonId
from maestro.domain.people.people import Owner
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Owners(Repository):
    """Persons whose word always counts."""

    _HAS = Prepared(
        select(Owner.user_id).where(
            col(Owner.platform) == bindparam("platform"), col(Owner.user_id) == bindparam("user_id")
        )
    )

    def all(self) -> Sequence[Owner]:
        """Return every owner by platform and user id."""
        return self._session.exec(select(Owner).order_by(col(Owner.platform), col(Owner.user_id))).all()

    def has(self, person: PersonId) -> bool:
        """Say whether this person is one of them."""
        return self._row(self._HAS, **person._asdict()) is not None

    def add(self, person: PersonId, by: str) -> bool:
        """Make this person an owner; false when they are one already."""
        if self.has(person):
            return False
        self._session.add(Owner(platform=person.platform, user_id=person.user_id, added_at=self._now, added_by=by))
        self._session.flush()
        return True

    def remove(self, person: PersonId) -> bool:
        """Take this back; false when they are none."""
        found = self._session.get(Owner, (person.platform, person.user_id))
        if found is None:
            return False
        self._session.delete(found)
        self._session.flush()
        return True

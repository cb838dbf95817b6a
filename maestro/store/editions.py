"""What tells whether rows are as they were."""

from sqlmodel import select

from maestro.domain.editions import Edition
from maestro.domain.editions import Editions as Stamps
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Editions(Repository):
    """The editions of each kind of rows; of accounts, only what decides which of them is asked first."""

    _ALL = Prepared(select(Edition.name, Edition.stamp))

    def now(self) -> Stamps:
        """Return all of them, as this transaction sees them now.

        What is made of the rows after that, and before this transaction changes them, may be kept under the stamp.
        """
        found = dict(self._rows(self._ALL))
        return Stamps(*map(found.get, Stamps._fields))

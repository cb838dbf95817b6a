"""What was dropped at the door: counts only, for such a message leaves no row of its own."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func
from sqlmodel import col, select

from maestro.domain.messages import Address
from maestro.domain.people.ignored import IgnoredLines
from maestro.store.prepared import insert
from maestro.store.repository import Repository


class Ignored(Repository):
    """A row for each channel and reason."""

    _ADD = insert(IgnoredLines)
    _COUNT = _ADD.on_conflict_do_update(
        index_elements=["platform", "account", "channel", "reason"],
        set_={"count": col(IgnoredLines.count) + _ADD.excluded.count, "last_at": _ADD.excluded.last_at},
    )

    def add(self, address: Address, reason: str, count: int = 1) -> None:
        """Count a message, or several at once."""
        place = {"platform": address.platform, "account": address.account, "channel": address.channel}
        self._run(self._COUNT, **place, reason=reason, count=count, first_at=self._now, last_at=self._now)

    def page(self, offset: int, limit: int) -> Sequence[IgnoredLines]:
        """Return the counts, the largest first."""
        place = (col(IgnoredLines.platform), col(IgnoredLines.account), col(IgnoredLines.channel))
        page = select(IgnoredLines).order_by(col(IgnoredLines.count).desc(), *place, col(IgnoredLines.reason))
        return self._session.exec(page.limit(limit).offset(offset)).all()

    def by_reason(self) -> Mapping[str, int]:
        """Return how many messages were dropped for each reason."""
        sums = select(IgnoredLines.reason, func.sum(IgnoredLines.count)).group_by(IgnoredLines.reason)
        return {reason: int(count) for reason, count in self._run(sums)}

"""Claims and progress of background work that one process at a time does (``maestro.domain.maintenance``)."""

from datetime import timedelta

from sqlalchemy import or_, update
from sqlmodel import col

from maestro.domain.maintenance import MaintenanceName, MaintenanceTask
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import insert


class MaintenanceTasks(Repository):
    """Queries for the table ``maintenance``."""

    def find_task(self, name: MaintenanceName) -> MaintenanceTask | None:
        """Return the state of a kind of work, None before its first claim."""
        return self._session.get(MaintenanceTask, str(name))

    def claim(self, name: MaintenanceName, holder: str, lasts: timedelta) -> MaintenanceTask | None:
        """Claim or renew the work for ``lasts``; return its state, or None while another process holds it.

        A claim that begins later than it may last counts as over: the clock was set back.
        """
        first = insert(MaintenanceTask).values(
            name=str(name), holder="", held_until=self._now, position="", finished_at=None, result=""
        )
        self._run_statement(first.on_conflict_do_nothing())
        row = MaintenanceTask
        free = or_(
            col(row.holder).in_((holder, "")),
            col(row.held_until) <= self._now,
            col(row.held_until) > self._now + 2 * lasts,
        )
        taken = update(row).where(col(row.name) == str(name), free)
        claimed = self._run_statement(taken.values(holder=holder, held_until=self._now + lasts)).rowcount
        return self.find_task(name) if claimed else None

    def save_progress(self, name: MaintenanceName, holder: str, **values: object) -> bool:
        """Update columns of the work's row; return False, without a change, if another process holds the work."""
        row = MaintenanceTask
        mine = update(row).where(col(row.name) == str(name), col(row.holder) == holder)
        return bool(self._run_statement(mine.values(**values)).rowcount)

    def release(self, name: MaintenanceName, holder: str) -> None:
        """Let another process claim the work at once."""
        row = MaintenanceTask
        mine = update(row).where(col(row.name) == str(name), col(row.holder) == holder)
        self._run_statement(mine.values(holder=""))

"""Who did what to what."""

from collections.abc import Sequence

from sqlmodel import col, select

from maestro.domain.people.people import AuditEntry
from maestro.store.repository import Repository


class Audit(Repository):
    """The audit log; entries are only ever added."""

    def add(self, actor: str, action: str, subject: str = "", detail: str = "") -> None:
        """Note an action."""
        self._session.add(AuditEntry(at=self._now, actor=actor, action=action, subject=subject, detail=detail))

    def latest(self, limit: int) -> Sequence[AuditEntry]:
        """Return the newest entries first."""
        return self._session.exec(select(AuditEntry).order_by(col(AuditEntry.id).desc()).limit(limit)).all()

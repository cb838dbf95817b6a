"""The audit log (actions with the network address that each came from), and the versions of overridden settings."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, or_, tuple_
from sqlmodel import col, func, select

from maestro.domain.people.people import AuditEntry
from maestro.domain.people.views import AuditFilter
from maestro.domain.settings.live import SettingsVersion
from maestro.store.engine.repository import Repository

_ORIGIN: ContextVar[str] = ContextVar("origin", default="")


@contextlib.contextmanager
def set_origin(address: str) -> Iterator[None]:
    """Record a network address as the origin of all audit entries that are written within the block.

    The code that writes entries does not know the address. Threads started within the block (``asyncio.to_thread``, and
    those of the routes) inherit the address; other tasks, such as the dispatcher, do not.
    """
    token = _ORIGIN.set(address)
    try:
        yield
    finally:
        _ORIGIN.reset(token)


def current_origin() -> str:
    """Return the network address from which the current action came, or an empty text."""
    return _ORIGIN.get()


class Audit(Repository):
    """Queries for the audit log; its entries are never changed or deleted."""

    def add_entry(self, actor: str, action: str, subject: str = "", detail: str = "") -> None:
        """Add an entry for an action, with the network address from which the action came."""
        self._session.add(
            AuditEntry(
                at=self._now, actor=actor, action=action, subject=subject, detail=detail, origin=current_origin()
            )
        )

    def list_latest_entries(self, limit: int) -> Sequence[AuditEntry]:
        """Return up to ``limit`` audit entries, newest first."""
        return self._find_all(select(AuditEntry).order_by(col(AuditEntry.id).desc()).limit(limit))

    def list_entry_page(
        self, audit_filter: AuditFilter, after: tuple[datetime, int] | None, limit: int
    ) -> Sequence[AuditEntry]:
        """Return up to ``limit`` audit entries that follow a time and an id, newest first."""
        # Each index ends with the time. With a sort by time instead of id, SQLite reads a page from one index.
        newest_first = (col(AuditEntry.at).desc(), col(AuditEntry.id).desc())
        page = select(AuditEntry).where(*_filter_conditions(audit_filter)).order_by(*newest_first).limit(limit)
        if after is not None:
            page = page.where(tuple_(AuditEntry.at, AuditEntry.id) < after)
        return self._find_all(page)


def _filter_conditions(wanted: AuditFilter) -> Iterator[ColumnElement[bool]]:
    whole: tuple[tuple[Any, str | None], ...] = (
        (AuditEntry.actor, wanted.actor),
        (AuditEntry.action, wanted.action),
        (AuditEntry.subject, wanted.subject),
    )
    yield from (col(column) == value for column, value in whole if value is not None)
    if wanted.since is not None:
        yield col(AuditEntry.at) >= wanted.since
    if wanted.until is not None:
        yield col(AuditEntry.at) < wanted.until
    if wanted.q:
        texts = (AuditEntry.actor, AuditEntry.action, AuditEntry.subject, AuditEntry.detail, AuditEntry.origin)
        yield or_(*(col(text).icontains(wanted.q, autoescape=True) for text in texts))


class SettingsOverrides(Repository):
    """Queries for the versions of overridden settings; the newest version is in effect."""

    def newest_version(self) -> int:
        """Return the number of the newest version, or 0 if no setting was ever overridden."""
        return self._session.exec(select(func.max(SettingsVersion.version))).one() or 0

    def read_values(self) -> Mapping[str, object]:
        """Return the overridden settings in effect, by key."""
        newest = select(SettingsVersion.values_json).order_by(col(SettingsVersion.version).desc()).limit(1)
        stored = self._find_first(newest)
        values: dict[str, object] = json.loads(stored) if stored else {}
        return values

    def add_version(self, values: Mapping[str, object], actor: str) -> int:
        """Store overridden settings as a new version, which takes effect; return the version's number."""
        version = SettingsVersion(values_json=json.dumps(values, sort_keys=True), actor=actor, changed_at=self._now)
        self._save_objects(version)
        return version.version or 0

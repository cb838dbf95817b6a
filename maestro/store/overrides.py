"""Queries for settings that operators override while Maestro runs, stored as numbered versions."""

import json
from collections.abc import Mapping

from sqlmodel import col, func, select

from maestro.domain.settings.live import SettingsVersion
from maestro.store.engine.repository import Repository


class SettingsOverrides(Repository):
    """Queries for the versions of the overrides, of which the newest is in effect."""

    def version(self) -> int:
        """Return the number of the newest version, or 0 if no setting was ever overridden."""
        return self._session.exec(select(func.max(SettingsVersion.version))).one() or 0

    def values(self) -> Mapping[str, object]:
        """Return the overrides in effect, by key."""
        newest = select(SettingsVersion.values_json).order_by(col(SettingsVersion.version).desc()).limit(1)
        stored = self._first(newest)
        values: dict[str, object] = json.loads(stored) if stored else {}
        return values

    def add(self, values: Mapping[str, object], actor: str) -> int:
        """Store these overrides as a new version, which takes effect; return the version's number."""
        version = SettingsVersion(values_json=json.dumps(values, sort_keys=True), actor=actor, changed_at=self._now)
        self._save(version)
        return version.version or 0

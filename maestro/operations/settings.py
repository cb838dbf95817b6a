"""The operations on settings; ``maestro.settings`` implements ``SettingsSource``, which knows all keys."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pydantic import JsonValue

from maestro.domain.errors import Conflict
from maestro.domain.settings.live import SettingsPage
from maestro.store.store import Store

Overrides = Mapping[str, object]
"""The values of settings that were changed while Maestro ran, by key."""


class SettingsSource(Protocol):
    """A source of settings: the keys, their values when Maestro started, and the overrides in effect."""

    def build_page(self, store: Store) -> SettingsPage:
        """Return every setting with its current value."""
        ...

    def merge_overrides(self, before: Overrides, changes: Mapping[str, JsonValue]) -> Overrides:
        """Return the overrides ``before`` with ``changes`` applied; raises ``NeedsRestart`` and ``InvalidEdit``."""
        ...

    def describe_changes(self, before: Overrides, after: Overrides) -> Iterable[tuple[str, str]]:
        """Return each changed key, with a note of its old and new value for the audit log."""
        ...


class SettingsOperations:
    """The operations on settings."""

    def __init__(self, store: Store, source: SettingsSource) -> None:
        self._store = store
        self._source = source

    def page(self) -> SettingsPage:
        """List every setting with its value, the value's origin, and whether it can be changed while Maestro runs."""
        return self._source.build_page(self._store)

    def change(self, changes: Mapping[str, JsonValue], version: int | None, actor: str) -> SettingsPage:
        """Change settings while Maestro runs, all or none; every process applies them within a second.

        None resets a key. Raises ``NeedsRestart`` for keys that are read only at the start, ``InvalidEdit`` for unknown
        keys and wrong values, and ``Conflict`` when ``version`` is given but is no longer the newest.
        """
        with self._store.begin() as tx:
            newest, before = tx.system.settings.newest_version(), tx.system.settings.read_values()
            if version is not None and version != newest:
                raise Conflict(
                    f"the settings were changed meanwhile: version {newest} is the newest, not {version}. Read the "
                    "settings again, then repeat the change."
                )
            after = self._source.merge_overrides(before, changes)
            if after != before:
                tx.system.settings.add_version(after, actor)
                for key, note in self._source.describe_changes(before, after):
                    tx.system.audit.add_entry(actor, "settings.change", key, note)
        return self.page()

"""Shows and changes the settings for operators, on the API and on the command line alike."""

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from maestro.bootstrap.live import LiveSettings
from maestro.domain.errors import Conflict, InvalidEdit, NeedsRestart
from maestro.domain.live import SettingsPage
from maestro.settings import Loaded
from maestro.settings.keys import KEYS
from maestro.settings.overlay import Overlaid, Values, not_settable, overlay
from maestro.settings.shown import held, settings_page, shown
from maestro.store.store import Store

ACTION = "settings.change"
LONGEST_NOTE = 200
"""Characters of a value in the audit log."""


class StoreSettingsControl:
    """Keeps what is set in the store, where every process finds it; a ``SettingsControl``."""

    def __init__(self, store: Store, live: LiveSettings) -> None:
        self._store = store
        self._live = live

    def page(self) -> SettingsPage:
        """Return every key as it holds now."""
        self._live.look(self._store)
        return settings_page(self._live.loaded, self._live.overlaid, self._live.version)

    def change(self, wishes: Mapping[str, JsonValue], version: int | None, actor: str) -> SettingsPage:
        """Set keys by path while Maestro runs, all or none of them; None takes back what was set.

        Raises ``NeedsRestart``, ``InvalidEdit`` and ``Conflict``.
        """
        loaded, wanted = self._live.loaded, flat(wishes)
        with self._store.begin() as tx:
            newest, before = tx.live_settings.version(), tx.live_settings.values()
            if version is not None and version != newest:
                raise Conflict(
                    f"the settings were changed meanwhile: version {newest} is the newest, not {version}. Read them "
                    "again, and change them then."
                )
            after = changed(loaded, before, wanted)
            if after != before:
                tx.live_settings.add(after, actor)
                for key, note in _notes(loaded, before, after):
                    tx.audit.add(actor, ACTION, key, note)
        return self.page()


def flat(wishes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return wishes by path, also those that are written as in the file, an object for each section."""
    found: dict[str, JsonValue] = {}
    for path, value in wishes.items():
        if isinstance(value, dict) and path not in KEYS and any(key.startswith(f"{path}.") for key in KEYS):
            found |= flat({f"{path}.{name}": below for name, below in value.items()})
        else:
            found[path] = value
    return found


def changed(loaded: Loaded, before: Values, wishes: Mapping[str, JsonValue]) -> Values:
    """Return the values with the wishes among them; raises ``NeedsRestart`` and ``InvalidEdit``."""
    unsettable = {
        path: problem
        for path, value in wishes.items()
        # What an earlier release has left behind can at least be taken back.
        if (problem := not_settable(path, loaded)) and not (value is None and path in before)
    }
    if unsettable:
        known = all(path in KEYS for path in unsettable)
        raise (NeedsRestart if known else InvalidEdit)("; ".join(unsettable.values()))
    after = {path: value for path, value in {**before, **wishes}.items() if value is not None}
    already = overlay(loaded, before).refused
    refused = overlay(loaded, after).refused
    problems = {problem: path for path, problem in refused.items() if path in wishes or path not in already}
    if problems:
        raise InvalidEdit("; ".join(problems))
    return after


def _notes(loaded: Loaded, before: Values, after: Values) -> Iterator[tuple[str, str]]:
    """Yield each key that was changed, and what from and what to."""
    old, new = overlay(loaded, before), overlay(loaded, after)
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            back = "" if path in after else " (taken back)"
            yield path, f"{_note(old, path)} -> {_note(new, path)}{back}"


def _note(overlaid: Overlaid, path: str) -> str:
    if path not in KEYS:
        return "unknown"
    text = json.dumps(shown(held(overlaid.settings, KEYS[path])), ensure_ascii=False)
    return text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]}..."

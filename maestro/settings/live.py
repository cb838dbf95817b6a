"""The effective settings: the values at the start with the overrides set since (docs/invariants.md: live settings)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from maestro.domain.errors import StoreBusy
from maestro.domain.redaction import Redact, SecretScanner, TextKind, build_redactor, keep_text
from maestro.settings.keys import KEYS, LEAVES
from maestro.settings.loading import Loaded, validate_settings
from maestro.settings.model import Settings
from maestro.settings.problems import translate_errors, unknown_key_problem
from maestro.store.store import Store
from maestro.supervision import cancel_tasks

DEFAULT_FILE = "maestro.json"

Values = Mapping[str, object]
"""Values by key, such as ``chat.limits.maxMessageChars``."""

Chosen = TypeVar("Chosen")

LOOK_SECONDS = 0.5
"""Seconds within which a process applies a change that another process made."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OverlaidSettings:
    """The effective settings, the overrides that are in effect, and the reason for each refused override."""

    settings: Settings
    values: Values
    refused: Mapping[str, str]


def apply_overrides(loaded: Loaded, values: Values) -> OverlaidSettings:
    """Return the loaded settings with the overrides; invalid overrides are left out, and listed with the reason.

    An invalid override may have been valid with an earlier release or another configuration file.
    """
    refused = {path: sentence for path in values if (sentence := find_unsettable_reason(path, loaded))}
    while accepted := {path: value for path, value in values.items() if path not in refused}:
        tree: dict[str, Any] = json.loads(json.dumps(loaded.tree))
        for path, value in accepted.items():
            section = tree
            *above, last = path.split(".")
            for name in above:
                section = section.setdefault(name, {})
            section[last] = value
        try:
            return OverlaidSettings(validate_settings(tree), accepted, refused)
        except ValidationError as error:
            refused |= _refused_by(error, accepted)
    return OverlaidSettings(loaded.settings, {}, refused)


def find_unsettable_reason(path: str, loaded: Loaded) -> str | None:
    """Return why a key cannot be set while Maestro runs and where to set it, or None if the key can be set."""
    # A list is set as a whole, so a path to an entry means the list.
    key = KEYS[path.partition("[]")[0]] if path in KEYS else None
    below = next((leaf for leaf in LEAVES if leaf.path.startswith(f"{path}.")), None)
    if key is None and below is not None:
        return f"{path}: this is a section; name one of its keys, such as {below.path}"
    if key is None:
        return f"{path}: {unknown_key_problem(tuple(path.split('.')))}"
    where = f"in {loaded.file or DEFAULT_FILE} or in {key.variables[0]}"
    return None if key.live else f"{key.path}: this key is read only at the start; set it {where}, and restart Maestro"


def _refused_by(error: ValidationError, values: Values) -> dict[str, str]:
    """Return the overrides that caused a validation error, and the reason; all overrides if the cause is unclear."""
    refused: dict[str, str] = {}
    problems = error.errors(include_url=False, include_input=False)
    for problem, sentence in zip(problems, translate_errors(error, (), {}), strict=True):
        # A problem concerns a key if the problem's location contains the key, or is contained in the key's value.
        concerned = [
            path
            for path in values
            if all(part == other for part, other in zip(KEYS[path].location, problem["loc"], strict=False))
        ]
        refused |= dict.fromkeys(concerned or values, sentence)
    return refused


class LiveSettings:
    """The effective settings of a process, readable from any thread (docs/invariants.md: live settings).

    Reading the settings costs nothing, because the store is read in the background. ``start`` has the settings read at
    the start; only keys that need a restart may be read from it.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.start: Settings = loaded.settings
        self.loaded = loaded
        self.version = 0
        self.overlaid = OverlaidSettings(loaded.settings, {}, {})
        self._refreshing = Lock()
        self._on_change: Callable[[Settings], None] | None = None

    @classmethod
    def from_fixed(cls, settings: Settings) -> "LiveSettings":
        """Return settings that do not change."""
        return cls(Loaded(settings, {}, None))

    def current(self) -> Settings:
        """Return the present settings; the caller must not store the result, because a change replaces it."""
        return self.overlaid.settings

    def of(self, rules: Callable[[Settings], Chosen]) -> Callable[[], Chosen]:
        """Return a function that returns the rules built from the present settings, rebuilt after a change."""
        built: tuple[Settings, Chosen] | None = None

        def read() -> Chosen:
            nonlocal built
            settings, known = self.overlaid.settings, built
            if known is None or known[0] is not settings:
                known = built = (settings, rules(settings))
            return known[1]

        return read

    def apply_changes(self, store: Store) -> None:
        """Read the overrides from the store if they have changed, and apply them; raises ``StoreBusy``."""
        with self._refreshing:
            with store.view() as tx:
                newest = tx.system.settings.newest_version()
                values = tx.system.settings.read_values() if newest != self.version else None
            if values is None:
                return
            overlaid = self.overlaid = apply_overrides(self.loaded, values)
            if self._on_change is not None:  # A command of the CLI has no callback and logs nothing.
                for key, problem in overlaid.refused.items():
                    log.warning("a value that was set at run time is ignored", key=key, problem=problem)
                self._on_change(overlaid.settings)
            self.version = newest  # The version is set last, so that the next read tries again after an error.

    @contextlib.asynccontextmanager
    async def keep_current(self, store: Store, on_change: Callable[[Settings], None]) -> AsyncIterator[None]:
        """Keep the settings current during the block; ``on_change`` is called with the settings after each change."""
        self._on_change = on_change
        await asyncio.to_thread(self.apply_changes, store)
        watch = asyncio.create_task(self._watch(store))
        try:
            yield
        finally:
            await cancel_tasks([watch])

    async def _watch(self, store: Store) -> None:
        with store.changes.subscribe(lambda state: state.settings != self.version, lambda: LOOK_SECONDS) as changed:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    await asyncio.to_thread(self.apply_changes, store)
                except StoreBusy as error:
                    log.warning("settings.postponed", reason=str(error))
                # An error must not end the loop, or the process would never read the change that corrects the error.
                except Exception:
                    log.exception("settings.broken")


@dataclass(frozen=True)
class RedactionScope:
    """The scanner of a process, and the settings that choose the texts to scan (docs/decisions.md: redaction)."""

    scanner: SecretScanner
    live: LiveSettings

    def redaction_function(self, kind: TextKind, settings: Settings) -> Redact:
        """Return the function that redacts texts of a kind; texts that are not in scope stay unchanged."""
        in_scope = kind in settings.chat.scanner.scope
        return build_redactor(self.scanner, settings.chat.scanner.rules) if in_scope else keep_text

    def current_redaction(self, kind: TextKind) -> Callable[[], Redact]:
        """Return a function that returns the present redaction function for texts of a kind."""
        return self.live.of(lambda settings: self.redaction_function(kind, settings))

"""The settings as they are now: what Maestro was started with, and over it what operators set while it runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from threading import Lock

import structlog

from maestro.bootstrap.supervision import end
from maestro.domain.errors import StoreBusy
from maestro.settings import Loaded, Settings
from maestro.settings.current import CurrentSettings
from maestro.settings.overlay import Overlaid, overlay
from maestro.store.store import Store

LOOK_SECONDS = 0.5
"""How late at most a process takes over what another one set."""

log = structlog.get_logger(__name__)


class LiveSettings(CurrentSettings):
    """Gives every part of a process the settings that hold now (docs/invariants.md: live settings).

    To ask costs nothing: the store is read only while looking, which happens beside everything else. ``start`` is what
    Maestro was started with; only keys that need a restart may be read from it.
    """

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded.settings)
        self.start: Settings = loaded.settings
        self.loaded = loaded
        self.version = 0
        self._overlaid = Overlaid(loaded.settings, {}, {})
        self._looking = Lock()
        self._tell: Callable[[Settings], None] | None = None

    @classmethod
    def unchanging(cls, settings: Settings) -> "LiveSettings":
        """Return settings that nobody changes."""
        return cls(Loaded(settings, {}, None))

    @property
    def overlaid(self) -> Overlaid:
        """What was set while Maestro runs, as far as this process has seen it."""
        return self._overlaid

    def look(self, store: Store) -> None:
        """Take over what was set since the last look; raises ``StoreBusy``."""
        with self._looking:
            with store.view() as tx:
                newest = tx.live_settings.version()
                values = tx.live_settings.values() if newest != self.version else None
            if values is not None:
                self._take(newest, values)

    def _take(self, version: int, values: Mapping[str, object]) -> None:
        overlaid = self._overlaid = overlay(self.loaded, values)
        self._current = overlaid.settings
        if self._tell is not None:  # a command says what it was asked for and nothing else
            for key, problem in overlaid.refused.items():
                log.warning("a value that was set at run time does not count", key=key, problem=problem)
            self._tell(overlaid.settings)
        self.version = version  # last: what could not be told is told again at the next look

    @contextlib.asynccontextmanager
    async def watching(self, store: Store, tell: Callable[[Settings], None]) -> AsyncIterator[None]:
        """Look at once, and now and then during the block; ``tell`` is called with what holds from each change on."""
        self._tell = tell
        await asyncio.to_thread(self.look, store)
        watch = asyncio.create_task(self._watch(store))
        try:
            yield
        finally:
            await end([watch])

    async def _watch(self, store: Store) -> None:
        with store.changes.subscribed(lambda state: state.settings != self.version, lambda: LOOK_SECONDS) as changed:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    await asyncio.to_thread(self.look, store)
                except StoreBusy as error:
                    log.warning("settings.postponed", reason=str(error))
                # Whatever is wrong with what was set, this process must still hear of the change that puts it right.
                except Exception:
                    log.exception("settings.broken")

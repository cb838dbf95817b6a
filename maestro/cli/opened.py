"""From the options of a command to the store of its data folder, beside a Maestro that may be running."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from maestro.cli.configured import configured
from maestro.cli.options import Given
from maestro.installation.storage import open_existing_store
from maestro.settings import Loaded
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

ACTOR = "operator"
"""Who the audit log says has used a command."""


@dataclass(frozen=True)
class Opened:
    """The settings and the store they name; ``live`` is what holds now, with what was set while Maestro runs."""

    loaded: Loaded
    store: Store
    live: LiveSettings


@contextlib.contextmanager
def opened(given: Given) -> Iterator[Opened]:
    """Open the store; raises ``ConfigurationError`` when there is none yet."""
    loaded = configured(given, accounts=False)
    with contextlib.closing(open_existing_store(loaded.settings)) as store:
        live = LiveSettings(loaded)
        live.look(store)
        yield Opened(loaded, store, live)

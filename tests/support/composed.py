"""Maestro composed with the wrappers of ``crashing``: everything else is the product as it is.

``python -m tests.support.composed <config.json>`` runs it; tests usually fork it from a process that has imported
everything already (``tests.support.running``), which makes a restart cheap.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest import mock

from connectors.web import WebConnector
from maestro.bootstrap import connect, worker
from maestro.bootstrap.connect import web_config
from maestro.bootstrap.models import Models
from maestro.bootstrap.process import Process
from maestro.bootstrap.tools import build_tools
from maestro.bootstrap.up import Up
from maestro.bootstrap.worker import ModelProcess
from maestro.chat import ChatService
from maestro.connector_runtime.host import StoreContext
from maestro.domain.release import release
from maestro.settings import Loaded, Settings, load
from maestro.store.store import Store, utc_now
from maestro.tools.registry import ToolRegistry
from temporal import deployments, dispatcher
from temporal.dispatcher import Dispatcher
from temporal.server import ServerConfig, Timing
from tests.support.crashing import (
    CrashingClient,
    CrashingContext,
    CrashingStore,
    CrashingTool,
    CrashingWeb,
    Fuse,
    crashing_sends,
    crashing_starts,
    release_of,
)

TASK_TIMEOUT = timedelta(seconds=1)
TIMING = Timing(longest_restart=0.2)
"""A server that is killed in every test would otherwise be started later each time."""

MAX_LENGTH = 100
"""Characters of a chunk: answers longer than this go out in several."""


class CrashingUp(Up):
    """The whole product, with a point to die at wherever something is done but not recorded."""

    def __init__(self, loaded: Loaded, say: Callable[[str], None]) -> None:
        super().__init__(loaded, say)
        self._fuse = Fuse(self.settings.data_dir)

    def open_store(self) -> Store:
        """Open the store as usual, then once more with the wrapper."""
        super().open_store().close()
        return CrashingStore(self.settings.data_dir / "maestro.db", utc_now, self._fuse)

    def build_models(self, store: Store) -> Models:
        """Wrap the transport."""
        return with_crashes(super().build_models(store), self._fuse)

    def build_tools(self, chat: ChatService | None) -> ToolRegistry:
        """Add tools with an effect that can be counted, and that can die between it and its record."""
        return with_notes(super().build_tools(chat), self._fuse, self.settings.data_dir)

    def build_connectors(self, context: StoreContext) -> Sequence[WebConnector]:
        """Return a web connector that can die, and sends short chunks."""
        return crashing_connectors(self._fuse, self.settings, context)

    def build_context(self, store: Store, dispatcher: Dispatcher) -> StoreContext:
        """Return a context that can die."""
        CrashingContext.fuse = self._fuse
        with mock.patch.object(connect, "StoreContext", CrashingContext):
            return super().build_context(store, dispatcher)

    def server_config(self) -> ServerConfig:
        """Let the server be started again soon."""
        return replace(super().server_config(), timing=TIMING)

    async def until_stopped(self) -> None:
        """Run with what cannot be overridden changed."""
        with (
            mock.patch.object(dispatcher, "TASK_TIMEOUT", TASK_TIMEOUT),
            crashing_starts(self._fuse),
            crashing_sends(self._fuse),
            numbered_release(self._fuse.folder),
        ):
            await super().until_stopped()


def with_crashes(models: Models, fuse: Fuse) -> Models:
    """Let a process die around its requests to models."""
    return replace(models, transport=CrashingClient(models.transport, fuse))


def with_notes(tools: ToolRegistry, fuse: Fuse, folder: Path) -> ToolRegistry:
    """Add the noting tools."""
    noting = {name: CrashingTool(name, fuse, folder) for name in ("note", "note_again")}
    tools._fixed = {**tools._fixed, **noting}
    return tools


def crashing_connectors(fuse: Fuse, settings: Settings, context: StoreContext) -> Sequence[WebConnector]:
    """Return the web connector that can die."""
    CrashingWeb.fuse = fuse
    connector = CrashingWeb(web_config(settings), context)
    connector.capabilities = replace(connector.capabilities, max_length=MAX_LENGTH)
    return (connector,)


@contextmanager
def crashing_parts(folder: Path) -> Iterator[None]:
    """Let a separate process die at the point that is armed in a folder, in which it also records its points."""
    fuse = Fuse(folder)
    CrashingContext.fuse = fuse
    opened, models = Process.open_store, ModelProcess.build_models

    def open_store(process: Process) -> Store:
        opened(process).close()
        return CrashingStore(process.settings.database, utc_now, fuse)

    with ExitStack() as patches:
        for patch in (
            mock.patch.object(Process, "open_store", open_store),
            mock.patch.object(
                ModelProcess, "build_models", lambda process, store: with_crashes(models(process, store), fuse)
            ),
            mock.patch.object(
                worker, "build_tools", lambda live, chat: with_notes(build_tools(live, chat), fuse, folder)
            ),
            mock.patch.object(connect, "configured_connectors", partial(crashing_connectors, fuse)),
            mock.patch.object(connect, "StoreContext", CrashingContext),
            mock.patch.object(dispatcher, "TASK_TIMEOUT", TASK_TIMEOUT),
            crashing_starts(fuse),
            crashing_sends(fuse),
            numbered_release(folder),
        ):
            patches.enter_context(patch)
        yield


@contextmanager
def numbered_release(folder: Path) -> Iterator[None]:
    """Be the release that the processes of a data folder are now: for Temporal, another version of the workers."""
    with mock.patch.object(deployments, "release", return_value=release_of(folder) or release()):
        deployments.build_name.cache_clear()
        yield


def compose(config: Path, say: Callable[[str], None]) -> None:
    """Run until told to stop; the process ends at once, as a kill does not wait for threads either."""
    loaded = load(config, {}, {})
    loaded.settings.data_dir.mkdir(parents=True, exist_ok=True)
    asyncio.run(CrashingUp(loaded, say).until_stopped())


def forked(config: Path, log: Path, say: Callable[[str], None]) -> None:
    """Be a process of its own: standard error goes to a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    compose(config, say)


if __name__ == "__main__":
    compose(Path(sys.argv[1]), lambda line: print(line, flush=True))

"""Maestro composed with the wrappers of ``crashing``: everything else is the product as it is.

``python -m tests.support.composed <config.json>`` runs it; tests usually fork it from a process that has imported
everything already (``tests.support.running``), which makes a restart cheap.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest import mock

from connectors.web import WebConnector
from maestro.bootstrap import connect
from maestro.bootstrap.connect import web_config
from maestro.bootstrap.models import Models
from maestro.bootstrap.up import Up
from maestro.chat import ChatService
from maestro.connector_runtime.host import StoreContext
from maestro.settings import Loaded, load
from maestro.store.store import Store, utc_now
from maestro.tools.registry import ToolRegistry
from temporal import dispatcher
from temporal.dispatcher import Dispatcher
from temporal.server import ServerConfig, Timing
from tests.support.crashing import (
    CrashingClient,
    CrashingContext,
    CrashingStore,
    CrashingTool,
    CrashingWeb,
    Fuse,
    crashing_starts,
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
        models = super().build_models(store)
        return replace(models, transport=CrashingClient(models.transport, self._fuse))

    def build_tools(self, chat: ChatService | None) -> ToolRegistry:
        """Add tools with an effect that can be counted, and that can die between it and its record."""
        tools = super().build_tools(chat)
        noting = {name: CrashingTool(name, self._fuse, self.settings.data_dir) for name in ("note", "note_again")}
        tools._fixed = {**tools._fixed, **noting}
        return tools

    def build_connectors(self, context: StoreContext) -> Sequence[WebConnector]:
        """Return a web connector that can die, and sends short chunks."""
        CrashingWeb.fuse = self._fuse
        connector = CrashingWeb(web_config(self.settings), context)
        connector.capabilities = replace(connector.capabilities, max_length=MAX_LENGTH)
        return (connector,)

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
        with mock.patch.object(dispatcher, "TASK_TIMEOUT", TASK_TIMEOUT), crashing_starts(self._fuse):
            await super().until_stopped()


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

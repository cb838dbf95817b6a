"""The base class of processes: it locks the data folder, opens the store, and runs until stopped."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import ClassVar

from connectors.web import WebConnector
from maestro.bootstrap.flow import run_settings
from maestro.chat import join_session
from maestro.domain.cluster import Leases
from maestro.domain.errors import ConfigurationError, DataFolderBusy
from maestro.installation.data_folder import DataFolder
from maestro.installation.leases import open_leases, stop_when_displaced
from maestro.installation.storage import (
    hold_contract,
    migrate,
    open_files,
    open_store,
    require_same_keys,
    sweep_uploads,
    wake_for_models,
)
from maestro.observability.logs import configure_logs, line_redactor, set_level
from maestro.operations.conversations import remove_discarded_files
from maestro.serving import raise_descriptor_limit
from maestro.settings import Loaded, Settings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine
from temporal.sdk import configure_sdk

STORE_THREADS = 32
"""Threads for calls of the store; with Python's default on a small machine, slow readers would block all calls."""

INCOMPLETE_UPLOAD_AGE = timedelta(days=1)
"""The age at which a process that shares the data folder removes an incomplete upload."""

SWITCH_SECONDS = 0.0005
"""Seconds for which a thread may keep the interpreter while other threads wait.

The event loop sleeps about a hundred times per message. With Python's default of 5 ms it woke up late whenever the
threads of the store were busy (measured with 50 users: 10 to 20 % more messages per second, for 2 % more CPU time).
"""

Say = Callable[[str], None]


def run_process(process: "Process") -> int:
    """Run a process until SIGTERM or Ctrl-C, let running work finish, and return the exit code."""
    logs = process.settings.logs
    configure_logs(process.live.current().logs.level, logs.format, line_redactor(process.live, logs.format))
    configure_sdk()
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(process.until_stopped())
    return 0


class Process(ABC):
    """The base class of all kinds of processes; each kind runs its own parts in ``work``.

    Settings that need a restart are read from ``settings``; the others are read from ``live`` at each use. ``command``
    is the name of the process's command after ``maestro``.
    """

    command: ClassVar[str]

    def __init__(self, loaded: Loaded, say: Say) -> None:
        self.settings: Settings = loaded.settings
        self.live = LiveSettings(loaded)
        self.say = say
        self.leases: Leases
        self.shared = not self.settings.temporal.embedded
        """Whether other processes work in the same data folder."""

    def open_store(self) -> Store:
        return open_store(self.settings)

    def build_dispatcher(self, store: Store) -> Dispatcher:
        return Dispatcher(store, self.live.of(run_settings), self.say, self.leases)

    async def drain(self, engine: Engine, dispatcher: Dispatcher, connectors: Sequence[WebConnector] = ()) -> None:
        """Accept no more messages and jobs, and let running work finish."""
        self.say("Stopping: running work may finish.")
        for connector in connectors:
            connector.stop_accepting()
        dispatcher.pause_claims()
        await engine.drain_workers()

    async def until_stopped(self) -> None:
        """Run until SIGTERM or SIGINT arrives."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store"))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await self.serve(stop)

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until the event is set; raises a ``MaestroError`` that names the fix when a part cannot start."""
        if self.shared:
            # The migration precedes the lock of the contract, because a migration may need the locks of earlier ones.
            await asyncio.to_thread(migrate, self.settings)
        with DataFolder(self.settings.data_dir, shared=self.shared), hold_contract(self.settings):
            self.prepare()
            await asyncio.to_thread(sweep_uploads, self.settings, INCOMPLETE_UPLOAD_AGE if self.shared else timedelta())
            self.leases = await asyncio.to_thread(open_leases, self.settings, shared=self.shared)
            with contextlib.closing(self.leases):
                await self._serve_store(stop)

    async def _serve_store(self, stop: asyncio.Event) -> None:
        """Open the store and run until the event is set, or until another process has taken the store."""
        store = await asyncio.to_thread(self.open_store)
        store.process = f"{self.command}@{socket.gethostname()}:{os.getpid()}"
        with contextlib.closing(store):
            watching = asyncio.create_task(stop_when_displaced(self.leases, stop))
            try:
                await asyncio.to_thread(require_same_keys, store, self.settings)
                await asyncio.to_thread(store.create_reserve)
                await asyncio.to_thread(
                    remove_discarded_files, store, self.settings.data_dir, open_files(self.settings)
                )
                await asyncio.to_thread(join_session, store, self.settings.chat, self.settings.session)
                async with self.live.keep_current(store, partial(_apply_settings, store)):
                    await self.work(store, stop)
            finally:
                watching.cancel()
            if problem := self.leases.find_problem():
                raise DataFolderBusy(problem)

    def prepare(self) -> None:  # noqa: B027 - optional: most kinds of process prepare nothing
        """Start slow work in the background, such as imports; the store is not open yet."""

    @abstractmethod
    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Run the parts of this kind of process until the event is set."""


def _apply_settings(store: Store, settings: Settings) -> None:
    """Set the log level, and wake the jobs that wait for a model: the new settings may let them continue.

    All other live settings are read at each use.
    """
    set_level(settings.logs.level)
    wake_for_models(store)


class SeparateProcess(Process):
    """A process that runs one part of Maestro."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Run beside other processes; raises ``ConfigurationError`` without a Temporal server at temporal.address."""
        if self.settings.temporal.embedded:
            raise ConfigurationError(
                f"`maestro {self.command}` needs a Temporal server that several processes share: set temporal.address "
                "(MAESTRO_TEMPORAL_ADDRESS), or run everything in one process with `maestro up`."
            )
        await super().serve(stop)

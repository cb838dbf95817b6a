"""Maestro inside the test's own event loop: a real Temporal server, real sockets and a model that follows a script."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from temporalio.client import Client

from connectors.base import ConnectorContext
from connectors.web import WebConfig, WebConnector
from maestro.bootstrap.connect import web_config
from maestro.bootstrap.flow import build_operator
from maestro.bootstrap.process import STORE_THREADS
from maestro.bootstrap.up import READY, Up
from maestro.connector_runtime.host import StoreContext
from maestro.domain.jobs.job import CANCELLED_NOTICE
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.installation.storage import open_existing_store
from maestro.llm.litellm_client import LiteLLMClient
from maestro.operations.jobs import JobOperations
from maestro.settings import Loaded, load
from maestro.settings.addresses import temporal_endpoint
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from temporal.client import connect
from temporal.server import ServerConfig, Timing
from temporal.server_process import read_record
from tests.support import database
from tests.support.llm_server import LLMServer
from tests.support.ports import free_port
from tests.support.web_client import WebClient, web_client

Json = dict[str, Any]
Row = Any

PATIENCE = 60.0
"""Seconds a test waits for what must happen; long, because only a failure ever takes them."""
SHORTEST_LOOK, LONGEST_LOOK = 0.02, 0.1
"""Seconds between two looks at a condition: they grow, because each look takes CPU time from what it waits for."""
KEY = "key-of-the-model-account"
FAST_WAIT = 0.3
"""Seconds before the second attempt of a model call; the third comes after twice as long."""
FAST_COOL_DOWN = 0.5
"""Seconds an account is left alone after its first limit, when it does not ask for more."""


@dataclass(frozen=True)
class Operator:
    """The store and the operations on jobs, as a command beside a running Maestro has them."""

    store: Store
    jobs: JobOperations


@dataclass
class Taps:
    """Where a test looks into the web connector and makes its sends fail; keys are channels."""

    failures: defaultdict[str, deque[Exception]] = field(default_factory=lambda: defaultdict(deque))
    """What the next sends to a channel raise instead of sending."""
    after: dict[str, Callable[[OutgoingMessage], Awaitable[None]]] = field(default_factory=dict)
    """What happens in a channel between the platform's taking a chunk and its receipt."""
    sent: list[OutgoingMessage] = field(default_factory=list)
    typed: list[tuple[str, float]] = field(default_factory=list)
    """The channel and the moment, of the monotonic clock, of every typing indicator."""
    connector: WebConnector | None = None


class TappedWeb(WebConnector):
    """The web connector, watched."""

    def __init__(self, config: WebConfig, context: ConnectorContext, taps: Taps) -> None:
        super().__init__(config, context)
        self._taps = taps
        taps.connector = self

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Fail as told, or send."""
        failures = self._taps.failures[message.address.channel]
        if failures:
            raise failures.popleft()
        self._taps.sent.append(message)
        receipt = await super().send(message)
        after = self._taps.after.get(message.address.channel)
        if after is not None:
            await after(message)
        return receipt

    async def typing(self, address: Address) -> None:
        """Note when."""
        self._taps.typed.append((address.channel, time.monotonic()))
        await super().typing(address)


class TappedUp(Up):
    """The product's own composition, with a watched connector."""

    def __init__(self, loaded: Loaded, say: Callable[[str], None], taps: Taps) -> None:
        super().__init__(loaded, say)
        self._taps = taps

    def build_connectors(self, context: StoreContext) -> Sequence[WebConnector]:
        """Return the one connector."""
        return (TappedWeb(web_config(self.settings), context, self._taps),)

    def server_config(self) -> ServerConfig:
        """Let the server be killed at the end: a good end takes a second of each test that has a Maestro of its own."""
        return replace(super().server_config(), timing=Timing(grace=0.0))


class Instance:
    """One Maestro with a data folder of its own; it may be stopped and started again on the same folder."""

    def __init__(self, folder: Path, llm: LLMServer, /, **settings: Any) -> None:
        """``settings`` are sections of the configuration file, laid over scaled defaults."""
        self.llm = llm
        self.taps = Taps()
        self.said: list[str] = []
        self.data_dir = folder / "data"
        self.config_file = folder / "maestro.json"
        self.environment: dict[str, str] = {}
        self._settings = merged(_scaled(self.data_dir, llm), settings)
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    @property
    def loaded(self) -> Loaded:
        """The configuration as the product reads it."""
        self.config_file.write_text(json.dumps(self._settings))
        return load(self.config_file, self.environment, {})

    @property
    def ui_url(self) -> str:
        """The Temporal Web UI."""
        return f"http://localhost:{self._settings['temporal']['uiPort']}"

    async def start(self, *, ready: bool = True) -> None:
        """Start, and return when everything works, or, unless ``ready``, when messages are taken in."""
        self._stop, self._ready, self.taps.connector = asyncio.Event(), asyncio.Event(), None
        self._serving = asyncio.create_task(TappedUp(self.loaded, self._say, self.taps).serve(self._stop))
        waiting = asyncio.create_task(self._ready.wait() if ready else self._taking())
        await asyncio.wait({waiting, self._serving}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            waiting.cancel()
            self._serving.result()
        await asyncio.wait_for(waiting, PATIENCE)

    async def stop(self) -> None:
        """Stop in good order; harmless when nothing runs."""
        if self._serving is not None:
            serving, self._serving = self._serving, None
            self._stop.set()
            await asyncio.wait_for(serving, PATIENCE)

    async def restart(self, **settings: Any) -> None:
        """Stop and start again on the same data folder, with these sections changed."""
        await self.stop()
        self._settings = merged(self._settings, settings)
        await self.start()

    def kill_temporal(self) -> None:
        """End the Temporal server the hard way; the supervision starts another after a moment."""
        record = read_record(self.data_dir / "temporal.json")
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)

    def client(self, channel: str, *, user_name: str = "", api_key: str = "") -> AbstractAsyncContextManager[WebClient]:
        """Return a connected client of the web connector that talks in this channel."""
        return web_client(self._settings["web"]["port"], channelId=channel, userName=user_name, apiKey=api_key)

    @contextlib.contextmanager
    def operator(self) -> Iterator[Operator]:
        """Open what a command line beside the running Maestro works with."""
        with contextlib.closing(open_existing_store(self.loaded.settings)) as store:
            live = LiveSettings(self.loaded)
            live.apply_changes(store)
            yield Operator(store, build_operator(store, live))

    async def temporal(self) -> Client:
        """Return a client of the Temporal server."""
        return await connect(temporal_endpoint(self.loaded.settings))

    def query(self, sql: str, *values: object) -> list[Row]:
        """Read the database file, as an operator may."""
        return database.query(self.data_dir / "maestro.db", sql, *values)

    def change(self, sql: str, *values: object) -> None:
        """Write into the database file, as somebody might who should not."""
        database.change(self.data_dir / "maestro.db", (sql, *values))

    async def until(self, sql: str, *values: object, patience: float = PATIENCE) -> list[Row]:
        """Return the rows of a query as soon as there are any; raises ``TimeoutError``."""
        found: list[Row] = []

        def there() -> bool:
            found[:] = self.query(sql, *values)
            return bool(found)

        await until(there, patience, what=f"{sql} {values}")
        return found

    def jobs(self, channel: str) -> list[Row]:
        """Return the jobs of a channel in the order they came, without the notices of cancelled ones."""
        sql = "SELECT * FROM queue WHERE channel = ? AND notice <> ? ORDER BY created_at, id"
        return self.query(sql, channel, CANCELLED_NOTICE)

    async def ended(self, channel: str, status: str, count: int = 1) -> list[Row]:
        """Return the jobs of a channel, without notices of cancelled ones, once so many of them ended this way."""

        def found() -> list[Row]:
            return [job for job in self.jobs(channel) if job["status"] == status]

        await until(lambda: len(found()) >= count, what=f"{count} {status} in {channel}")
        return found()

    async def asked(self, text: str, count: int = 1) -> None:
        """Return once the model has received so many requests whose last message contains the text."""
        await until(lambda: len(self.llm.matching(text)) >= count, what=f"{count} requests about {text!r}")

    def _say(self, line: str) -> None:
        self.said.append(line)
        if line == READY:
            self._ready.set()

    async def _taking(self) -> None:
        await until(lambda: self.taps.connector is not None, what="the connector")
        assert self.taps.connector is not None
        await self.taps.connector.wait_until_started()


@asynccontextmanager
async def running_instance(folder: Path, *, start: bool = True, **settings: Any) -> AsyncIterator[Instance]:
    """Run a model server and a Maestro that asks it, for the length of a block."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(STORE_THREADS))
    await _import_model_library()
    with LLMServer.running() as llm:
        instance = Instance(folder, llm, **settings)
        try:
            if start:
                await instance.start()
            yield instance
        finally:
            await instance.stop()


async def _import_model_library() -> None:
    """Have the slow import behind us: on a busy machine no test has the patience for it."""
    if "litellm" not in sys.modules:
        client = LiteLLMClient(lambda _: b"")
        client.library.warm_up()
        await client.library.close_connections()


async def until(condition: Callable[[], bool], patience: float = PATIENCE, *, what: str = "a condition") -> None:
    """Return once the condition holds; raises ``TimeoutError`` naming what did not happen."""
    deadline, pause = time.monotonic() + patience, SHORTEST_LOOK
    with database.asking_again():
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {patience:g} s: {what}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.25, LONGEST_LOOK)


def merged(base: Json, changes: Mapping[str, Any]) -> Json:
    """Lay changes over a tree of settings."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _scaled(data_dir: Path, llm: LLMServer) -> Json:
    # OpenAI's wire keeps turns as they are; litellm joins two users' turns in a row for Anthropic's.
    account = {"name": "main", "provider": "openai", "model": "gpt-4o-mini", "apiKey": KEY}
    return {
        "dataDir": str(data_dir),
        "temporal": {"port": free_port(), "uiPort": free_port()},
        "webui": {"enabled": False},
        "web": {"port": free_port(), "typingSeconds": 0.1},
        "llm": {
            "accounts": [{**account, "baseUrl": llm.base_url("openai")}],
            "cooldownMinutes": [FAST_COOL_DOWN / 60, 2 * FAST_COOL_DOWN / 60],
        },
        "jobs": {
            "backoffBaseMinutes": FAST_WAIT / 60,
            "stopPollSeconds": 0.1,
            "reconcileSeconds": 0.5,
            "dispatchSeconds": 0.05,
            "drainSeconds": 2,
        },
        "skills": {"folder": str(data_dir.with_name("skills")), "lookSeconds": 0.05},
        "logs": {"level": "error"},
    }

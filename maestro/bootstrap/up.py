"""``maestro up``: everything in one process, on embedded defaults (contract, Commands)."""

import asyncio
import contextlib
import hashlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from connectors.base import Connector
from connectors.hub import ConnectorHub, TypingIndicators
from connectors.registry import assemble
from connectors.web import WebConfig, WebConnector
from maestro.bootstrap.api import ApiServer, EngineHealth, api_parts
from maestro.bootstrap.chain import build_chain
from maestro.bootstrap.context import StoreContext
from maestro.bootstrap.data_folder import DataFolder
from maestro.bootstrap.endpoints import dashboard_origins, endpoint_of, places
from maestro.bootstrap.flow import FlowParts, pace, worker_parts
from maestro.bootstrap.logs import configure_logs
from maestro.bootstrap.models import Models, build_models
from maestro.bootstrap.storage import open_files, open_store, signing_key, sweep, upload_folder
from maestro.bootstrap.supervision import end, first_of
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.intake import Intake, IntakeRules
from maestro.settings import Loaded, Settings, found_accounts, is_loopback, read_environment
from maestro.store.store import Store
from temporal.client import Client, Endpoint
from temporal.control import TemporalJobControl
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine
from temporal.reconciler import Reconciler
from temporal.server import EmbeddedServer, ServerConfig

STORE_THREADS = 32
"""Threads for the store's work; the default of a small machine would let slow readers hold up everything."""

PATIENCE_SECONDS = 5.0
READY = "Maestro is ready."

Say = Callable[[str], None]


def run(loaded: Loaded, say: Say) -> int:
    """Run everything until SIGTERM or Ctrl-C, drain, and return the exit code."""
    configure_logs(loaded.settings.logs.level, loaded.settings.logs.format)
    asyncio.run(Up(loaded, say).until_stopped())
    return 0


class Up:
    """The composition of one process; the methods that open a store, a transport and connectors may be overridden."""

    def __init__(self, loaded: Loaded, say: Say) -> None:
        self.settings: Settings = loaded.settings
        self.say = say

    def open_store(self) -> Store:
        """Return the store of the data folder."""
        return open_store(self.settings)

    def build_models(self) -> Models:
        """Return who answers."""
        return build_models(self.settings, found_accounts(read_environment()), open_files(self.settings))

    def build_connectors(self, context: StoreContext) -> Sequence[Connector]:
        """Return the connectors to run."""
        return assemble(web_config(self.settings) if self.settings.web.enabled else None, context)

    async def until_stopped(self) -> None:
        """Run until a signal says stop."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store"))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await self.serve(stop)

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until the event is set; raises a ``MaestroError`` that names the fix when something cannot start."""
        with DataFolder(self.settings.data_dir):
            await asyncio.to_thread(sweep, self.settings)
            store = await asyncio.to_thread(self.open_store)
            with contextlib.closing(store):
                async with self._temporal(stop) as endpoint:
                    if not stop.is_set():
                        await self._run(store, endpoint, stop)

    @contextlib.asynccontextmanager
    async def _temporal(self, stop: asyncio.Event) -> AsyncIterator[Endpoint]:
        """Give the engine's address, ready unless ``stop`` was set first: a server may take half a minute to start."""
        temporal = self.settings.temporal
        if not temporal.embedded:
            yield endpoint_of(self.settings)
            return
        server = EmbeddedServer(ServerConfig(self.settings.data_dir, temporal.port, temporal.ui_port), self.say)
        starting = asyncio.create_task(server.start())
        try:
            await first_of(stop.wait(), watched=[starting])
            yield endpoint_of(self.settings)
        finally:
            await end([starting])
            await server.stop()

    async def _run(self, store: Store, endpoint: Endpoint, stop: asyncio.Event) -> None:
        models = self.build_models()
        dispatcher = Dispatcher(store, self.settings.temporal.task_queue, pace(self.settings), self.say)
        connectors = self.build_connectors(self._context(store, dispatcher))
        reconciler = Reconciler(store, self.settings.jobs.reconcile_seconds, dispatcher.wake)
        engine = Engine(dispatcher, reconciler, self.say)
        parts = self._flow(store, models, ConnectorHub(connectors), dispatcher)
        services = [connector.run() for connector in connectors]
        if self.settings.webui.enabled:
            services.append(self._api(store, engine, dispatcher, models).run())
        tasks = [asyncio.create_task(service) for service in services]
        tasks.append(asyncio.create_task(engine.run(endpoint, worker_parts(parts, self.settings))))
        try:
            await first_of(stop.wait(), self._announce(engine, connectors, models), watched=tasks)
            await first_of(stop.wait(), watched=tasks)
            self.say("Stopping: what runs may finish.")
            _stop_accepting(connectors)
            await engine.drain()
        finally:
            await end(tasks)
            await models.close()

    def _flow(self, store: Store, models: Models, hub: ConnectorHub, dispatcher: Dispatcher) -> FlowParts:
        return FlowParts(
            store=store,
            files=open_files(self.settings),
            llm=build_chain(models.transport, models.default_model, store, self.settings),
            default_model=models.default_model,
            hub=hub,
            typing=TypingIndicators(hub, asyncio.get_running_loop()),
            released=dispatcher.wake,
        )

    def _api(self, store: Store, engine: Engine, dispatcher: Dispatcher, models: Models) -> ApiServer:
        async def client() -> Client | None:
            return engine.client

        control = TemporalJobControl(store, client, dispatcher.wake)
        health = EngineHealth(store, engine)
        return ApiServer(self.settings, api_parts(self.settings, store, control, health, demo=models.demo))

    def _context(self, store: Store, dispatcher: Dispatcher) -> StoreContext:
        jobs = self.settings.jobs
        rules = IntakeRules(jobs.max_pending, frozenset(self.settings.owner.ids))
        intake = Intake(store, rules, dispatcher.wake)
        return StoreContext(("web", DEFAULT_ACCOUNT), intake, store, open_files(self.settings))

    async def _announce(self, engine: Engine, connectors: Sequence[Connector], models: Models) -> None:
        """Tell people where everything is, as soon as it takes messages."""
        for connector in connectors:
            if isinstance(connector, WebConnector):
                await connector.started()
        try:
            await asyncio.wait_for(engine.ready.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            self.say("Messages are taken in and wait in the store until Temporal is reachable.")
            self._tell(models)
            await engine.ready.wait()
            self.say(READY)
            return
        self.say(READY)
        self._tell(models)

    def _tell(self, models: Models) -> None:
        for line in places(self.settings):
            self.say(line)
        self.say(models.announcement)


def _stop_accepting(connectors: Sequence[Connector]) -> None:
    for connector in connectors:
        if isinstance(connector, WebConnector):
            connector.stop_accepting()


def web_config(settings: Settings) -> WebConfig:
    """Return what the web connector is told (decision 19)."""
    web, webui = settings.web, settings.webui
    alone = not web.api_key and not webui.password and is_loopback(web.host)
    return WebConfig(
        signing_key=signing_key(settings),
        host=web.host,
        port=web.port,
        api_key=web.api_key.get_secret_value(),
        local_owner=alone,
        password_digest=hashlib.sha256(webui.password.get_secret_value().encode()).digest(),
        owner_hours=webui.session_hours,
        allowed_origins=web.allowed_origins,
        dashboard_origins=dashboard_origins(settings),
        allowed_hosts=webui.allowed_hosts,
        max_frame_bytes=web.max_frame_bytes,
        max_upload_bytes=web.max_upload_bytes,
        upload_dir=upload_folder(settings),
        auth_timeout=web.auth_timeout_seconds,
        typing_interval=web.typing_seconds,
    )

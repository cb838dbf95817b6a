"""``maestro up``: everything in one process, on embedded defaults."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial

from connectors.base import Connector
from maestro.bootstrap.api import api_parts, build_server
from maestro.bootstrap.connectors import build_bots, build_context, configured_connectors
from maestro.bootstrap.flow import ModelParts, connector_parts, flow_parts
from maestro.bootstrap.models import Models
from maestro.bootstrap.operations import open_jobs
from maestro.bootstrap.rules import build_chat
from maestro.bootstrap.tools import build_tools
from maestro.bootstrap.worker import ModelProcess
from maestro.chat import ChatService, end_session
from maestro.connector_runtime.context import StoreContext
from maestro.connector_runtime.host import (
    ConnectorHost,
    describe_closed_ports,
    wait_for_ports,
    webhooks_of,
)
from maestro.domain.health import ProcessHealth
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.redaction import TextKind
from maestro.observability.health import EngineHealth, own_workers, process_metrics
from maestro.settings.addresses import address_lines, endpoint_of
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services, end, first_of
from maestro.tools.registry import ToolRegistry
from temporal.dispatcher import Dispatcher
from temporal.endpoint import Endpoint
from temporal.engine import Engine
from temporal.server import EmbeddedServer, ServerConfig

PATIENCE_SECONDS = 5.0
"""Seconds that the start waits for the workers before it reports why they are late and serves the dashboard."""
READY = "Maestro is ready."


class Up(ModelProcess):
    """Everything in one process; the methods that open a store, a transport and connectors may be overridden."""

    def build_tools(self, chat: ChatService | None) -> ToolRegistry:
        return build_tools(self.live, chat)

    def build_connectors(self, context: StoreContext) -> Sequence[Connector]:
        return configured_connectors(self.settings, context)

    def build_context(self, store: Store, dispatcher: Dispatcher) -> StoreContext:
        return build_context(self.live, store, dispatcher, "web", DEFAULT_ACCOUNT)

    def server_config(self) -> ServerConfig:
        temporal = self.settings.temporal
        return ServerConfig(self.settings.data_dir, temporal.port, temporal.ui_port, namespace=temporal.namespace)

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Run everything until the event is set."""
        models = await asyncio.to_thread(self.build_models, store)
        try:
            async with self._temporal(stop) as endpoint:
                if not stop.is_set():
                    await self._run(store, models, endpoint, stop)
        finally:
            await models.close()
        # Only after a clean stop: after an error the session stays open and continues at the next start.
        await asyncio.to_thread(end_session, store, self.settings.chat, self.settings.session, shared=self.shared)

    @contextlib.asynccontextmanager
    async def _temporal(self, stop: asyncio.Event) -> AsyncIterator[Endpoint]:
        """Yield Temporal's address, ready unless ``stop`` was set first: a server may take half a minute to start."""
        if not self.settings.temporal.embedded:
            yield endpoint_of(self.settings)
            return
        server = EmbeddedServer(self.server_config(), self.say)
        starting = asyncio.create_task(server.start())
        try:
            await first_of(stop.wait(), watched=[starting])
            yield endpoint_of(self.settings)
        finally:
            await end([starting])
            await server.stop()

    async def _run(self, store: Store, models: Models, endpoint: Endpoint, stop: asyncio.Event) -> None:
        dispatcher = self.build_dispatcher(store)
        engine = Engine(endpoint, self.say)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, "up")
        flow = flow_parts(store, self.live, dispatcher.released, metrics.step, metrics.scan_failed)
        connectors = self.build_connectors(self.build_context(store, dispatcher))
        host = ConnectorHost(self.settings, flow.hub, engine, self.say, partial(connector_parts, flow, self.settings))
        bots = build_bots(self.live, store, dispatcher, host)
        chat = build_chat(self.live, store, flow.scope.scanner)
        brains = ModelParts(models, self.build_tools(chat))
        services, begun = Services(stop), ReadySignals()
        flow_services = await self.build_services(flow, brains, engine, dispatcher, begun)
        services.add(*(host.run(connector, begun.another()) for connector in connectors))
        services.add(bots.run(webhooks_of(connectors)), flow.growing.run(), *flow_services)
        if self.settings.webui.enabled:
            jobs = open_jobs(store, self.live, engine.current_client, dispatcher.wake)
            health = EngineHealth(store, engine, own_workers(engine), partial(describe_closed_ports, connectors))
            vitals = ProcessHealth(health, metrics)
            parts = api_parts(self.live, store, chat, jobs, vitals)
            parts = replace(parts, demo=models.demo, redact=flow.scope.of(TextKind.MEMORY))
            services.add(build_server(self.settings, parts).run(partial(_wait_patiently, begun)))
        drain = partial(self.drain, engine, dispatcher, connectors)
        await services.until_stopped(self._announce(begun, connectors, models), drain)

    async def _announce(self, begun: ReadySignals, connectors: Sequence[Connector], models: Models) -> None:
        """Announce the addresses as soon as messages are taken in."""
        await wait_for_ports(connectors)
        await _wait_patiently(begun)
        is_late = not begun.done
        if is_late:
            missing = "the library that calls models is loaded" if models.library.loading else "Temporal is reachable"
            self.say(f"Messages are taken in and wait in the store until {missing}.")
        else:
            self.say(READY)
        for line in (*address_lines(self.settings), models.announcement):
            self.say(line)
        if is_late:
            await begun.wait()
            self.say(READY)


async def _wait_patiently(begun: ReadySignals) -> None:
    """Return when the workers have started, or after a timeout, so that the dashboard is served."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()

"""``maestro up``: all parts of Maestro in one process, by default with an embedded Temporal server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial

from connectors.web import WebConnector
from maestro.bootstrap.api import api_parts, build_server
from maestro.bootstrap.connect import build_bots, build_context, configured_connectors
from maestro.bootstrap.flow import ModelParts, build_job_operations, build_versions, connector_parts, flow_parts
from maestro.bootstrap.maintenance import build_maintenance
from maestro.bootstrap.models import Models
from maestro.bootstrap.tools import build_chat, build_tools
from maestro.bootstrap.worker import ModelProcess
from maestro.chat import ChatService, end_session
from maestro.connector_runtime.host import ConnectorHost, StoreContext, describe_closed_ports
from maestro.domain.health import ProcessHealth
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.network import CODEC_PATH
from maestro.domain.redaction import TextKind
from maestro.observability.health import EngineHealth, build_worker_check, process_metrics
from maestro.settings.addresses import address_lines, dashboard_url, temporal_endpoint
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services, cancel_tasks, wait_for_first
from maestro.tools.registry import ToolRegistry
from temporal.dispatcher import Dispatcher
from temporal.endpoint import Endpoint
from temporal.engine import Engine
from temporal.server import EmbeddedServer, ServerConfig

READY = "Maestro is ready."


class Up(ModelProcess):
    """The process that runs all parts of Maestro; subclasses may override how tools and connectors are built."""

    command = "up"

    def build_tools(self, chat: ChatService | None) -> ToolRegistry:
        return build_tools(self.live, chat)

    def build_connectors(self, context: StoreContext) -> Sequence[WebConnector]:
        return configured_connectors(self.settings, context)

    def build_context(self, store: Store, dispatcher: Dispatcher) -> StoreContext:
        return build_context(self.live, store, dispatcher, "web", DEFAULT_ACCOUNT)

    def server_config(self) -> ServerConfig:
        temporal = self.settings.temporal
        dashboard = dashboard_url(self.settings) if temporal.codec.keys else ""
        return ServerConfig(
            self.settings.data_dir,
            temporal.port,
            temporal.ui_port,
            namespace=temporal.namespace,
            codec_endpoint=dashboard and f"{dashboard}{CODEC_PATH}",
        )

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Run all parts of Maestro until the event is set."""
        models = await asyncio.to_thread(self.build_models, store)
        try:
            async with self._temporal_endpoint(stop) as endpoint:
                if not stop.is_set():
                    await self._run(store, models, endpoint, stop)
        finally:
            await models.close()
        # The session ends only after a clean stop; after an error it stays open and continues at the next start.
        await asyncio.to_thread(end_session, store, self.settings.chat, self.settings.session, shared=self.shared)

    @contextlib.asynccontextmanager
    async def _temporal_endpoint(self, stop: asyncio.Event) -> AsyncIterator[Endpoint]:
        """Yield Temporal's address when the embedded server is ready, or ``stop`` is set; then stop the server."""
        if not self.settings.temporal.embedded:
            yield temporal_endpoint(self.settings)
            return
        server = EmbeddedServer(self.server_config(), self.say)
        starting = asyncio.create_task(server.start())
        try:
            await wait_for_first(stop.wait(), watched=[starting])
            yield temporal_endpoint(self.settings)
        finally:
            await cancel_tasks([starting])
            await server.stop()

    async def _run(self, store: Store, models: Models, endpoint: Endpoint, stop: asyncio.Event) -> None:
        dispatcher = self.build_dispatcher(store)
        engine = Engine(endpoint, self.say, build_versions(self.settings, self.say, promote=True))
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command, engine)
        flow = flow_parts(
            store, self.live, dispatcher.check_after_release, metrics.count_step, metrics.count_failed_scan
        )
        connectors = self.build_connectors(self.build_context(store, dispatcher))
        parts_of = partial(connector_parts, flow, self.settings)
        host = ConnectorHost(self.settings, self.leases, store.fences, flow.hub, engine, self.say, parts_of)
        bots = build_bots(self.live, store, dispatcher, host)
        chat = build_chat(self.live, store, flow.scope.scanner)
        model_parts = ModelParts(models, self.build_tools(chat))
        services, ready = Services(stop), ReadySignals()
        flow_services = await self.build_services(flow, model_parts, engine, dispatcher, ready)
        services.add_services(*(host.run_with_lease(connector, ready.expect_part()) for connector in connectors))
        services.add_services(
            bots.keep_running(next((connector.webhooks for connector in connectors), None)),
            flow.drafts.stream_until_cancelled(),
            *flow_services,
            *build_maintenance(store, self.live, metrics),
        )
        if self.settings.webui.enabled:
            jobs = build_job_operations(store, self.live, engine.current_client, dispatcher.check_soon)
            health = EngineHealth(store, engine, build_worker_check(engine), partial(describe_closed_ports, connectors))
            process_health = ProcessHealth(health, metrics)
            parts = api_parts(self.live, store, chat, jobs, process_health)
            parts = replace(parts, demo=models.demo, redact=flow.scope.current_redaction(TextKind.MEMORY))
            services.add_services(build_server(self.settings, parts).run(partial(_wait_for_workers, ready)))
        drain = partial(self.drain, engine, dispatcher, connectors)
        await services.until_stopped(self._announce(ready, connectors, models), drain)

    async def _announce(self, ready: ReadySignals, connectors: Sequence[WebConnector], models: Models) -> None:
        """Announce the addresses as soon as the connectors accept messages."""
        for connector in connectors:
            await connector.wait_until_started()
        await _wait_for_workers(ready)
        is_late = not ready.done
        if is_late:
            missing = (
                "the library that calls models is loaded" if models.library.is_loading else "Temporal is reachable"
            )
            self.say(f"Messages are taken in and wait in the store until {missing}.")
        else:
            self.say(READY)
        for line in (*address_lines(self.settings), models.announcement):
            self.say(line)
        if is_late:
            await ready.wait_until_ready()
            self.say(READY)


async def _wait_for_workers(ready: ReadySignals) -> None:
    """Return when the workers have started, or after five seconds, so that the dashboard does not wait longer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5.0):
            await ready.wait_until_ready()

"""Builds connectors, and ``maestro connect``: the process that accepts messages even without Temporal."""

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from functools import partial

from connectors.platforms import platforms
from connectors.web import WebConfig, WebConnector
from maestro.bootstrap.flow import connector_parts, flow_parts, intake_rules
from maestro.bootstrap.process import Say, SeparateProcess
from maestro.connector_runtime.bots import BotKeeper, ConnectorFactory
from maestro.connector_runtime.host import ConnectorHost, StoreContext, describe_closed_ports
from maestro.domain.errors import ConfigurationError
from maestro.domain.health import ProcessHealth
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.section import is_loopback
from maestro.installation.data_folder import open_keys, signing_key
from maestro.installation.storage import open_files, upload_folder
from maestro.intake import Intake
from maestro.observability.health import (
    STANDING_BY,
    EngineHealth,
    HealthServer,
    build_worker_check,
    health_address,
    process_metrics,
)
from maestro.settings import Loaded, Settings, read_environment
from maestro.settings.addresses import connection_limits, dashboard_origins, temporal_endpoint
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine


def build_context(
    live: LiveSettings, store: Store, dispatcher: Dispatcher, platform: str, account: str
) -> StoreContext:
    """Return the context of a connector; ``dispatcher`` is notified of each job that an incoming message creates."""
    intake = Intake(store, live.of(intake_rules), dispatcher.check_soon, dispatcher)
    return StoreContext((platform, account), intake, store, open_files(live.start))


def build_bots(
    live: LiveSettings,
    store: Store,
    dispatcher: Dispatcher,
    host: ConnectorHost,
    platforms: Collection[str] | None = None,
) -> BotKeeper:
    """Return the keeper that runs the bots of ``platforms``, or of all platforms for None."""
    factory = ConnectorFactory.of(live.start, open_keys(live.start, read_environment()))
    return BotKeeper(store, factory, partial(build_context, live, store, dispatcher), host.run_bot, platforms)


def configured_connectors(settings: Settings, context: StoreContext) -> Sequence[WebConnector]:
    """Return the connectors that run for the whole life of a process: the web connector, if enabled."""
    return [WebConnector(web_config(settings), context)] if settings.web.enabled else []


def web_config(settings: Settings) -> WebConfig:
    """Return the configuration of the web connector (docs/decisions.md: web identity)."""
    web, webui = settings.web, settings.webui
    needs_no_login = not web.api_key and not webui.password and is_loopback(web.host)
    return WebConfig(
        signing_key=signing_key(settings),
        host=web.host,
        port=web.port,
        api_key=web.api_key.get_secret_value(),
        local_owner=needs_no_login,
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
        connections=connection_limits(settings),
    )


class Connect(SeparateProcess):
    """The process that runs the connectors of some platforms; a lease keeps a second process from running the same."""

    command = "connect"

    def __init__(self, loaded: Loaded, say: Say, platforms: Sequence[str]) -> None:
        super().__init__(loaded, say)
        self._platforms = platforms

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Receive messages, start jobs, and run the steps that need a connector: send, show typing, fetch files."""
        dispatcher = self.build_dispatcher(store)
        engine = Engine(temporal_endpoint(self.settings), self.say)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command, engine)
        flow = flow_parts(
            store, self.live, dispatcher.check_after_release, metrics.count_step, metrics.count_failed_scan
        )
        web_context = build_context(self.live, store, dispatcher, "web", DEFAULT_ACCOUNT)
        connectors = self._requested_connectors(configured_connectors(self.settings, web_context))
        health = EngineHealth(
            store, engine, build_worker_check(engine, STANDING_BY), partial(describe_closed_ports, connectors)
        )
        parts_of = partial(connector_parts, flow, self.settings)
        host = ConnectorHost(self.settings, self.leases, store.fences, flow.hub, engine, self.say, parts_of)
        services, ready = Services(stop), ReadySignals()
        services.add_services(*(host.run_with_lease(connector, ready.expect_part()) for connector in connectors))
        bots = build_bots(self.live, store, dispatcher, host, self._platforms)
        services.add_services(bots.keep_running(next((connector.webhooks for connector in connectors), None)))
        address, hosts = health_address(self.settings, "connectPort"), self.settings.webui.allowed_hosts
        services.add_services(
            HealthServer(address, hosts, ProcessHealth(health, metrics), connection_limits(self.settings)).run()
        )
        services.add_services(engine.run(dispatcher.run), flow.drafts.stream_until_cancelled())
        drain = partial(self.drain, engine, dispatcher, connectors)
        await services.until_stopped(self._announce_start(ready, connectors), drain)

    def _requested_connectors(self, connectors: Sequence[WebConnector]) -> list[WebConnector]:
        """Return the connectors of the requested platforms; raises ``ConfigurationError`` for an unknown platform.

        Bots are not among them: ``BotKeeper`` connects the bots of the requested platforms.
        """
        known = {connector.platform for connector in connectors} | set(platforms())
        missing = [platform for platform in self._platforms if platform not in known]
        if missing:
            raise ConfigurationError(
                f"there is no enabled connector for {', '.join(missing)} (there are: {', '.join(sorted(known))}). "
                "Enable it in maestro.json, such as web.enabled, or correct the name."
            )
        return [connector for connector in connectors if connector.platform in self._platforms]

    async def _announce_start(self, ready: ReadySignals, connectors: Sequence[WebConnector]) -> None:
        for connector in connectors:
            await connector.wait_until_started()
        own = [f"{connector.platform}/{connector.account}" for connector in connectors]
        names = ", ".join([*own, *(name for name in self._platforms if name in platforms())])
        if not ready.done:
            self.say(f"Messages are taken in for {names}; they wait in the store until Temporal is reachable.")
        await ready.wait_until_ready()
        self.say(f"The connectors are ready: {names}.")

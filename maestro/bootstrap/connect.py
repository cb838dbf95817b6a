"""``maestro connect``: connectors in a process of their own, which takes messages even while Temporal is away."""

import asyncio
from collections.abc import Sequence
from functools import partial

from connectors.base import Connector
from connectors.platforms import platforms
from maestro.bootstrap.connectors import build_context, configured_connectors
from maestro.bootstrap.flow import connector_parts, flow_parts, queues, run_settings
from maestro.bootstrap.process import Say, SeparateProcess
from maestro.connector_runtime.factory import ConnectorFactory
from maestro.connector_runtime.host import (
    ConnectorHost,
    describe_closed_ports,
    stop_accepting,
    wait_for_ports,
    webhooks_of,
)
from maestro.connector_runtime.keeper import BotKeeper
from maestro.domain.errors import ConfigurationError
from maestro.domain.health import ProcessHealth
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.keys import open_keys
from maestro.observability.health import (
    STANDING_BY,
    EngineHealth,
    HealthServer,
    connect_address,
    own_workers,
    process_metrics,
)
from maestro.settings import Loaded, read_environment
from maestro.settings.addresses import connection_limits, endpoint_of
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine


class Connect(SeparateProcess):
    """Receives and sends for some platforms; each connector runs in the process that holds its lease."""

    command = "connect"

    def __init__(self, loaded: Loaded, say: Say, platforms: Sequence[str]) -> None:
        super().__init__(loaded, say)
        self._platforms = platforms

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Receive, start jobs, and do what only the process of a connector can: send, show typing, fetch files."""
        dispatcher = Dispatcher(store, queues(self.settings), self.live.of(run_settings), self.say)
        engine = Engine(endpoint_of(self.settings), self.say)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command)
        flow = flow_parts(store, self.live, dispatcher.released, metrics.step, metrics.scan_failed)
        context_of = partial(build_context, self.live, store, dispatcher)
        connectors = self._chosen(configured_connectors(self.settings, context_of("web", DEFAULT_ACCOUNT)))
        health = EngineHealth(
            store, engine, own_workers(engine, STANDING_BY), partial(describe_closed_ports, connectors)
        )
        host = ConnectorHost(self.settings, flow.hub, engine, self.say, partial(connector_parts, flow, self.settings))
        services, begun = Services(stop), ReadySignals()
        services.add(*(host.run(connector, begun.another()) for connector in connectors))
        services.add(self._bots(store, dispatcher, host).run(webhooks_of(connectors)))
        place, hosts = connect_address(self.settings), self.settings.webui.allowed_hosts
        services.add(HealthServer(place, hosts, ProcessHealth(health, metrics), connection_limits(self.settings)).run())
        services.add(engine.run(dispatcher.run), flow.growing.run())

        async def drain() -> None:
            self.say("Stopping: what is being sent may finish.")
            stop_accepting(connectors)
            dispatcher.pause()
            await engine.drain()

        await services.until_stopped(self._announce(begun, connectors), drain)

    def _bots(self, store: Store, dispatcher: Dispatcher, host: ConnectorHost) -> BotKeeper:
        workshop = ConnectorFactory.of(self.settings, open_keys(self.settings, read_environment()))
        return BotKeeper(
            store, workshop, partial(build_context, self.live, store, dispatcher), host.run_bot, self._platforms
        )

    def _chosen(self, connectors: Sequence[Connector]) -> list[Connector]:
        """Return the connectors of the requested platforms; raises ``ConfigurationError`` for a missing one.

        Bots of the other platforms are connected as they are added and enabled.
        """
        known = {connector.platform for connector in connectors} | set(platforms())
        missing = [platform for platform in self._platforms if platform not in known]
        if missing:
            raise ConfigurationError(
                f"there is no enabled connector for {', '.join(missing)} (there are: {', '.join(sorted(known))}). "
                "Enable it in maestro.json, such as web.enabled, or correct the name."
            )
        return [connector for connector in connectors if connector.platform in self._platforms]

    async def _announce(self, begun: ReadySignals, connectors: Sequence[Connector]) -> None:
        await wait_for_ports(connectors)
        own = [f"{connector.platform}/{connector.account}" for connector in connectors]
        names = ", ".join([*own, *(name for name in self._platforms if name in platforms())])
        if not begun.done:
            self.say(f"Messages are taken in for {names}; they wait in the store until Temporal is reachable.")
        await begun.wait()
        self.say(f"The connectors are ready: {names}.")

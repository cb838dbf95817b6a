"""``maestro connect``: a separate process for connectors, which accepts messages even while Temporal is unreachable."""

import asyncio
from collections.abc import Sequence
from functools import partial

from connectors.base import Connector
from connectors.platforms import platforms
from maestro.bootstrap.connectors import build_bots, build_context, configured_connectors
from maestro.bootstrap.flow import connector_parts, flow_parts
from maestro.bootstrap.process import Say, SeparateProcess
from maestro.connector_runtime.host import (
    ConnectorHost,
    describe_closed_ports,
    wait_for_ports,
    webhooks_of,
)
from maestro.domain.errors import ConfigurationError
from maestro.domain.health import ProcessHealth
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.observability.health import (
    STANDING_BY,
    EngineHealth,
    HealthServer,
    connect_address,
    own_worker_check,
    process_metrics,
)
from maestro.settings import Loaded
from maestro.settings.addresses import connection_limits, endpoint_of
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services
from temporal.engine import Engine


class Connect(SeparateProcess):
    """The process that runs connectors of some platforms; only the process that holds a connector's lease runs it."""

    command = "connect"

    def __init__(self, loaded: Loaded, say: Say, platforms: Sequence[str]) -> None:
        super().__init__(loaded, say)
        self._platforms = platforms

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Receive messages, start jobs, and run the steps that need a connector: send, show typing, fetch files."""
        dispatcher = self.build_dispatcher(store)
        engine = Engine(endpoint_of(self.settings), self.say)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command)
        flow = flow_parts(store, self.live, dispatcher.released, metrics.count_step, metrics.count_failed_scan)
        web_context = build_context(self.live, store, dispatcher, "web", DEFAULT_ACCOUNT)
        connectors = self._requested_connectors(configured_connectors(self.settings, web_context))
        health = EngineHealth(
            store, engine, own_worker_check(engine, STANDING_BY), partial(describe_closed_ports, connectors)
        )
        host = ConnectorHost(self.settings, flow.hub, engine, self.say, partial(connector_parts, flow, self.settings))
        services, ready = Services(stop), ReadySignals()
        services.add(*(host.run(connector, ready.another()) for connector in connectors))
        bots = build_bots(self.live, store, dispatcher, host, self._platforms)
        services.add(bots.run(webhooks_of(connectors)))
        address, hosts = connect_address(self.settings), self.settings.webui.allowed_hosts
        services.add(
            HealthServer(address, hosts, ProcessHealth(health, metrics), connection_limits(self.settings)).run()
        )
        services.add(engine.run(dispatcher.run), flow.drafts.run())
        drain = partial(self.drain, engine, dispatcher, connectors)
        await services.until_stopped(self._announce(ready, connectors), drain)

    def _requested_connectors(self, connectors: Sequence[Connector]) -> list[Connector]:
        """Return the connectors of the requested platforms; raises ``ConfigurationError`` for an unknown platform.

        The keeper of bots connects the bots of the other requested platforms.
        """
        known = {connector.platform for connector in connectors} | set(platforms())
        missing = [platform for platform in self._platforms if platform not in known]
        if missing:
            raise ConfigurationError(
                f"there is no enabled connector for {', '.join(missing)} (there are: {', '.join(sorted(known))}). "
                "Enable it in maestro.json, such as web.enabled, or correct the name."
            )
        return [connector for connector in connectors if connector.platform in self._platforms]

    async def _announce(self, ready: ReadySignals, connectors: Sequence[Connector]) -> None:
        await wait_for_ports(connectors)
        own = [f"{connector.platform}/{connector.account}" for connector in connectors]
        names = ", ".join([*own, *(name for name in self._platforms if name in platforms())])
        if not ready.done:
            self.say(f"Messages are taken in for {names}; they wait in the store until Temporal is reachable.")
        await ready.wait()
        self.say(f"The connectors are ready: {names}.")

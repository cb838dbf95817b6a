"""The connectors of a process: what they are told, their lease, and the queue of what only they can do."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from connectors.base import AccountRefused, Connector
from connectors.web import WebConfig, WebConnector
from connectors.webhooks import PlatformWebhooks
from maestro.bootstrap.flow import FlowParts, connector_parts
from maestro.bootstrap.process import Say
from maestro.bootstrap.rules import intake_rules
from maestro.connector_runtime.context import StoreContext
from maestro.connector_runtime.leases import lease
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.installation.storage import open_files, signing_key, upload_folder
from maestro.intake import Intake
from maestro.settings import Settings, is_loopback
from maestro.settings.addresses import connection_limits, dashboard_origins
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.supervision import Service, end, first_of
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine


@dataclass(frozen=True)
class ConnectorHost:
    """Where connectors work: beside an embedded server they have the process, on a cluster a lease and a queue."""

    settings: Settings
    flow: FlowParts
    engine: Engine
    say: Say

    async def man(self, connector: Connector, begun: Callable[[], None]) -> None:
        """Run the connector until cancelled, once it is ours; ``begun`` is called when its sends are taken on."""
        if self.settings.temporal.embedded:
            begun()
            with self.flow.hub.running(connector):
                await connector.run()
        else:
            await self._man_alone(connector, begun)

    async def man_bot(self, connector: Connector) -> None:
        """Run a bot until cancelled, once its token is ours, which another row may have by mistake.

        Raises ``AccountRefused`` when the platform takes nothing more from it.
        """
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[str] = loop.create_future()
        async with lease(self.settings.data_dir / "leases", connector, self.say):
            with self.flow.hub.running(connector, partial(_settle, loop, refused)):
                tasks = [asyncio.create_task(service) for service in self._work_of(connector)]
                try:
                    await first_of(refused, watched=tasks)
                finally:
                    await end(tasks)
        if not refused.cancelled():
            raise AccountRefused(refused.result())

    def _work_of(self, connector: Connector) -> list[Service]:
        if self.settings.temporal.embedded:
            return [connector.run()]
        return [connector.run(), self.engine.work(connector_parts(self.flow, self.settings, connector), _begun)]

    async def _man_alone(self, connector: Connector, begun: Callable[[], None]) -> None:
        async with lease(self.settings.data_dir / "leases", connector, self.say), asyncio.TaskGroup() as group:
            with self.flow.hub.running(connector):
                working = self.engine.work(connector_parts(self.flow, self.settings, connector), begun)
                group.create_task(working)
                await connector.run()


def _settle(loop: asyncio.AbstractEventLoop, refused: "asyncio.Future[str]", reason: str) -> None:
    """Tell, from any thread, why a platform refuses an account; the first reason counts."""
    loop.call_soon_threadsafe(lambda: None if refused.done() else refused.set_result(reason))


def _begun() -> None:
    """Nobody waits for the worker of a bot: bots come and go."""


@dataclass(frozen=True)
class ConnectorContexts:
    """What connectors may ask of Maestro; ``dispatcher`` is told of the jobs that their messages make."""

    live: LiveSettings
    store: Store
    dispatcher: Dispatcher

    def of(self, platform: str, account: str) -> StoreContext:
        """Return the context of one account."""
        intake = Intake(self.store, self.live.of(intake_rules), self.dispatcher.wake, self.dispatcher)
        return StoreContext((platform, account), intake, self.store, open_files(self.live.start))


def web_context(live: LiveSettings, store: Store, dispatcher: Dispatcher) -> StoreContext:
    """Return what the web connector may ask of Maestro."""
    return ConnectorContexts(live, store, dispatcher).of("web", DEFAULT_ACCOUNT)


def configured_connectors(settings: Settings, context: StoreContext) -> Sequence[Connector]:
    """Return the connectors that run for as long as the process does: the web connector, if it is on."""
    return [WebConnector(web_config(settings), context)] if settings.web.enabled else []


def webhooks_of(connectors: Sequence[Connector]) -> PlatformWebhooks | None:
    """Return where platforms can call, None without the web connector."""
    return next((connector.webhooks for connector in connectors if isinstance(connector, WebConnector)), None)


async def wait_until_listening(connectors: Sequence[Connector]) -> None:
    """Return once those that have a port take messages; raises what keeps one from it."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            await connector.started()


def not_listening(connectors: Sequence[Connector]) -> str:
    """Return which connectors that have a port do not take messages yet, empty when all do."""
    waiting = [one.platform for one in connectors if isinstance(one, WebConnector) and not one.listening]
    return f"not listening yet: {', '.join(waiting)}" if waiting else ""


def stop_accepting(connectors: Sequence[Connector]) -> None:
    """Let them take no more messages, while what is being answered still goes out."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            connector.stop_accepting()


def web_config(settings: Settings) -> WebConfig:
    """Return what the web connector is told (docs/decisions.md: web identity)."""
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
        connections=connection_limits(settings),
    )

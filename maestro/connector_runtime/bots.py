"""The bots of a process: their connectors are created, started, stopped and restarted as operators change the bots."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog
from pydantic import SecretStr

from connectors.base import Connector, ConnectorContext, ConnectorState, HasRoutes
from connectors.failures import AccountRefused
from connectors.options import Instance
from connectors.platforms import platform
from connectors.webhooks import PlatformWebhooks
from maestro.connector_runtime.host import Receive
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError, InvalidEdit, LeaseLost, MaestroError, StoreBusy
from maestro.domain.values import read
from maestro.installation.data_folder import SecretKeys
from maestro.settings import Settings
from maestro.settings.connectors import BotSettings
from maestro.store.store import Store
from maestro.supervision import cancel_tasks, wait_for_first

LOOK_SECONDS = 0.5
"""The longest delay in seconds until a change of a bot's row is applied."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""The longest pause in seconds before a failed connector is restarted; pauses double up to this value."""

BotName = tuple[str, str]
RunConnector = Callable[[Connector, Receive], Awaitable[None]]
"""Runs a connector under its lease; raises ``AccountRefused`` when the platform refuses the account."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ConnectorFactory:
    """A factory of bots' connectors; a bot's entry in the configuration file has precedence over its row."""

    keys: SecretKeys
    configured: Mapping[tuple[str, str], BotSettings]

    @classmethod
    def of(cls, settings: Settings, keys: SecretKeys) -> "ConnectorFactory":
        """Return the factory of a process, with the bots in its settings."""
        return cls(keys, {(bot.platform, bot.account): bot for bot in settings.connectors.enabled_bots()})

    def build_instance(self, row: BotInstance) -> Instance:
        """Return the options and the decrypted secrets of a bot.

        Raises ``ConfigurationError`` for a bot that cannot be connected; the message names the fix and quotes no value.
        """
        secrets, options = self._secrets_and_options(row)
        entry = platform(row.platform)
        unknown = sorted(set(secrets) - set(entry.secrets))
        if unknown:
            known = ", ".join(entry.secrets)
            raise ConfigurationError(f"{row.name}: unknown secret {', '.join(unknown)}; the known ones are {known}")
        try:
            checked = read(entry.options, options)
        except InvalidEdit as error:
            raise ConfigurationError(f"{row.name}: {error}") from None
        first = next((secrets[name] for name in entry.secrets if name in secrets), SecretStr(""))
        token = first.get_secret_value()
        digest = self.keys.keyed_fingerprint(row.platform, token) if token else ""
        instance = Instance(row.account, secrets, checked, digest)
        problem = entry.complete(instance)
        if problem is not None:
            raise ConfigurationError(f"{row.name}: {problem}")
        return instance

    def create_connector(self, row: BotInstance, instance: Instance, context: ConnectorContext) -> Connector:
        """Create the connector of a bot; the first call for a platform imports its library, which takes a moment."""
        return platform(row.platform).connect(instance, context)

    def settings_digest(self, row: BotInstance) -> str:
        """Return a fingerprint of a bot's settings; a new fingerprint means that the bot must reconnect."""
        try:
            instance = self.build_instance(row)
        except ConfigurationError as error:
            return str(error)
        secrets = [f"{name}={value.get_secret_value()}" for name, value in sorted(instance.secrets.items())]
        return self.keys.keyed_fingerprint(instance.options.model_dump_json(), *secrets)

    def _secrets_and_options(self, row: BotInstance) -> tuple[Mapping[str, SecretStr], Mapping[str, object]]:
        if not row.configured:
            return {name: self.keys.reveal_key(text) for name, text in row.stored_secrets.items()}, row.option_values
        bot = self.configured.get((row.platform, row.account))
        if bot is None:
            raise ConfigurationError(
                f"{row.name} belongs to a configuration file that this process did not read; start it with that file"
            )
        return bot.secrets, bot.options


@dataclass(frozen=True)
class EnabledBot:
    """A bot that should run; ``state`` is a fingerprint that changes when the bot has to be reconnected."""

    row: BotInstance
    state: str


@dataclass
class RunningBot:
    """A running bot; ``task`` ends if the platform refuses the bot; ``changed_at`` is its row's last change."""

    state: str
    changed_at: datetime | None
    task: "asyncio.Task[None]"

    def is_current(self, bot: EnabledBot) -> bool:
        """Tell whether this bot may go on unchanged; a bot with an ended task restarts when its row changes."""
        return bot.state == self.state and not (self.task.done() and bot.row.changed_at != self.changed_at)


class BotKeeper:
    """The runner of the enabled bots of one process; ``platforms`` are the platforms it may connect, None for all."""

    def __init__(
        self,
        store: Store,
        factory: ConnectorFactory,
        context_of: Callable[[str, str], ConnectorContext],
        run_connector: RunConnector,
        platforms: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._factory = factory
        self._context_of = context_of
        self._run_connector = run_connector
        self._platforms = platforms
        self._running: dict[BotName, RunningBot] = {}
        self._webhooks: PlatformWebhooks | None = None
        # The initial value equals no version, so that the first read counts as a change.
        self._applied_version: object = self

    async def keep_running(self, webhooks: PlatformWebhooks | None) -> None:
        """Start and stop bots as their rows change, until cancelled; ``webhooks`` serves the webhooks of platforms."""
        self._webhooks = webhooks
        try:
            with self._store.changes.subscribe(
                lambda state: state.bot_instances != self._applied_version, lambda: LOOK_SECONDS
            ) as changed:
                changed.set()
                while True:
                    await changed.wait()
                    changed.clear()
                    await self._apply_changes()
        finally:
            await cancel_tasks([old_bot.task for old_bot in self._running.values()])

    async def _apply_changes(self) -> None:
        try:
            row_version, enabled_bots = await asyncio.to_thread(self._read_enabled_bots)
            await self._replace_outdated(enabled_bots)
        except StoreBusy as error:
            log.warning("bots.postponed", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)
        else:
            self._applied_version = row_version

    def _read_enabled_bots(self) -> tuple[int | None, Mapping[BotName, EnabledBot]]:
        """Return the version of the bots' rows, and the bots that should run."""
        with self._store.view() as tx:
            row_version = tx.system.versions.read_versions().bot_instances
            rows = [row for row in tx.bots.list_bots() if row.enabled]
        chosen = [row for row in rows if self._platforms is None or row.platform in self._platforms]
        return row_version, {
            (row.platform, row.account): EnabledBot(row, self._factory.settings_digest(row)) for row in chosen
        }

    async def _replace_outdated(self, enabled_bots: Mapping[BotName, EnabledBot]) -> None:
        outdated = [
            name
            for name, old_bot in self._running.items()
            if name not in enabled_bots or not old_bot.is_current(enabled_bots[name])
        ]
        # An account has one connector, so the old connector ends before the new connector starts.
        await cancel_tasks([self._running.pop(name).task for name in outdated])
        for name, bot in enabled_bots.items():
            if name not in self._running:
                task = asyncio.create_task(self._run_bot(bot.row))
                self._running[name] = RunningBot(bot.state, bot.row.changed_at, task)

    async def _run_bot(self, row: BotInstance) -> None:
        """Run a bot until cancelled, or until the platform refuses the account; restart it after other failures."""
        context = self._context_of(row.platform, row.account)
        pause = FIRST_PAUSE
        while True:
            try:
                instance = await asyncio.to_thread(self._factory.build_instance, row)
                connector = await asyncio.to_thread(self._factory.create_connector, row, instance, context)
                await self._run_while_reachable(connector, partial(_receive_and_report, context))
                problem = "the connector ended by itself"
            except (AccountRefused, ConfigurationError) as error:
                log.warning("connector.failed", connector=row.name, reason=str(error))
                await self._report_failure(context, str(error))
                return
            except LeaseLost as lost:
                log.warning("connector.stopped", connector=row.name, reason=str(lost))
                await asyncio.sleep(FIRST_PAUSE)
                continue
            # A failed connector is restarted, because messages still wait on its platform; other bots keep running.
            except Exception as error:  # noqa: BLE001 - see above
                # Only the class of a library's error is shown, because the error's text may quote a token.
                is_ours = isinstance(error, MaestroError)
                problem = str(error) if is_ours else f"the connector failed ({type(error).__name__})"
                log.warning("connector.broke", connector=row.name, reason=problem, again_in=pause)
            with contextlib.suppress(MaestroError):  # The store may have failed too; the problem is already in the log.
                await context.report(ConnectorState.DEGRADED, f"{problem}; Maestro restarts it in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_while_reachable(self, connector: Connector, receive: Receive) -> None:
        """Run a connector under its lease; one with a webhook only while this process has the web connector's port.

        Two processes could otherwise have one lease each, that of the port and that of the bot, and every request of
        the platform would be refused. Raises ``LeaseLost`` when the port is closed, and ``ConfigurationError`` for a
        webhook without a web connector.
        """
        if not (isinstance(connector, HasRoutes) and connector.routes()):
            await self._run_connector(connector, receive)
            return
        if self._webhooks is None:
            raise ConfigurationError(
                f"{connector.platform} sends webhooks to the web connector's port, and this process has none: set "
                f"web.enabled to true, and with separate processes start `maestro connect web {connector.platform}`"
            )
        with self._webhooks.serve_connector(connector):
            await self._webhooks.wait_until_open()
            task = asyncio.ensure_future(self._run_connector(connector, receive))
            try:
                await wait_for_first(self._webhooks.wait_until_closed(), watched=[task])
            finally:
                await cancel_tasks([task])
        if task.cancelled() or not self._webhooks.is_open:
            raise LeaseLost(f"this process no longer has the port to which {connector.platform} posts")

    async def _report_failure(self, context: ConnectorContext, reason: str) -> None:
        """Report why a bot was stopped; retry while the store is busy, because no later report follows."""
        while True:
            try:
                return await context.report(ConnectorState.FAILED, reason)
            except StoreBusy:
                await asyncio.sleep(FIRST_PAUSE)


async def _receive_and_report(context: ConnectorContext, connector: Connector) -> None:
    """Run a connector that has its lease, and report its start and its end.

    A process that waits for the lease of another one reports nothing: the state is that of the one which receives.
    """
    await context.report(ConnectorState.STARTING)
    try:
        await connector.run()
    except asyncio.CancelledError:
        with contextlib.suppress(MaestroError):
            await context.report(ConnectorState.STOPPED)
        raise

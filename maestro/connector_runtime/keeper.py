"""Runs a connector for each enabled bot; starts, stops and reconfigures them at run time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from connectors.base import AccountRefused, Connector, ConnectorContext, ConnectorState, HasRoutes
from connectors.webhooks import PlatformWebhooks
from maestro.connector_runtime.factory import ConnectorFactory
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError, MaestroError, StoreBusy
from maestro.store.cache import StoreState
from maestro.store.store import Store
from maestro.supervision import end

LOOK_SECONDS = 0.5
"""Seconds until a change of a bot's row is applied, at most."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds before a connector that broke is run again; each pause is twice the one before."""

BotName = tuple[str, str]
ContextOf = Callable[[str, str], ConnectorContext]
RunConnector = Callable[[Connector], Awaitable[None]]
"""Runs a connector where its account is ours; raises ``AccountRefused`` when its platform takes nothing any more."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EnabledBot:
    """A bot that should run, with the fingerprint that shows whether it has to be reconnected."""

    row: BotInstance
    state: str


@dataclass
class RunningBot:
    """A running bot and its task, which ends if the platform refuses it; ``changed_at`` is its row's last change."""

    state: str
    changed_at: datetime | None
    task: "asyncio.Task[None]"

    def serves(self, bot: EnabledBot) -> bool:
        """Say whether the bot keeps running; a refused bot is tried again after any change of its row."""
        return bot.state == self.state and not (self.task.done() and bot.row.changed_at != self.changed_at)


class BotKeeper:
    """Keeps the bots of one process; ``platforms`` are those it may connect, None for all of them."""

    def __init__(
        self,
        store: Store,
        workshop: ConnectorFactory,
        context_of: ContextOf,
        man: RunConnector,
        platforms: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._workshop = workshop
        self._context_of = context_of
        self._man = man
        self._platforms = platforms
        self._kept: dict[BotName, RunningBot] = {}
        self._webhooks: PlatformWebhooks | None = None
        self._seen: object = self  # a value that no version equals, so that the first read counts as a change

    async def run(self, webhooks: PlatformWebhooks | None) -> None:
        """Follow the rows of the bots until cancelled; platforms call ``webhooks``, None without a port."""
        self._webhooks = webhooks
        changes = self._store.changes
        try:
            with changes.subscribed(self._is_changed, lambda: LOOK_SECONDS) as changed:
                changed.set()
                while True:
                    await changed.wait()
                    changed.clear()
                    await self._follow()
        finally:
            await end([kept.task for kept in self._kept.values()])

    def _is_changed(self, state: StoreState) -> bool:
        return state.bot_instances != self._seen

    async def _follow(self) -> None:
        try:
            seen, wanted = await asyncio.to_thread(self._wanted)
            await self._apply(wanted)
        except StoreBusy as error:
            log.warning("bots.postponed", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)
        else:
            self._seen = seen

    def _wanted(self) -> tuple[int | None, Mapping[BotName, EnabledBot]]:
        """Return the version of the bots' rows, and the bots that should run."""
        with self._store.view() as tx:
            seen = tx.system.versions.now().bot_instances
            rows = [row for row in tx.bots.all() if row.enabled]
        chosen = [row for row in rows if self._platforms is None or row.platform in self._platforms]
        return seen, {(row.platform, row.account): EnabledBot(row, self._workshop.state_of(row)) for row in chosen}

    async def _apply(self, wanted: Mapping[BotName, EnabledBot]) -> None:
        over = [place for place, kept in self._kept.items() if place not in wanted or not kept.serves(wanted[place])]
        # An account has one connector, so the old one ends before the new one starts.
        await end([self._kept.pop(place).task for place in over])
        for place, bot in wanted.items():
            if place not in self._kept:
                task = asyncio.create_task(self._keep(bot.row))
                self._kept[place] = RunningBot(bot.state, bot.row.changed_at, task)

    async def _keep(self, row: BotInstance) -> None:
        """Run a bot until cancelled, or until the platform refuses it; then only a change of its row restarts it."""
        context = self._context_of(row.platform, row.account)
        pause = FIRST_PAUSE
        while True:
            try:
                await context.report(ConnectorState.STARTING)
                await self._connected(row, context)
                problem = "its connector ended by itself"
            except (AccountRefused, ConfigurationError) as error:
                log.warning("connector.failed", connector=row.place, reason=str(error))
                await self._give_up(context, str(error))
                return
            except asyncio.CancelledError:
                with contextlib.suppress(MaestroError):
                    await context.report(ConnectorState.STOPPED)
                raise
            # A connector that breaks is restarted, because messages still wait on its platform; others are not
            # affected.
            except Exception as error:  # noqa: BLE001 - see above
                problem = _describe_error(error)
                log.warning("connector.broke", connector=row.place, reason=problem, again_in=pause)
            await self._tell(context, f"{problem}; it is run again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connected(self, row: BotInstance, context: ConnectorContext) -> None:
        instance = await asyncio.to_thread(self._workshop.instance, row)
        connector = await asyncio.to_thread(self._workshop.connect, row, instance, context)
        with self._reachable(connector):
            await self._man(connector)

    def _reachable(self, connector: Connector) -> contextlib.AbstractContextManager[None]:
        """Register the connector's webhook if its platform uses one; raises ``ConfigurationError`` without a port."""
        if not (isinstance(connector, HasRoutes) and connector.routes()):
            return contextlib.nullcontext()
        if self._webhooks is None:
            raise ConfigurationError(
                f"{connector.platform} calls us on the web connector's port, and this process has none: set "
                f"web.enabled to true, and with separate processes start `maestro connect web {connector.platform}`"
            )
        return self._webhooks.serving(connector)

    async def _give_up(self, context: ConnectorContext, reason: str) -> None:
        """Record why a bot was stopped; repeated while the store is busy, because it is the last report."""
        while True:
            try:
                return await context.report(ConnectorState.FAILED, reason)
            except StoreBusy:
                await asyncio.sleep(FIRST_PAUSE)

    async def _tell(self, context: ConnectorContext, detail: str) -> None:
        with contextlib.suppress(MaestroError):  # the store itself may have failed; the error is in the log
            await context.report(ConnectorState.DEGRADED, detail)


def _describe_error(error: Exception) -> str:
    """Describe a connector's error; of a library's error only its class, because the text may quote a token."""
    return str(error) if isinstance(error, MaestroError) else f"its connector broke ({type(error).__name__})"

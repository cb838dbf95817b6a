"""Bots are started, stopped and connected anew while Maestro runs, and one that is refused is left alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from connectors.base import (
    AccountRefused,
    Capabilities,
    Connector,
    ConnectorContext,
    ConnectorState,
    Idempotency,
    LengthUnit,
)
from connectors.options import Instance
from connectors.webhooks import PlatformWebhooks
from maestro.connector_runtime import bots
from maestro.connector_runtime.bots import BotKeeper, ConnectorFactory
from maestro.connector_runtime.host import Receive
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import LeaseLost, StoreBusy
from maestro.domain.llm.accounts import StoredKey
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.installation.data_folder import SecretKeys
from maestro.settings.connectors import BotSettings
from maestro.store.platforms.bots import set_secrets
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.instance import until
from tests.support.memory_context import MemoryContext

KEYS = SecretKeys(Fernet.generate_key(), {"TOKEN": "token-of-the-variable"})


class Line:
    """A connector that waits, or does what its script says first."""

    platform = "discord"
    capabilities = Capabilities(2000, LengthUnit.UTF16, 8, Idempotency.NATIVE)

    def __init__(self, instance: Instance, script: list[Exception]) -> None:
        self.account, self.token_digest = instance.account, instance.token_digest
        self.token = instance.secret("token")
        self._script = script

    async def run(self) -> None:
        """Fail as the script says, or stay."""
        if self._script:
            raise self._script.pop(0)
        await asyncio.Event().wait()

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Nobody sends here."""
        raise NotImplementedError

    async def typing(self, address: Address) -> None:
        """Show nothing."""


class Posted(Line):
    """A connector to which its platform posts."""

    def routes(self) -> list[BaseRoute]:
        """Return its webhook."""
        return [Route("/", lambda _: Response())]


class Bench:
    """A store with bots, and what became of each."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.script: list[Exception] = []
        self.contexts: dict[str, MemoryContext] = {}
        self.running: dict[str, Line] = {}
        self.begun: list[str] = []
        self.leases_are_free = asyncio.Event()
        self.leases_are_free.set()
        self.kind = Line
        self.webhooks = PlatformWebhooks()
        bench = self

        class Makes(ConnectorFactory):
            """Makes lines instead of connectors."""

            def create_connector(self, row: BotInstance, instance: Instance, context: ConnectorContext) -> Connector:
                """Make one."""
                return bench.kind(instance, bench.script)

        secrets = {"token": SecretStr("token-of-the-configuration")}
        configured = BotSettings(platform="discord", account="ours", secrets=secrets)
        self.keeper = BotKeeper(store, Makes(KEYS, {("discord", "ours"): configured}), self._context, self._man)

    def put(self, account: str, change: Callable[[BotInstance], None]) -> None:
        """Change a bot, or add it, enabled and with a token."""
        with self.store.begin() as tx:
            bot = tx.bots.find_bot("discord", account)
            if bot is None:
                bot = BotInstance(platform="discord", account=account)
                set_secrets(bot, {"token": KEYS.stored_form("typed-token-of-the-bot")})
            change(bot)
            tx.bots.save_bot(bot, "grace", "connector.change")

    def states(self, account: str) -> list[ConnectorState]:
        """Return what the bot said of itself."""
        return [state for state, _ in self.contexts[account].states] if account in self.contexts else []

    def _context(self, platform: str, account: str) -> MemoryContext:
        return self.contexts.setdefault(account, MemoryContext())

    async def _man(self, connector: Connector, receive: Receive) -> None:
        assert isinstance(connector, Line)
        self.begun.append(connector.token)
        await self.leases_are_free.wait()
        self.running[connector.account] = connector
        try:
            await receive(connector)
        finally:
            del self.running[connector.account]


@asynccontextmanager
async def benched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(bots, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(bots, "FIRST_PAUSE", 0.01)
    with closing(fresh_store(folder / "maestro.db")) as store:
        bench = Bench(store)
        keeping = asyncio.create_task(bench.keeper.keep_running(bench.webhooks))
        try:
            yield bench
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        assert bench.running == {}, "who stops lets every bot go"


class Busy(MemoryContext):
    """A store that is busy the first time something failed."""

    busy = True

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Keep the state, the second time."""
        if state is ConnectorState.FAILED and self.busy:
            self.busy = False
            raise StoreBusy("the database is locked")
        await super().report(state, detail)


def nothing(bot: BotInstance) -> None:
    """Change nothing."""


async def test_a_bot_is_connected_when_it_is_added_and_let_go_when_it_is_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.put("one", nothing)
        await until(lambda: "one" in bench.running, what="the bot")
        bench.put("two", nothing)
        await until(lambda: "two" in bench.running, what="another bot")
        bench.put("one", lambda bot: setattr(bot, "enabled", False))
        await until(lambda: "one" not in bench.running, what="the end of the first")
        assert bench.states("one")[-1] is ConnectorState.STOPPED
        assert bench.begun == ["typed-token-of-the-bot"] * 2, "the other one went on as it was"


async def test_a_bot_that_another_process_runs_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.leases_are_free.clear()
        bench.put("one", nothing)
        await until(lambda: len(bench.begun) == 1, what="the wait for the lease")
        bench.put("one", lambda bot: setattr(bot, "enabled", False))
        bench.put("two", nothing)  # the keeper has looked again when it waits for the lease of this one
        await until(lambda: len(bench.begun) == 2, what="the wait of another bot")
        assert (bench.states("one"), bench.states("two")) == ([], [])
        bench.leases_are_free.set()
        await until(lambda: "two" in bench.running, what="the other bot")
        assert bench.states("two") == [ConnectorState.STARTING]


async def test_a_lost_lease_is_waited_for_without_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.script.append(LeaseLost("the lease is lost"))
        bench.put("one", nothing)
        await until(lambda: "one" in bench.running and not bench.script, what="the bot")
        assert ConnectorState.DEGRADED not in bench.states("one")


async def test_a_bot_with_a_webhook_runs_only_where_its_platform_posts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one of two hosts may have the port and the other one the bot, and no message arrives."""
    async with benched(tmp_path, monkeypatch) as bench:
        bench.kind = Posted
        bench.put("one", nothing)
        await until(lambda: bool(bench.webhooks.router.routes), what="the route")
        assert bench.begun == [], "its lease is not taken while another process has the port"
        for times in (1, 2):
            bench.webhooks.open()
            await until(lambda: "one" in bench.running, what="the bot")
            bench.webhooks.close()
            await until(lambda: "one" not in bench.running, what="its end with the port")
            assert len(bench.begun) == times
        assert ConnectorState.DEGRADED not in bench.states("one")


async def test_a_new_token_connects_anew_and_a_new_agent_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.put("one", nothing)
        await until(lambda: "one" in bench.running, what="the bot")
        bench.put("one", lambda bot: setattr(bot, "options", "{}"))
        bench.put("one", lambda bot: set_secrets(bot, {"token": StoredKey("env:TOKEN")}))
        await until(lambda: len(bench.begun) == 2, what="a new connection")
        assert bench.begun[-1] == "token-of-the-variable"


async def test_what_the_platform_refuses_is_a_clear_state_and_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.script.append(AccountRefused("Discord does not know this token; copy it again"))
        bench.put("one", nothing)
        await until(lambda: ConnectorState.FAILED in bench.states("one"), what="the refusal")
        bench.put("two", nothing)  # the keeper has looked again since
        await until(lambda: "two" in bench.running, what="another bot")
        assert len(bench.begun) == 2
        assert bench.contexts["one"].states[-1] == (
            ConnectorState.FAILED,
            "Discord does not know this token; copy it again",
        )
        bench.put("one", lambda bot: set_secrets(bot, {"token": StoredKey("env:TOKEN")}))
        await until(lambda: "one" in bench.running, what="the bot with the right token")


async def test_what_was_mended_on_the_platform_is_tried_again_when_somebody_enables_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.script.append(AccountRefused("it lacks a scope; add it and install the app again"))
        bench.put("one", nothing)
        await until(lambda: ConnectorState.FAILED in bench.states("one"), what="the refusal")
        bench.put("one", lambda bot: setattr(bot, "enabled", True))
        await until(lambda: "one" in bench.running, what="the bot with the token it had")


async def test_a_refusal_is_told_however_busy_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.contexts["one"] = Busy()
        bench.script.append(AccountRefused("copy the token again"))
        bench.put("one", nothing)
        await until(lambda: ConnectorState.FAILED in bench.states("one"), what="the refusal")


async def test_a_connector_that_breaks_is_run_again_and_says_nothing_of_what_its_library_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.script += [RuntimeError("secret-token in an error"), OSError("gone")]
        bench.put("one", nothing)
        await until(lambda: "one" in bench.running, what="the bot")
        said = bench.contexts["one"].states
        assert [state for state, _ in said].count(ConnectorState.DEGRADED) == 2
        assert "RuntimeError" in said[1][1]
        assert "secret-token" not in str(said)


async def test_a_bot_without_its_secret_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        bench.put("one", lambda bot: setattr(bot, "secrets", "{}"))
        await until(lambda: ConnectorState.FAILED in bench.states("one"), what="the state")
        assert "token is missing" in bench.contexts["one"].states[-1][1]
        assert bench.begun == []


async def test_a_bot_of_the_configuration_has_its_secrets_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path, monkeypatch) as bench:
        with bench.store.begin() as tx:
            tx.bots.set_configured({("discord", "ours"): None, ("discord", "theirs"): None})
        await until(lambda: "ours" in bench.running, what="the bot")
        await until(lambda: ConnectorState.FAILED in bench.states("theirs"), what="the state")
        assert bench.begun == ["token-of-the-configuration"]
        assert "did not read" in bench.contexts["theirs"].states[-1][1]

"""The models of a process: who is entered into the store, who is announced, and in which order the chain stands."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from maestro.bootstrap.models import Models, begin_library_import, build_chain, build_models
from maestro.bootstrap.process import Process
from maestro.bootstrap.tools import build_redaction
from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import StoreFull
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType, ModelAccount
from maestro.llm import litellm_client
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.llm.middleware.limits import StopMonitor
from maestro.llm.middleware.replay import FOLDER, AnswerSpool
from maestro.settings import Settings, load
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

KEY = "sk-KEY-SECRET-23-and-more"
ORDER = [
    "ReplayGuard",
    "StopGuard",
    "Budget",
    "Failover",
    "SecondAttempt",
    "CircuitBreaker",
    "RateLimit",
    "RequestChanges",
    "Recorder",
    "Deadline",
    "DraftStreaming",
    "AccountTransport",
]
"""The chain, the outermost first."""
CHANGES = ["Redaction", "CacheMarkers", "ChatFeed"]
"""What is changed of a request, in this order; the feed is not there when the chat is turned off."""


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Import nothing for seconds; each import that was begun is noted instead."""
    begun: list[str] = []
    monkeypatch.setattr(litellm_client, "_import_litellm", lambda: begun.append("litellm"))
    return begun


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "maestro.db")
    yield store
    store.close()


def settings(folder: Path, *accounts: dict[str, Any]) -> Settings:
    """A configuration with these accounts."""
    return Settings.model_validate({"dataDir": folder, "llm": {"accounts": accounts}})


def built(store: Store, folder: Path, *accounts: dict[str, Any], **environment: str) -> Models:
    """Start a process."""
    models = build_models(LiveSettings.from_fixed(settings(folder, *accounts)), environment, store, LiteLLMLibrary())
    models.book.read_roster()
    return models


def rows(store: Store) -> dict[str, ModelAccount]:
    """Return every account by name."""
    with store.view() as tx:
        return {account.name: account for account in tx.llm.accounts.list_accounts()}


CLI = {"name": "max", "type": "cli", "homeDir": "/home/max", "priority": 5}
GPT = {"name": "gpt", "provider": "openai", "model": "openai/gpt-4.1", "apiKey": KEY, "models": ["openai/gpt-4o", "o3"]}


@pytest.mark.parametrize("chat", [True, False], ids=["with the chat", "without the chat"])
def test_the_order_is_the_one_that_is_written(store: Store, tmp_path: Path, chat: bool) -> None:
    models = built(store, tmp_path, CLI)
    settings = Settings.model_validate({"dataDir": tmp_path, "chat": {"enabled": chat}})
    scope = build_redaction(LiveSettings.from_fixed(settings))
    client: Any = build_chain(models, store, scope, StopMonitor(store, lambda: 1))
    names, changes = [], []
    while client is not None:
        names.append(type(client).__name__)
        changes += [type(change).__name__ for change in getattr(client, "_changes", ())]
        client = getattr(client, "_inner", None) or getattr(client, "inner", None)
    assert (names, changes) == (ORDER, CHANGES if chat else CHANGES[:2])


def test_the_answers_that_an_earlier_process_left_are_read_at_the_start(store: Store, tmp_path: Path) -> None:
    left = tmp_path / FOLDER / "job.answer.1.1.json"
    left.parent.mkdir()
    left.write_text("no JSON")
    built(store, tmp_path, CLI)
    assert [file.name for file in left.parent.iterdir()] == ["job.answer.1.1.unreadable"]


def test_a_process_starts_although_the_store_cannot_take_the_answers_that_are_left(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerSpool, "commit_files", Mock(side_effect=StoreFull("the disk is full")))
    assert built(store, tmp_path, CLI).demo is False


def test_the_store_is_told_everything_but_the_key(store: Store, tmp_path: Path) -> None:
    models = built(store, tmp_path, GPT)
    row = rows(store)["gpt"]
    assert (row.model, row.models, row.last4, row.source) == ("gpt-4.1", "gpt-4o o3", "more", "configuration")
    assert row.fingerprint
    assert row.secret == ""
    assert b"KEY-SECRET" not in (tmp_path / "maestro.db").read_bytes()
    account = models.book.find("gpt")
    assert account is not None
    assert (account.api_key.get_secret_value(), account.model) == (KEY, "gpt-4.1")


def test_the_store_is_not_told_the_login_in_an_address(store: Store, tmp_path: Path) -> None:
    mine = {"name": "mine", "provider": "ollama", "baseUrl": "http://me:PASSWORD@here:1/v1"}
    models = built(store, tmp_path, mine)
    assert rows(store)["mine"].base_url == "http://here:1/v1"
    account = models.book.find("mine")
    assert account is not None
    assert account.base_url == mine["baseUrl"], "it is used all the same"


def test_keys_of_the_environment_count_when_no_account_is_configured(store: Store, tmp_path: Path) -> None:
    found = built(store, tmp_path, OPENAI_API_KEY="o", OPENAI_API_KEY_3="p")
    assert {name: row.source for name, row in rows(store).items()} == dict.fromkeys(
        ("openai", "openai-3"), AccountSource.ENVIRONMENT
    )
    assert (
        "openai/gpt-4o-mini (a key found in the environment; calls with this key are paid). 1 more"
        in found.announcement
    )
    built(store, tmp_path, CLI, OPENAI_API_KEY="o")
    assert list(rows(store)) == ["max"]


def test_another_key_for_a_refused_account_makes_it_active_again(store: Store, tmp_path: Path) -> None:
    built(store, tmp_path, OPENAI_API_KEY="old")
    with store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("openai"))
    built(store, tmp_path, OPENAI_API_KEY="old")
    assert rows(store)["openai"].status is AccountStatus.DISABLED
    built(store, tmp_path, OPENAI_API_KEY="new")
    assert rows(store)["openai"].status is AccountStatus.ACTIVE


def test_without_an_account_the_demo_model_is_announced(store: Store, tmp_path: Path) -> None:
    models = built(store, tmp_path, {"name": "play", "provider": "demo"})
    assert models.demo
    assert "the built-in demo model answers" in models.announcement
    assert rows(store) == {}


def test_an_account_added_while_maestro_ran_is_there_after_a_restart(store: Store, tmp_path: Path) -> None:
    built(store, tmp_path)
    with store.begin() as tx:
        tx.llm.accounts.add_account(
            ModelAccount(
                name="mine",
                type=AccountType.CLI,
                provider="anthropic",
                model="claude-sonnet-4-6",
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
        tx.agents.create(NewAgent(slug="odd", model="openai/my-own"), "operator")
    models = built(store, tmp_path)
    assert not models.demo
    assert models.announcement.count("is not known") == 1
    assert "The context window of openai/my-own is not known: prompts are kept within 8,192" in models.announcement
    assert "anthropic/claude-sonnet-4-6 (an account that was added while Maestro ran)" in models.announcement
    assert models.book.find("mine") is not None


@pytest.mark.parametrize(
    ("accounts", "environment", "begun"),
    [
        ((GPT,), {}, True),
        ((), {"OPENAI_API_KEY": "o"}, True),
        ((CLI,), {}, False),
        ((CLI,), {"OPENAI_API_KEY": "o"}, False),
        ((), {}, False),
    ],
    ids=["configured", "environment", "command", "configured counts first", "demo"],
)
def test_the_import_for_a_configured_account_needs_no_store(
    tmp_path: Path, imported: list[str], accounts: tuple[dict[str, Any], ...], environment: dict[str, str], begun: bool
) -> None:
    library = begin_library_import(LiveSettings.from_fixed(settings(tmp_path, *accounts)), environment)
    assert (library._imported is not None) is begun
    if library._imported is not None:
        library._imported.result(timeout=30)
    assert imported == ["litellm"] * begun


async def test_the_import_begins_before_the_store_is_opened(tmp_path: Path) -> None:
    order: list[str] = []

    class Recorded(Process):
        """A process that notes what it does."""

        command = "recorded"

        def prepare(self) -> None:
            """Note it."""
            order.append("prepare")

        def open_store(self) -> Store:
            """Note it."""
            order.append("store")
            return super().open_store()

        async def work(self, store: Store, stop: asyncio.Event) -> None:
            """Note it."""
            order.append("work")

    await Recorded(load(None, {"MAESTRO_DATA_DIR": str(tmp_path)}, {}), order.append).serve(asyncio.Event())
    assert order == ["prepare", "store", "work"]

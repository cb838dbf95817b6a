"""Clients of the configuration: who pays for which agents and channels."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from activities.routing import RoutingActivities
from maestro.domain.errors import ConfigurationError
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.budgets import Client, NewClient
from maestro.domain.messages import Address, IncomingMessage
from maestro.installation.storage import open_store
from maestro.settings import Settings
from maestro.store.store import Store
from tests.support.doors import open_access
from tests.support.spoken import NoTyping

ACME, GLOBEX = {"name": "Acme", "dailyBudgetUsd": 2, "weight": 5}, {"name": "Globex"}
CODER = {"slug": "coder", "client": "Acme"}
BINDING = {"platform": "web", "channel": "code", "agent": "coder"}
CODE = Address(platform="web", channel="code")


class Silent(NoTyping):
    """Shows no indicator."""

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        del job_id, address
        return False


def started(folder: Path, **settings: Any) -> Store:
    """Open the store as a start with this configuration does."""
    return open_store(Settings.model_validate({"dataDir": folder, **settings}))


def clients(store: Store) -> dict[str, Client]:
    """Return the clients by name."""
    with store.view() as tx:
        return {client.name: client for client in tx.llm.budgets.list_clients()}


def routed(store: Store) -> Job:
    """Let a message in the bound channel be routed, and return its job."""
    step = StepRef(job_id="message-1", step="route")
    with store.begin() as tx:
        message = IncomingMessage(
            id="1", address=CODE, user_id="u-1", user_name="Grace", content="hello", sent_at=tx.now
        )
        row = tx.inbox.add(message, step.job_id)
        tx.jobs.add(Job(id=step.job_id, inbox_id=row.id, created_at=tx.now, **CODE.model_dump()))
        tx.jobs.steps.start_attempt(step, "choose_agent", 1)
    RoutingActivities(store, Silent(), open_access).choose_agent(step)
    with store.view() as tx:
        return tx.jobs.get(step.job_id)


def test_the_configured_clients_are_entered_with_their_budgets_and_weights(tmp_path: Path) -> None:
    store = started(tmp_path, clients=[ACME, GLOBEX])
    found = {name: (client.daily_budget_usd, client.weight) for name, client in clients(store).items()}
    assert found == {"Acme": (2, 5), "Globex": (None, 1)}
    store.close()


def test_a_client_that_is_gone_stays_for_its_usage_without_a_budget(tmp_path: Path) -> None:
    store = started(tmp_path, clients=[ACME])
    before = clients(store)["Acme"].id
    store.close()
    store = started(tmp_path)
    gone = clients(store)["Acme"]
    assert (gone.configured, gone.daily_budget_usd, gone.weight) == (False, None, 1)
    store.close()
    store = started(tmp_path, clients=[ACME])
    back = clients(store)["Acme"]
    assert (back.configured, back.daily_budget_usd, back.id) == (True, 2, before)
    store.close()


@pytest.mark.parametrize(
    ("where", "entries"),
    [
        ("agents: coder", {"agents": [CODER]}),
        ("channels: web/code", {"agents": [{"slug": "coder"}], "channels": [{**BINDING, "client": "Acme"}]}),
    ],
)
def test_a_client_that_does_not_exist_is_a_mistake_with_its_fix(where: str, entries: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{where} names the client 'Acme', .* Add it to clients"):
        started(tmp_path, clients=[GLOBEX], **entries)


def test_an_agent_may_name_a_client_that_was_made_in_another_way(tmp_path: Path) -> None:
    store = started(tmp_path)
    with store.begin() as tx:
        made = tx.users.clients.create_client(NewClient(name="Acme"), "operator")
    store.close()
    store = started(tmp_path, agents=[CODER])
    with store.view() as tx:
        coder = tx.agents.find_agent_by_slug("coder")
    assert coder is not None
    assert coder.client_id == made.id
    store.close()


def test_an_agent_is_entered_with_its_fallbacks_tools_and_budget(tmp_path: Path) -> None:
    whole = {**CODER, "fallbacks": ["gpt-4o", "ollama/qwen3"], "tools": ["calculate", "search"], "dailyBudgetUsd": 3}
    store = started(tmp_path, clients=[ACME], agents=[whole, {"slug": "mute", "tools": []}, {"slug": "plain"}])
    with store.view() as tx:
        coder, mute, plain = (tx.agents.find_agent_by_slug(slug) for slug in ("coder", "mute", "plain"))
    assert coder is not None
    assert mute is not None
    assert plain is not None
    assert (coder.fallbacks, coder.tools, coder.daily_budget_usd) == ("gpt-4o ollama/qwen3", "calculate search", 3)
    assert coder.client_id == clients(store)["Acme"].id
    assert (mute.tools, plain.tools, plain.client_id, plain.daily_budget_usd) == ("", None, None, None)
    store.close()


@pytest.mark.parametrize(("of_channel", "payer"), [("", "Acme"), ("Globex", "Globex")])
def test_the_client_of_the_channel_pays_else_that_of_the_agent(of_channel: str, payer: str, tmp_path: Path) -> None:
    binding = {**BINDING, "client": of_channel}
    store = started(tmp_path, clients=[ACME, GLOBEX], agents=[CODER], channels=[binding])
    assert routed(store).client_id == clients(store)[payer].id
    store.close()

"""The store of a data folder: it says what the configuration says, and an operator's command leaves it as it is."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maestro.bootstrap.storage import open_existing_store, open_store
from maestro.domain.agents import Agent, AgentChannel, AgentStatus
from maestro.domain.errors import ConfigurationError, OlderDatabase
from maestro.domain.messages import Address
from maestro.settings import Settings
from maestro.store.store import Store

CODE = Address(platform="web", channel="code")
CONDUCTOR = {"slug": "conductor", "role": "conductor"}
CODER = {"slug": "coder"}
BINDING = {"platform": "web", "channel": "code", "agent": "coder"}


def started(folder: Path, agents: list[Any], channels: list[Any]) -> Store:
    """Open the store as a start with this configuration does."""
    return open_store(Settings.model_validate({"dataDir": folder, "agents": agents, "channels": channels}))


def restarted(store: Store, folder: Path, agents: list[Any], channels: list[Any]) -> Store:
    """Close it and start with another configuration."""
    store.close()
    return started(folder, agents, channels)


def statuses(store: Store) -> dict[str, AgentStatus]:
    """Return what has become of each agent."""
    with store.view() as tx:
        return {agent.slug: agent.status for agent in tx.agents.all()}


def binding(store: Store, address: Address = CODE) -> AgentChannel | None:
    """Return who answers there."""
    with store.view() as tx:
        return tx.agents.binding(address)


# What the configuration no longer names


def test_an_agent_that_is_gone_from_the_configuration_is_archived_until_it_is_back(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR, CODER], [BINDING])
    store = restarted(store, tmp_path, [CONDUCTOR], [])
    assert statuses(store) == {"conductor": "active", "coder": "archived"}
    store = restarted(store, tmp_path, [CONDUCTOR, CODER], [])
    assert statuses(store) == {"conductor": "active", "coder": "active"}
    store.close()


def test_a_binding_that_is_gone_from_the_configuration_is_deleted(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR, CODER], [BINDING])
    assert binding(store)
    store = restarted(store, tmp_path, [CONDUCTOR, CODER], [])
    assert binding(store) is None
    store.close()


def test_what_was_made_in_another_way_is_not_touched(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        found = tx.agents.by_slug("conductor")
        assert found
        tx.agents.put(Agent(slug="guest", name="Guest", created_at=tx.now, updated_at=tx.now))
        tx.agents.bind(AgentChannel(agent_id=found.id or 0, platform="web", account="default", channel="code"))
    store = restarted(store, tmp_path, [CONDUCTOR], [])
    assert statuses(store) == {"conductor": "active", "guest": "active"}
    assert binding(store)
    store.close()


def test_an_agent_that_somebody_paused_stays_paused(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        found = tx.agents.by_slug("conductor")
        assert found
        found.status = AgentStatus.PAUSED
        tx.agents.put(found)
    store = restarted(store, tmp_path, [CONDUCTOR], [])
    assert statuses(store) == {"conductor": "paused"}
    store.close()


def test_a_channel_cannot_be_bound_to_an_agent_that_is_gone(tmp_path: Path) -> None:
    started(tmp_path, [CONDUCTOR, CODER], [BINDING]).close()
    with pytest.raises(ConfigurationError, match="'coder', which does not exist"):
        started(tmp_path, [CONDUCTOR], [BINDING])


# An operator's command


def test_a_command_does_not_migrate_the_store_of_a_maestro_that_may_be_running(tmp_path: Path) -> None:
    settings = Settings.model_validate({"dataDir": tmp_path})
    open_store(settings).close()
    open_existing_store(settings).close()
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database, database:
        database.execute("DELETE FROM alembic_version")
    with pytest.raises(OlderDatabase, match="maestro migrate"):
        open_existing_store(settings)
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        assert database.execute("SELECT * FROM alembic_version").fetchall() == []

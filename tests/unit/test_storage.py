"""The store of a data folder: it says what the configuration says, and an operator's command leaves it as it is."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.agent_chat import HUMAN
from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus, MemoryScope
from maestro.domain.agents.edits import AgentChange
from maestro.domain.conducting.conductor import CONDUCTOR_PROMPT
from maestro.domain.errors import ConfigurationError, OlderDatabase
from maestro.domain.messages import Address
from maestro.installation.storage import open_existing_store, open_store
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
        return {agent.slug: agent.status for agent in tx.agents.list_agents()}


def binding(store: Store, address: Address = CODE) -> AgentChannel | None:
    """Return the binding of an agent to a channel."""
    with store.view() as tx:
        return tx.agents.find_binding(address)


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
        found = tx.agents.find_agent_by_slug("conductor")
        assert found
        tx.agents.save_agent(Agent(slug="guest", name="Guest", created_at=tx.now, updated_at=tx.now))
        tx.agents.save_binding(AgentChannel(agent_id=found.id or 0, platform="web", account="default", channel="code"))
    store = restarted(store, tmp_path, [CONDUCTOR], [])
    assert statuses(store) == {"conductor": "active", "guest": "active"}
    assert binding(store)
    store.close()


def test_an_agent_that_somebody_paused_stays_paused(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        found = tx.agents.find_agent_by_slug("conductor")
        assert found
        found.status = AgentStatus.PAUSED
        tx.agents.save_agent(found)
    store = restarted(store, tmp_path, [CONDUCTOR], [])
    assert statuses(store) == {"conductor": "paused"}
    store.close()


def test_a_channel_cannot_be_bound_to_an_agent_that_is_gone(tmp_path: Path) -> None:
    started(tmp_path, [CONDUCTOR, CODER], [BINDING]).close()
    with pytest.raises(ConfigurationError, match="'coder', which does not exist"):
        started(tmp_path, [CONDUCTOR], [BINDING])


# Edits made elsewhere


def edit(store: Store, slug: str, **fields: object) -> None:
    """Change an agent as an operator does on the API."""
    with store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug(slug), AgentChange.model_validate(fields), "operator")


def history(store: Store, slug: str) -> list[str]:
    """Return the author of each version of an agent, oldest first."""
    with store.view() as tx:
        return [version.actor for version in tx.agents.versions.list_versions(tx.agents.get_agent_by_slug(slug))][::-1]


def agent(store: Store, slug: str) -> Agent:
    with store.view() as tx:
        return tx.agents.get_agent_by_slug(slug)


def test_a_first_start_makes_the_first_version(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR, CODER], [])
    assert history(store, "conductor") == ["configuration"]
    assert agent(store, "conductor").system_prompt == CONDUCTOR_PROMPT
    assert agent(store, "coder").system_prompt == ""
    store.close()


def test_an_edit_survives_a_start_while_the_entry_is_the_same(tmp_path: Path) -> None:
    entry = {**CODER, "systemPrompt": "Be brief.", "tools": ["calculate"]}
    store = started(tmp_path, [CONDUCTOR, entry], [])
    edit(store, "coder", system_prompt="Be long.")
    edit(store, "conductor", status="paused")
    store = restarted(store, tmp_path, [CONDUCTOR, entry], [])
    assert agent(store, "coder").system_prompt == "Be long."
    assert statuses(store) == {"conductor": "paused", "coder": "active"}
    assert history(store, "coder") == ["configuration", "operator"]
    store.close()


def test_an_entry_that_was_changed_is_entered_as_a_new_version(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR, {**CODER, "tools": ["calculate"]}], [])
    edit(store, "coder", system_prompt="Be long.", status="paused")
    store = restarted(store, tmp_path, [CONDUCTOR, {**CODER, "description": "writes code"}], [])
    coder = agent(store, "coder")
    assert (coder.description, coder.system_prompt, coder.tools) == ("writes code", "", None)
    assert coder.status is AgentStatus.PAUSED  # no entry says that
    assert history(store, "coder") == ["configuration", "operator", "configuration"]
    with store.begin() as tx:
        tx.agents.roll_back(tx.agents.get_agent_by_slug("coder"), 2, "operator")
    assert agent(store, "coder").system_prompt == "Be long."
    store.close()


def test_a_channel_waits_while_an_operator_has_its_agent_archived(tmp_path: Path) -> None:
    store = started(tmp_path, [CONDUCTOR, CODER], [BINDING])
    edit(store, "coder", status="archived")
    store = restarted(store, tmp_path, [CONDUCTOR, CODER], [BINDING])
    assert binding(store) is None
    edit(store, "coder", status="active")
    store = restarted(store, tmp_path, [CONDUCTOR, CODER], [BINDING])
    assert binding(store)
    store.close()


def test_the_only_conductor_goes_when_the_configuration_no_longer_names_it(tmp_path: Path) -> None:
    store = restarted(started(tmp_path, [CONDUCTOR, CODER], []), tmp_path, [CODER], [])
    assert statuses(store) == {"conductor": "archived", "coder": "active"}
    assert history(store, "conductor") == ["configuration", "configuration"]
    store.close()


def test_everything_an_entry_says_is_entered(tmp_path: Path) -> None:
    persona = {
        "voice": "dry",
        "language": "German",
        "quirks": ["Says hm."],
        "skills": ["review"],
        "allowUsers": ["web:grace"],
    }
    store = started(
        tmp_path,
        [{**CODER, **persona, "memoryScope": "conversation"}],
        [{**BINDING, "permissions": "read_only", "busy": "interrupt", "allowBots": True, "keyByUser": True}],
    )
    coder, code = agent(store, "coder"), binding(store)
    assert (coder.voice, coder.language, coder.quirks, coder.skills, coder.allow_users) == (
        "dry",
        "German",
        '["Says hm."]',
        "review",
        "web:grace",
    )
    assert coder.memory_scope is MemoryScope.CONVERSATION
    assert code
    assert (code.permission, code.busy, code.allow_bots, code.key_by_user) == ("read_only", "interrupt", True, True)
    store.close()


# An agent of the web connector's own


def own_of_web(folder: Path, slug: str) -> int | None:
    """Start with this setting, and return the id of the agent that answers whatever comes over the web."""
    store = open_store(Settings.model_validate({"dataDir": folder, "agents": [CODER], "web": {"agent": slug}}))
    store.close()
    with closing(sqlite3.connect(folder / "maestro.db")) as database:
        found = database.execute("SELECT agent_id FROM bot_instances WHERE platform = 'web'").fetchone()
    return found[0] if found else None


def test_the_web_connector_may_have_an_agent_of_its_own(tmp_path: Path) -> None:
    assert own_of_web(tmp_path, "coder") == 1
    assert own_of_web(tmp_path, "") is None
    with pytest.raises(ConfigurationError, match=r"web\.agent names the agent 'nobody', which does not exist"):
        own_of_web(tmp_path, "nobody")


# An operator's command


def test_a_command_does_not_migrate_the_store_of_a_maestro_that_may_be_running(tmp_path: Path) -> None:
    settings = Settings.model_validate({"dataDir": tmp_path})
    open_store(settings).close()
    open_existing_store(settings).close()
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0014'")
    with pytest.raises(OlderDatabase, match="maestro migrate"):
        open_existing_store(settings)
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("0014",)]


# Ids that clients remember


def test_ids_of_deliveries_and_posts_begin_after_the_clock_at_each_start(tmp_path: Path) -> None:
    """So they never come again, also when an older copy of the store takes its place."""
    began = time.time() * 1000
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        first, newest = tx.chat.add_post(HUMAN, "before the backup"), tx.deliveries.find_newest_id()
    assert began <= newest < first <= began + 60_000
    store.close()
    shutil.copy(tmp_path / "maestro.db", tmp_path / "copy.db")
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        lost = [tx.chat.add_post(HUMAN, "lost") for _ in range(3)]
    store.close()
    shutil.copy(tmp_path / "copy.db", tmp_path / "maestro.db")
    store = started(tmp_path, [CONDUCTOR], [])
    with store.begin() as tx:
        assert tx.chat.add_post(HUMAN, "after the restore") > max(lost)
        assert tx.deliveries.find_newest_id() > newest
    store.close()

"""Agents as people edit them: versions, the audit log, the last conductor, and the channels that are theirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent, AgentStatus, BusyMode, Permission
from maestro.domain.agents.edits import AgentChange, BindingChange, NewAgent, NewBinding
from maestro.domain.agents.views import version_page
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import Conflict, InvalidEdit, NotFound
from maestro.domain.llm.budgets import NewClient
from maestro.domain.messages import Address
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.job_rows import JobRows

GRACE = "operator"
CODE = NewBinding(platform="slack", channel="C1", permission=Permission.READ_ONLY, busy=BusyMode.COLLECT)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store, with an agent called ada that was made before versions were."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def store(rows: JobRows) -> Store:
    """Return the store, with an agent called bob as well."""
    with rows.store.begin() as tx:
        tx.agents.create(NewAgent(slug="bob", role="coder", tools=("calculate",)), GRACE, "we need one")
    return rows.store


def change(tx: Transaction, slug: str, **fields: object) -> Agent:
    return tx.agents.change(tx.agents.get_agent_by_slug(slug), AgentChange.model_validate(fields), GRACE)


def history(store: Store, slug: str) -> list[tuple[int, str, str]]:
    with store.view() as tx:
        return [
            (one.version, one.actor, one.reason)
            for one in tx.agents.versions.list_versions(tx.agents.get_agent_by_slug(slug))
        ]


def audited(store: Store) -> list[tuple[str, str, str, str]]:
    with store.view() as tx:
        return [(one.actor, one.action, one.subject, one.detail) for one in tx.system.audit.list_latest_entries(10)]


# Making and changing


def test_a_new_agent_is_its_first_version(store: Store) -> None:
    with store.view() as tx:
        bob = tx.agents.get_agent_by_slug("bob")
        assert (bob.name, bob.version, bob.status, bob.tool_names) == ("bob", 1, AgentStatus.ACTIVE, ("calculate",))
    assert history(store, "bob") == [(1, GRACE, "we need one")]
    assert audited(store) == [(GRACE, "agent.create", "bob", "we need one")]


def test_each_edit_is_a_version_and_an_entry_in_the_audit_log(store: Store) -> None:
    with store.begin() as tx:
        bob = change(tx, "bob", system_prompt="Be brief.", tools=None)
        assert (bob.version, bob.system_prompt, bob.tools) == (2, "Be brief.", None)
    assert [number for number, _, _ in history(store, "bob")] == [2, 1]
    assert audited(store)[0] == (GRACE, "agent.change", "bob", "systemPrompt, tools")


def test_an_edit_that_changes_nothing_makes_no_version(store: Store) -> None:
    with store.begin() as tx:
        assert change(tx, "bob", role="coder", tools=("calculate",), name="").version == 1
    assert len(audited(store)) == 1


def test_an_edit_and_its_version_are_one_transaction(store: Store) -> None:
    def cut_off() -> None:
        with store.begin() as tx:
            change(tx, "bob", description="half done")
            raise Conflict("the process died here")

    with pytest.raises(Conflict, match="died"):
        cut_off()
    with store.view() as tx:
        assert tx.agents.get_agent_by_slug("bob").description == ""
    assert len(history(store, "bob")) == 1


def test_an_agent_that_is_older_than_versions_keeps_what_it_was(store: Store) -> None:
    with store.begin() as tx:
        change(tx, "ada", system_prompt="Be long.")
    assert history(store, "ada") == [(2, GRACE, ""), (1, "an earlier release", "")]
    with store.begin() as tx:
        assert tx.agents.roll_back(tx.agents.get_agent_by_slug("ada"), 1, GRACE).system_prompt == "Be brief."


def test_what_an_earlier_release_let_people_write_can_be_looked_at_and_gone_back_to(store: Store) -> None:
    longer = "x" * 2_001
    with store.begin() as tx:
        tx.agents.save_agent(tx.agents.get_agent_by_slug("ada")).description = longer
    with store.begin() as tx:
        change(tx, "ada", description="short", tools=("calculate",))
        page = version_page(tx.agents.versions.list_versions(tx.agents.get_agent_by_slug("ada")), 2)
        assert set(page.items[0].changed) == {"description", "tools"}
        ada = tx.agents.roll_back(tx.agents.get_agent_by_slug("ada"), 1, GRACE)
        assert (ada.description, ada.tools, ada.version) == (longer, None, 3)
        assert tx.agents.versions.get_version(ada, 3).snapshot == tx.agents.versions.get_version(ada, 1).snapshot


def test_a_slug_that_is_taken_is_refused_with_the_way_out(store: Store) -> None:
    with store.begin() as tx, pytest.raises(Conflict, match="an agent bob already; change it, or choose another"):
        tx.agents.create(NewAgent(slug="bob"), GRACE)
    with store.begin() as tx:
        change(tx, "bob", status="archived")
        with pytest.raises(Conflict, match="archived agent; restore it"):
            tx.agents.create(NewAgent(slug="bob"), GRACE)


def test_who_edits_what_somebody_else_has_edited_meanwhile_is_told(store: Store) -> None:
    with store.begin() as tx:
        change(tx, "bob", description="first", version=1)
        with pytest.raises(Conflict, match="its version is 2, but this change was made for version 1"):
            change(tx, "bob", description="second", version=1)


def test_an_agent_names_a_client_that_exists(store: Store) -> None:
    with store.begin() as tx:
        acme = tx.users.clients.create_client(NewClient(name="Acme", slug="acme"), GRACE)
        assert change(tx, "bob", client="acme").client_id == acme.id
        assert tx.agents.read_fields(tx.agents.get_agent_by_slug("bob")).client == "Acme"
        with pytest.raises(InvalidEdit, match="client: there is no client 'Globex'; add it first"):
            change(tx, "bob", client="Globex")


# The way back


def test_going_back_is_a_new_version_that_is_as_the_old_one_was(store: Store) -> None:
    with store.begin() as tx:
        change(tx, "bob", system_prompt="Be wild.", tools=(), daily_budget_usd=3)
        bob = tx.agents.roll_back(tx.agents.get_agent_by_slug("bob"), 1, GRACE)
        assert (bob.version, bob.system_prompt, bob.tools, bob.daily_budget_usd) == (3, "", "calculate", None)
    assert history(store, "bob")[0] == (3, GRACE, "as in version 1")
    with store.begin() as tx, pytest.raises(NotFound, match="bob has no version 9; the newest is 3"):
        tx.agents.roll_back(tx.agents.get_agent_by_slug("bob"), 9, GRACE)


def test_a_version_is_compared_with_the_one_before_or_with_any_other(store: Store) -> None:
    with store.begin() as tx:
        for text in ("one", "two"):
            change(tx, "bob", description=text)
    with store.view() as tx:
        bob = tx.agents.get_agent_by_slug("bob")
        assert [one.version if one else 0 for one in tx.agents.versions.get_pair(bob, 3, None)] == [3, 2]
        assert [one.version if one else 0 for one in tx.agents.versions.get_pair(bob, 3, 1)] == [3, 1]
        assert [one.version if one else 0 for one in tx.agents.versions.get_pair(bob, 1, None)] == [1, 0]
        assert [one.version for one in tx.agents.versions.list_versions(bob, before=3, limit=1)] == [2]


# The last conductor, and the end


def test_the_last_conductor_stays_unless_it_is_forced_to_go(store: Store) -> None:
    with store.begin() as tx:
        tx.agents.create(NewAgent(slug="first", role="conductor"), GRACE)
        for fields in ({"status": "archived"}, {"role": "assistant"}):
            with pytest.raises(Conflict, match="only active conductor, and no agent would answer direct messages"):
                change(tx, "first", **fields)
        tx.agents.create(NewAgent(slug="second", role="conductor"), GRACE)
        assert change(tx, "first", role="assistant").role == "assistant"
        assert change(tx, "second", status="archived", force=True).status is AgentStatus.ARCHIVED


def test_an_archived_agent_has_no_channels_and_gets_none(store: Store) -> None:
    with store.begin() as tx:
        bob = tx.agents.get_agent_by_slug("bob")
        tx.agents.bind_channel(bob, CODE, GRACE)
        change(tx, "bob", status="archived")
        assert tx.agents.find_binding(Address(platform="slack", channel="C1")) is None
        with pytest.raises(Conflict, match="bob is archived; restore it first"):
            tx.agents.bind_channel(bob, CODE, GRACE)


def test_only_an_agent_of_which_nothing_speaks_is_gone_for_good(rows: JobRows, store: Store) -> None:
    rows.add()
    with store.begin() as tx:
        tx.agents.bind_channel(tx.agents.get_agent_by_slug("bob"), CODE, GRACE)
        tx.agents.purge(tx.agents.get_agent_by_slug("bob"), GRACE)
        assert tx.agents.find_agent_by_slug("bob") is None
        assert tx.agents.create(NewAgent(slug="bob"), GRACE).version == 1
        with pytest.raises(Conflict, match="ada cannot be deleted: rows of queue refer to it"):
            tx.agents.purge(tx.agents.get_agent_by_slug("ada"), GRACE)


def test_an_agent_of_the_configuration_is_not_removed_here(store: Store) -> None:
    with store.begin() as tx:
        tx.agents.get_agent_by_slug("bob").configured = True
        with pytest.raises(Conflict, match="remove it from agents there first"):
            tx.agents.purge(tx.agents.get_agent_by_slug("bob"), GRACE)


# Channels


def test_a_channel_is_bound_changed_handed_on_and_freed(store: Store) -> None:
    with store.begin() as tx:
        binding = tx.agents.bind_channel(tx.agents.get_agent_by_slug("bob"), CODE, GRACE)
        assert (binding.permission, binding.busy) == (Permission.READ_ONLY, BusyMode.COLLECT)
        tx.agents.change_binding(binding, BindingChange(agent="ada", busy=None, allow_bots=True), GRACE)
        shown = tx.agents.build_view(binding)
        assert (shown.agent, shown.busy, shown.allow_bots) == ("ada", None, True)
        assert shown.permission is Permission.READ_ONLY
        assert [one.id for one in tx.agents.list_channels(tx.agents.get_agent_by_slug("ada"))] == [1, binding.id]
        tx.agents.unbind_channel(binding, GRACE)
        assert len(tx.agents.list_bindings()) == 1
    actions = [(action, subject, detail) for _, action, subject, detail in audited(store)[:3]]
    assert actions == [
        ("channel.unbind", "slack/default/C1", "ada"),
        ("channel.change", "slack/default/C1", "agent, allow_bots, busy"),
        ("channel.bind", "slack/default/C1", "bob"),
    ]


def test_a_channel_belongs_to_one_agent(store: Store) -> None:
    with store.begin() as tx, pytest.raises(Conflict, match="web/default/code belongs to the agent ada already"):
        tx.agents.bind_channel(tx.agents.get_agent_by_slug("bob"), NewBinding(platform="web", channel="code"), GRACE)


def test_a_binding_of_the_configuration_is_left_to_it(store: Store) -> None:
    with store.begin() as tx:
        binding = tx.agents.set_configured_binding(tx.agents.get_agent_by_slug("bob"), CODE)
        for attempt in (
            lambda: tx.agents.change_binding(binding, BindingChange(allow_bots=True), GRACE),
            lambda: tx.agents.unbind_channel(binding, GRACE),
        ):
            with pytest.raises(Conflict, match="bound by the configuration; change it under channels there"):
                attempt()


def test_one_of_our_accounts_has_an_agent_of_its_own_while_the_configuration_says_so(store: Store) -> None:
    with store.begin() as tx:
        tx.agents.set_configured_agent("web", "default", tx.agents.get_agent_by_slug("bob"))
        tx.agents.set_configured_agent("web", "default", tx.agents.get_agent_by_slug("ada"))
        instance = tx._link.session.get(BotInstance, ("web", "default"))
        assert instance is not None
        assert (instance.agent_id, instance.configured) == (1, True)
        tx.agents.set_configured_agent("web", "default", None)
        assert tx._link.session.get(BotInstance, ("web", "default")) is None

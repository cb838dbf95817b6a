"""Clients as people edit them: unique names and slugs, and none that somebody still speaks of is removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.agents.edits import AgentChange, BindingChange
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.llm.budgets import ClientChange, NewClient
from maestro.store.store import Store
from tests.support.job_rows import JobRows

GRACE = "operator"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open a store with the client Acme, called acme for short."""
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.users.clients.create_client(NewClient(name="Acme", slug="acme", daily_budget_usd=2), GRACE)
    yield rows.store
    rows.store.close()


def test_a_client_is_found_by_its_name_and_by_its_slug(store: Store) -> None:
    with store.view() as tx:
        assert tx.users.clients.get_client("Acme").id == tx.users.clients.get_client("acme").id
        assert (
            tx.users.clients.get_client("acme").plan,
            tx.users.clients.find_name(None),
            tx.users.clients.find_id(""),
        ) == ("per_task", "", None)
        for name in ("", "Globex"):
            with pytest.raises(NotFound, match="there is no client"):
                tx.users.clients.get_client(name)


def test_names_and_slugs_are_unique(store: Store) -> None:
    with store.begin() as tx:
        with pytest.raises(Conflict, match="there is a client 'Acme' already"):
            tx.users.clients.create_client(NewClient(name="Acme"), GRACE)
        with pytest.raises(Conflict, match="the slug acme belongs to the client 'Acme'; choose another slug"):
            tx.users.clients.create_client(NewClient(name="Globex", slug="acme"), GRACE)
        globex = tx.users.clients.create_client(NewClient(name="Globex"), GRACE)
        tx.users.clients.create_client(NewClient(name="Initech"), GRACE)  # two without a slug
        with pytest.raises(Conflict, match="the slug acme"):
            tx.users.clients.change_client(globex, ClientChange(slug="acme"), GRACE)
        with pytest.raises(Conflict, match="acme is the slug of the client 'Acme'; choose another name"):
            tx.users.clients.create_client(NewClient(name="acme"), GRACE)
        tx.users.clients.create_client(NewClient(name="hooli", slug="hooli"), GRACE)
        with pytest.raises(Conflict, match="the slug hooli belongs to the client 'hooli'"):
            tx.users.clients.change_client(globex, ClientChange(slug="hooli"), GRACE)


def test_only_what_is_given_changes(store: Store) -> None:
    with store.begin() as tx:
        acme = tx.users.clients.change_client(tx.users.clients.get_client("Acme"), ClientChange(plan="monthly"), GRACE)
        assert (acme.plan, acme.slug, acme.daily_budget_usd) == ("monthly", "acme", 2)
        tx.users.clients.change_client(acme, ClientChange(plan="monthly", slug="acme"), GRACE)
    with store.view() as tx:
        assert [
            entry.detail for entry in tx.system.audit.list_latest_entries(9) if entry.action == "client.change"
        ] == ["plan"]


def test_a_client_of_the_configuration_is_left_to_it(store: Store) -> None:
    with store.begin() as tx:
        globex = tx.users.clients.set_configured(NewClient(name="Globex"))
        for attempt in (
            lambda: tx.users.clients.change_client(globex, ClientChange(plan="monthly"), GRACE),
            lambda: tx.users.clients.remove_client(globex, GRACE),
        ):
            with pytest.raises(Conflict, match="set by the configuration; change clients there"):
                attempt()
        with pytest.raises(Conflict, match="the slug acme"):
            tx.users.clients.set_configured(NewClient(name="Initech", slug="acme"))


def test_a_client_that_somebody_speaks_of_stays(store: Store) -> None:
    with store.begin() as tx:
        acme, ada = tx.users.clients.get_client("acme"), tx.agents.get_agent_by_slug("ada")
        tx.agents.change(ada, AgentChange(client="Acme"), GRACE)
        with pytest.raises(Conflict, match="'Acme' cannot be removed: the agent ada names this client"):
            tx.users.clients.remove_client(acme, GRACE)
        tx.agents.change(ada, AgentChange(client=""), GRACE)
        binding = tx.agents.change_binding(tx.agents.get_binding(1), BindingChange(client="Acme"), GRACE)
        with pytest.raises(Conflict, match="the binding of the channel code names this client"):
            tx.users.clients.remove_client(acme, GRACE)
        tx.agents.change_binding(binding, BindingChange(client=""), GRACE)
        tx.users.clients.remove_client(acme, GRACE)
        assert tx.llm.budgets.list_clients() == []


def test_a_client_for_whom_there_was_work_stays(tmp_path: Path, store: Store) -> None:
    rows = JobRows.at(tmp_path / "other")
    job_id = rows.add()
    with rows.store.begin() as tx:
        acme = tx.users.clients.create_client(NewClient(name="Acme"), GRACE)
        tx.jobs.update_job(job_id, client_id=acme.id)
        with pytest.raises(Conflict, match="there are jobs or usage of this client"):
            tx.users.clients.remove_client(acme, GRACE)
    rows.store.close()

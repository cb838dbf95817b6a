"""The audit log: found by who, what and when, newest first, read off an index however long it is."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.people.views import AuditFilter, audit_page
from maestro.store.store import Store
from maestro.store.users.audit import current_origin, set_origin
from tests.support import postgresql
from tests.support.fresh_store import fresh_store, path_of
from tests.support.job_rows import MORNING, Clock
from tests.support.plans import explain, queries

FILTERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "ix_audit_log_at"),
    ({"actor": "operator"}, "ix_audit_log_actor"),
    ({"action": "login"}, "ix_audit_log_action"),
    ({"subject": "ada"}, "ix_audit_log_subject"),
    ({"since": MORNING}, "ix_audit_log_at"),
    ({"actor": "operator", "since": MORNING, "until": MORNING}, "ix_audit_log_actor"),
    ({"q": "needle"}, "ix_audit_log_at"),
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def note(store: Store, clock: Clock, *entries: tuple[str, str, str]) -> None:
    """Note entries, a second between two of them."""
    for actor, action, subject in entries:
        with store.begin() as tx:
            tx.system.audit.add_entry(actor, action, subject)
        clock.go(seconds=1)


def found(store: Store, **wanted: Any) -> list[int]:
    with store.view() as tx:
        return [entry.id or 0 for entry in tx.system.audit.list_entry_page(AuditFilter(**wanted), None, 100)]


def test_entries_are_found_by_each_of_their_parts(store: Store, clock: Clock) -> None:
    note(store, clock, ("operator", "login", ""), ("viewer", "login", ""), ("operator", "agent.change", "ada"))
    assert found(store) == [3, 2, 1]
    assert found(store, actor="operator") == [3, 1]
    assert found(store, action="login") == [2, 1]
    assert found(store, subject="ada") == [3]
    assert found(store, actor="viewer", action="agent.change") == []
    assert found(store, since=MORNING + timedelta(seconds=1)) == [3, 2]
    assert found(store, until=MORNING + timedelta(seconds=1)) == [1]
    assert found(store, actor="oper") == [], "who and what are whole"


def test_a_part_of_any_text_is_found(store: Store) -> None:
    with set_origin("203.0.113.9"), store.begin() as tx:
        tx.system.audit.add_entry("operator", "agent.change", "ada", "100% of the_voice")
    with store.begin() as tx:
        tx.system.audit.add_entry("operator", "agent.change", "bob", "1000 of the voices")
    assert found(store, q="0% OF the_") == [1]
    assert found(store, q="113.9") == [1]
    assert found(store, q="CHANGE") == [2, 1]


def test_pages_miss_nothing_and_show_nothing_twice(store: Store, clock: Clock) -> None:
    for _ in range(3):
        with store.begin() as tx:  # all at the same moment
            for number in range(4):
                tx.system.audit.add_entry("operator", "something", str(number))
        clock.go(seconds=1)
    seen: list[int] = []
    mark = None
    while True:
        with store.view() as tx:
            entries = tx.system.audit.list_entry_page(AuditFilter(), mark, 5)
        if not entries:
            break
        seen += [entry.id or 0 for entry in entries]
        mark = entries[-1].at, entries[-1].id or 0
        note(store, clock, ("operator", "meanwhile", ""))
    assert seen == list(range(12, 0, -1))


def test_the_last_page_says_that_it_is_the_last(store: Store, clock: Clock) -> None:
    assert audit_page([], 2).next is None
    note(store, clock, *[("operator", "something", "")] * 3)
    with store.view() as tx:
        entries = tx.system.audit.list_entry_page(AuditFilter(), None, 10)
    assert audit_page(entries[:2], 2).next is None
    assert audit_page(entries, 2).next is not None


@pytest.mark.parametrize(("wanted", "index"), FILTERS, ids=str)
def test_no_list_sorts_or_reads_the_whole_log(store: Store, wanted: dict[str, Any], index: str) -> None:
    with queries() as asked, store.view() as tx:
        tx.system.audit.list_entry_page(AuditFilter(**wanted), (MORNING, 5), 10)
    plans = [explain(path_of(store), statement, values) for statement, values in asked]
    assert [plan.indexes for plan in plans] == [(index,)], plans
    # PostgreSQL prefers to sort where it expects few rows.
    assert [plan.in_order for plan in plans] == [(index,)] or (postgresql.wanted() and "until" in wanted), plans


async def test_the_address_goes_where_the_work_of_a_request_goes(store: Store) -> None:
    async def request(address: str) -> list[str]:
        with set_origin(address):
            before = current_origin()
            in_a_thread = await asyncio.to_thread(current_origin)
            await asyncio.sleep(0)
            return [before, in_a_thread, current_origin()]

    addresses = [f"198.51.100.{number}" for number in range(20)]
    assert await asyncio.gather(*map(request, addresses)) == [[address] * 3 for address in addresses]
    assert current_origin() == ""

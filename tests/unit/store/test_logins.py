"""Logins that were ended: each until its cookie would have expired, and no longer."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import MORNING, Clock

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def test_a_login_is_ended_once_and_for_all(store: Store) -> None:
    for _ in range(2):
        with store.begin() as tx:
            tx.users.logins.end_login("a", MORNING + HOUR)
    with store.view() as tx:
        assert tx.users.logins.is_ended("a")
        assert not tx.users.logins.is_ended("b")


def test_what_is_over_anyway_is_forgotten(store: Store, clock: Clock) -> None:
    with store.begin() as tx:
        tx.users.logins.end_login("a", MORNING + HOUR)
        tx.users.logins.end_login("b", MORNING + 3 * HOUR)
    clock.go(hours=2)
    with store.begin() as tx:
        tx.users.logins.end_login("c", MORNING + 5 * HOUR)
    with store.view() as tx:
        assert [name for name in "abc" if tx.users.logins.is_ended(name)] == ["b", "c"]

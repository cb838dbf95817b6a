"""The accounts of one process: whose key it has, and what it does without one."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from pydantic import SecretStr

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import AccountSource
from maestro.llm.accounts import REREAD_SECONDS, AccountBook
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.llm_accounts import LADDER, Clock, book, row


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def test_the_key_of_an_account_made_by_the_api_comes_from_its_row(store: Store, clock: Clock) -> None:
    accounts = book(store, ())
    with store.begin() as tx:
        tx.llm.accounts.add_account(row("mine", source=AccountSource.API, secret="first", base_url="http://here:1"))
    assert accounts.find("mine") is None
    accounts.read_roster()
    mine = accounts.find("mine")
    assert mine is not None
    assert (mine.api_key.get_secret_value(), mine.base_url) == ("first", "http://here:1")
    clock.now += timedelta(seconds=1)
    with store.begin() as tx:
        tx.llm.accounts.change_account("mine", {"secret": "second"})
    accounts.read_roster()
    changed = accounts.find("mine")
    assert changed is not None
    assert changed.api_key.get_secret_value() == "second"


def test_a_key_that_could_not_be_read_is_found_soon_after_it_is_mended(store: Store) -> None:
    keys: dict[str, str] = {}
    read: list[str] = []

    def reveal(reference: str) -> SecretStr:
        read.append(reference)
        if reference not in keys:
            raise ConfigurationError("there is no such file; make it")
        return SecretStr(keys[reference])

    seconds = [1000.0]
    accounts = AccountBook(store, (), reveal, lambda: LADDER, lambda: seconds[0])
    with store.begin() as tx:
        tx.llm.accounts.add_account(row("mine", source=AccountSource.API, secret="file:key"))
    with structlog.testing.capture_logs() as lines:
        accounts.read_roster()
        seconds[0] += REREAD_SECONDS
        assert accounts.read_roster().usable == []
    assert len(lines) == 1, "the same reason is told once"
    keys["file:key"] = "sk-3"
    seconds[0] += REREAD_SECONDS - 1
    assert accounts.read_roster().usable == []
    seconds[0] += 1
    assert [account.name for account in accounts.read_roster().usable] == ["mine"]
    seconds[0] += 10 * REREAD_SECONDS
    accounts.read_roster()
    mine = accounts.find("mine")
    assert mine is not None
    assert mine.api_key.get_secret_value() == "sk-3"
    assert len(read) == 3, "a key that was read is not read again"


def test_a_key_that_cannot_be_read_leaves_its_account_out_and_is_told_once(store: Store) -> None:
    def unreadable(_: str) -> SecretStr:
        raise ConfigurationError("the environment variable MY_KEY is not set; set it")

    accounts = book(store, (), unreadable)
    with store.begin() as tx:
        tx.llm.accounts.add_account(row("mine", source=AccountSource.API, secret="env:MY_KEY"))
    with structlog.testing.capture_logs() as lines:
        assert accounts.read_roster().usable == []
        accounts.read_roster()
    assert [(line["event"], line["account"]) for line in lines] == [("account left out", "mine")]

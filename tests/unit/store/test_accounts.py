"""Accounts in the store: what the configuration says, what became of them, and until when they are left alone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from maestro.domain.errors import Conflict, NotFound, WaitReason
from maestro.domain.jobs.job import Job, JobStatus, Wait
from maestro.domain.llm.accounts import QUOTA_WAIT, WHOLE_ACCOUNT, AccountSource, AccountStatus, ModelAccount
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LADDER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 25, 60))
MINUTE = timedelta(minutes=1)


class Clock:
    """A clock that a test sets."""

    now = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def described(name: str, **values: object) -> ModelAccount:
    """An account as a configuration describes it."""
    source = AccountSource.CONFIGURATION
    row = ModelAccount(name=name, provider="openai", model="m", source=source, created_at=START, updated_at=START)
    for column, value in values.items():
        setattr(row, column, value)
    return row


def entered(store: Store, *accounts: ModelAccount) -> None:
    """Start with a configuration that names these."""
    with store.begin() as tx:
        tx.llm.accounts.set_configured(accounts)


def found(store: Store, name: str) -> ModelAccount:
    """Return an account."""
    with store.view() as tx:
        return tx.llm.accounts.get_account(name)


def held(store: Store) -> dict[str, datetime]:
    """Return until when each model of the one account is left alone."""
    with store.view() as tx:
        return {model: until for (_, model), until in tx.llm.accounts.read_cooldown_ends().items()}


def limited(store: Store, asked: timedelta | None = None, model: str = "m") -> datetime | None:
    """Limit a model of the account ``a``."""
    with store.begin() as tx:
        return tx.llm.accounts.cool_down("a", model, asked, LADDER)


def succeeded(store: Store, model: str = "m") -> None:
    """Let the account ``a`` answer."""
    with store.begin() as tx:
        tx.llm.accounts.record_success("a", model, None)


# What the configuration says


def test_what_the_configuration_no_longer_names_is_removed_with_its_limits(store: Store) -> None:
    entered(store, described("a"), described("b"))
    limited(store)
    entered(store, described("b"))
    with store.view() as tx:
        assert [account.name for account in tx.llm.accounts.list_accounts()] == ["b"]
        assert tx.llm.accounts.read_cooldown_ends() == {}


def test_what_was_learned_of_an_account_outlasts_a_restart(store: Store) -> None:
    entered(store, described("a"))
    with store.begin() as tx:
        tx.llm.accounts.record_success("a", "m", 0.25)
    limited(store)
    entered(store, described("a", priority=3))
    account = found(store, "a")
    assert (account.priority, account.calls, account.spent_usd) == (3, 1, 0.25)
    assert held(store) == {"m": START + MINUTE}


def test_accounts_of_the_api_stay_unless_a_configured_one_takes_their_name(store: Store) -> None:
    with store.begin() as tx:
        tx.llm.accounts.add_account(described("mine", source=AccountSource.API, secret="sealed"))
        tx.llm.accounts.add_account(described("taken", source=AccountSource.API, secret="sealed"))
    entered(store, described("taken"))
    assert found(store, "mine").secret == "sealed"
    assert (found(store, "taken").source, found(store, "taken").secret) == ("configuration", "")


def test_a_new_key_makes_an_account_active_whose_old_one_was_refused(store: Store) -> None:
    entered(store, described("a", fingerprint="old"))
    with store.begin() as tx:
        assert tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("a"))
    entered(store, described("a", fingerprint="old"))
    assert found(store, "a").status is AccountStatus.DISABLED
    entered(store, described("a", fingerprint="new"))
    assert found(store, "a").status is AccountStatus.ACTIVE


def test_a_new_key_ends_the_limits_of_the_old_one(store: Store) -> None:
    entered(store, described("a", fingerprint="old"))
    limited(store)
    entered(store, described("a", fingerprint="new"))
    assert held(store) == {}
    assert found(store, "a").rate_limited_until is None


def test_what_a_person_disabled_stays_so_with_a_new_key(store: Store) -> None:
    entered(store, described("a", fingerprint="old"))
    with store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("a"))
        tx.llm.accounts.change_account("a", {"status": AccountStatus.DISABLED})
    entered(store, described("a", fingerprint="new"))
    assert found(store, "a").status is AccountStatus.DISABLED


def test_the_default_model_is_that_of_the_account_asked_first(store: Store) -> None:
    def default() -> str:
        with store.view() as tx:
            return tx.llm.accounts.find_default_model()

    assert default() == "demo"
    entered(store, described("a", priority=2), described("b", provider="ollama", model="llama", priority=1))
    assert default() == "ollama/llama"
    with store.begin() as tx:
        tx.llm.accounts.change_account("b", {"status": AccountStatus.DISABLED})
    assert default() == "openai/m"
    with store.begin() as tx:
        tx.llm.accounts.change_account("a", {"status": AccountStatus.DISABLED})
    assert default() == "ollama/llama"


# Limits


def test_each_limit_in_a_row_is_longer(store: Store, clock: Clock) -> None:
    entered(store, described("a"))
    for step in (*LADDER, LADDER[-1]):
        assert limited(store) == clock.now + step
        clock.now += step
    assert held(store) == {}


def test_what_was_under_way_when_a_limit_began_is_no_new_strike(store: Store, clock: Clock) -> None:
    entered(store, described("a"))
    limited(store)
    clock.now += timedelta(seconds=1)
    assert limited(store) == START + MINUTE
    assert limited(store, asked=timedelta(hours=1)) == clock.now + timedelta(hours=1)
    succeeded(store)
    assert held(store) == {"m": clock.now + timedelta(hours=1)}


def test_a_success_after_the_limit_begins_the_ladder_again(store: Store, clock: Clock) -> None:
    entered(store, described("a"))
    limited(store)
    clock.now += MINUTE
    succeeded(store)
    assert limited(store) == clock.now + LADDER[0]


def test_the_success_of_another_model_does_not(store: Store, clock: Clock) -> None:
    entered(store, described("a"))
    limited(store)
    clock.now += MINUTE
    succeeded(store, "other")
    assert limited(store) == clock.now + LADDER[1]


def test_a_limit_does_not_hold_when_the_clock_was_set_back(store: Store, clock: Clock) -> None:
    entered(store, described("a"))
    limited(store)
    clock.now -= timedelta(days=1)
    assert held(store) == {}
    assert limited(store) == clock.now + LADDER[1]


def test_a_limit_holds_across_midnight(store: Store, clock: Clock) -> None:
    clock.now = datetime(2026, 1, 1, 23, 59, 30, tzinfo=UTC)
    entered(store, described("a"))
    limited(store)
    clock.now = datetime(2026, 1, 2, 0, 0, 29, tzinfo=UTC)
    assert held(store) != {}
    clock.now = datetime(2026, 1, 2, 0, 0, 30, tzinfo=UTC)
    assert held(store) == {}


def test_a_used_up_quota_leaves_the_whole_account_alone(store: Store) -> None:
    entered(store, described("a"))
    with store.begin() as tx:
        assert tx.llm.accounts.begin_quota_wait("a", None) == START + QUOTA_WAIT
        assert tx.llm.accounts.begin_quota_wait("a", timedelta(days=3)) == START + timedelta(days=3)
        assert tx.llm.accounts.begin_quota_wait("a", None) == START + timedelta(days=3)
    assert held(store) == {WHOLE_ACCOUNT: START + timedelta(days=3)}
    assert found(store, "a").last_error == "QuotaExhausted"


def test_people_see_the_latest_of_its_limits(store: Store) -> None:
    entered(store, described("a"))
    limited(store, asked=timedelta(hours=2))
    limited(store, model="other")
    assert found(store, "a").rate_limited_until == START + timedelta(hours=2)


def test_an_account_that_is_gone_is_no_error(store: Store) -> None:
    with store.begin() as tx:
        assert tx.llm.accounts.cool_down("gone", "m", None, LADDER) is None
        assert tx.llm.accounts.begin_quota_wait("gone", None) is None
        assert not tx.llm.accounts.disable_refused(described("gone"))
        tx.llm.accounts.record_error("gone", "ProviderUnavailable")
        tx.llm.accounts.record_success("gone", "m", 1.0)


# Disabled accounts, and what people change


def test_a_refusal_of_the_old_key_does_not_disable_the_new_one(store: Store, clock: Clock) -> None:
    entered(store, described("a", source=AccountSource.API))
    asked = found(store, "a")
    clock.now += timedelta(seconds=1)
    with store.begin() as tx:
        tx.llm.accounts.change_account("a", {"secret": "new"})
        assert not tx.llm.accounts.disable_refused(asked)
    assert found(store, "a").status is AccountStatus.ACTIVE


def test_whoever_enables_an_account_ends_its_limits(store: Store) -> None:
    entered(store, described("a"))
    limited(store)
    with store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("a"))
        tx.llm.accounts.change_account("a", {"status": AccountStatus.ACTIVE})
    assert (found(store, "a").status, found(store, "a").last_error, held(store)) == ("active", "", {})


def test_why_an_account_is_disabled_outlasts_other_changes(store: Store) -> None:
    with store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.add_account(described("mine", source=AccountSource.API)))
    with store.begin() as tx:
        tx.llm.accounts.change_account("mine", {"priority": 5})
    assert (found(store, "mine").status, found(store, "mine").last_error) == ("disabled", "AuthenticationFailed")


def test_of_a_configured_account_only_the_status_changes_and_it_stays(store: Store) -> None:
    entered(store, described("a"), described("found", source=AccountSource.ENVIRONMENT))
    with store.begin() as tx:
        with pytest.raises(Conflict, match=r"comes from the configuration \(llm.accounts\); change it there"):
            tx.llm.accounts.change_account("a", {"priority": 1})
        with pytest.raises(Conflict, match="comes from the environment; take it out there"):
            tx.llm.accounts.remove_account("found")


def test_an_account_of_the_api_can_be_removed(store: Store) -> None:
    with store.begin() as tx:
        tx.llm.accounts.add_account(described("a", source=AccountSource.API))
        tx.llm.accounts.cool_down("a", "m", None, LADDER)
        with pytest.raises(Conflict, match="choose another name"):
            tx.llm.accounts.add_account(described("a", source=AccountSource.API))
        tx.llm.accounts.remove_account("a")
        with pytest.raises(NotFound):
            tx.llm.accounts.get_account("a")


@pytest.mark.parametrize("how", ["add", "enable", "key", "enter", "remove", "gone"])
def test_whoever_frees_or_takes_an_account_wakes_the_jobs_that_wait_for_one(store: Store, how: str) -> None:
    entered(store, described("a", fingerprint="old"))
    with store.begin() as tx:
        tx.llm.accounts.add_account(described("mine", source=AccountSource.API))
        job = Job(id="j", lane="l", priority=5, platform="web", account="x", channel="c", created_at=START)
        tx.jobs.add(job)
        tx.jobs.update_job("j", status=JobStatus.RUNNING)
        tx.jobs.park_job("j", Wait(reason=WaitReason.ACCOUNT, wake_at=START + timedelta(hours=1)))
    with store.begin() as tx:
        assert not tx.jobs.has_due()
        match how:
            case "add":
                tx.llm.accounts.add_account(described("b", source=AccountSource.API))
            case "enable":
                tx.llm.accounts.change_account("a", {"status": AccountStatus.ACTIVE})
            case "key":
                tx.llm.accounts.change_account("mine", {"secret": "new"})
            case "enter":
                tx.llm.accounts.set_configured([described("a", fingerprint="new")])
            case "remove":
                tx.llm.accounts.remove_account("mine")
            case "gone":
                tx.llm.accounts.set_configured([])
    with store.view() as tx:
        assert tx.jobs.has_due()

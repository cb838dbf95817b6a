"""One call, several accounts: who is asked next, what becomes of who failed, and what is raised when nobody answers."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from pydantic import SecretStr

from maestro.domain.errors import Stopped, WaitReason
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType
from maestro.domain.llm.calls import (
    AccountsExhausted,
    AccountUnusable,
    AuthenticationFailed,
    BadRequest,
    BudgetExceeded,
    CircuitOpen,
    ContextOverflow,
    EmptyResponse,
    LimiterBusy,
    LLMFailure,
    ModelTimeout,
    NoAccount,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
    RequestTooLarge,
)
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.accounts import AccountBook
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.llm_accounts import (
    LADDER,
    START,
    Clock,
    Model,
    book,
    failing,
    failover,
    failover_of,
    limited,
    own,
    row,
)
from tests.support.llm_requests import request_of, response_of


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def states(store: Store) -> dict[str, tuple[str, str]]:
    """Return each account's status and last error."""
    with store.view() as tx:
        return {account.name: (account.status.value, account.last_error) for account in tx.llm.accounts.list_accounts()}


ALL = ("claude", "gpt", "local")


# Who is asked


async def test_the_next_account_is_asked_for_a_model_of_its_own(store: Store) -> None:
    model = Model({"claude": limited()})
    answer = await failover(store, model, *ALL).complete(request_of(model="anthropic/claude-opus-4-6"))
    assert answer.content == "from gpt"
    assert model.asked == [("claude", "claude-opus-4-6"), ("gpt", "gpt-4o-mini")]


async def test_the_fallbacks_of_the_request_come_before_anybody_else(store: Store) -> None:
    model = Model({"claude": failing(QuotaExhausted)})
    request = request_of(model="claude-opus-4-6").model_copy(update={"fallbacks": ("ollama/qwen3",)})
    await failover(store, model, *ALL).complete(request)
    assert model.asked == [("claude", "claude-opus-4-6"), ("local", "qwen3")]


async def test_nobody_stands_in_where_exactly_one_model_may_answer(store: Store) -> None:
    model = Model({"gpt": limited(60)})
    request = request_of(model="openai/gpt-4o-mini").model_copy(update={"exact": True})
    with pytest.raises(AccountsExhausted) as raised:
        await failover(store, model, *ALL).complete(request)
    assert model.asked == [("gpt", "gpt-4o-mini")]
    assert raised.value.wake_at == START + timedelta(seconds=60)


@pytest.mark.parametrize(
    "kind",
    [
        RateLimited,
        QuotaExhausted,
        AuthenticationFailed,
        AccountUnusable,
        ProviderUnavailable,
        ModelTimeout,
        CircuitOpen,
        LimiterBusy,
        RequestTooLarge,
    ],
)
async def test_what_another_account_may_do_better_moves_on(store: Store, kind: type[LLMFailure]) -> None:
    model = Model({"claude": failing(kind)})
    assert (await failover(store, model, "claude", "gpt").complete(request_of())).content == "from gpt"


@pytest.mark.parametrize("kind", [BadRequest, ContextOverflow, EmptyResponse, BudgetExceeded, Stopped])
async def test_what_is_wrong_with_the_request_passes(store: Store, kind: type[Exception]) -> None:
    model = Model({"claude": lambda: kind("no")})
    with pytest.raises(kind):
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert len(model.asked) == 1


async def test_nobody_is_asked_the_same_twice(store: Store) -> None:
    model = Model(dict.fromkeys(ALL, failing(ProviderUnavailable)))
    with pytest.raises(ProviderUnavailable):
        await failover(store, model, *ALL).complete(request_of(model="gpt-4o-mini"))
    assert model.asked == [("gpt", "gpt-4o-mini"), ("claude", "claude-haiku-4-5"), ("local", "llama3.1")]


async def test_calls_under_way_count_as_use(store: Store) -> None:
    twins = book(store, [row("first"), row("second")])
    asked: list[str] = []

    class Nested:
        """Makes another call while it is asked."""

        async def complete(self, request: LLMRequest) -> LLMResponse:
            asked.append(request.account)
            if len(asked) == 1:
                await client.complete(request_of())
            return response_of("done")

    client = failover_of(store, Nested(), twins)
    await client.complete(request_of())
    assert asked == ["first", "second"]


async def test_after_two_timeouts_nobody_else_is_asked(store: Store) -> None:
    model = Model(dict.fromkeys(ALL, failing(ModelTimeout)))
    with pytest.raises(ModelTimeout):
        await failover(store, model, *ALL).complete(request_of())
    assert len(model.asked) == 2


async def test_nobody_else_is_asked_when_no_time_is_left(store: Store) -> None:
    model = Model({"claude": failing(ProviderUnavailable)})
    with pytest.raises(ProviderUnavailable):
        await failover(store, model, "claude", "gpt", seconds=0).complete(request_of())
    assert len(model.asked) == 1


# What becomes of who failed


async def test_a_limited_account_is_left_alone_until_its_cool_down_ends(store: Store, clock: Clock) -> None:
    model = Model({"claude": limited(2)})
    client = failover(store, model, "claude", "gpt")
    await client.complete(request_of())
    model.failures.clear()
    clock.now += LADDER[0] - timedelta(seconds=1)
    await client.complete(request_of())
    clock.now += timedelta(seconds=1)
    await client.complete(request_of())
    assert [account for account, _ in model.asked] == ["claude", "gpt", "gpt", "claude"]


async def test_another_worker_leaves_it_alone_too(store: Store, clock: Clock, tmp_path: Path) -> None:
    first, second = Model({"claude": limited()}), Model({})
    await failover(store, first, "claude", "gpt").complete(request_of())
    elsewhere = Store(tmp_path / "maestro.db", clock)
    await failover(elsewhere, second, "claude", "gpt").complete(request_of())
    elsewhere.close()
    assert second.asked == [("gpt", "gpt-4o-mini")]


async def test_a_refused_key_disables_the_account_until_a_person_changes_it(store: Store, clock: Clock) -> None:
    model = Model({"claude": failing(AuthenticationFailed)})
    client = failover(store, model, "claude", "gpt")
    await client.complete(request_of())
    clock.now += timedelta(days=400)
    await client.complete(request_of())
    assert [account for account, _ in model.asked] == ["claude", "gpt", "gpt"]
    assert states(store)["claude"] == ("disabled", "AuthenticationFailed")
    model.failures.clear()
    with store.begin() as tx:
        tx.llm.accounts.change_account("claude", {"status": AccountStatus.ACTIVE})
    assert (await client.complete(request_of())).content == "from claude"


async def test_what_happened_is_committed_before_the_next_is_asked(store: Store) -> None:
    seen: list[dict[str, tuple[str, str]]] = []
    model = Model({"claude": failing(ProviderUnavailable)}, after=lambda: seen.append(states(store)))
    await failover(store, model, "claude", "gpt").complete(request_of())
    assert seen[1]["claude"] == ("active", "ProviderUnavailable")


async def test_an_account_that_no_request_can_be_made_for_says_so_and_stays_active(store: Store) -> None:
    client = failover(store, Model({"claude": failing(AccountUnusable)}), "claude")
    with pytest.raises(AccountUnusable):
        await client.complete(
            request_of(model="claude-opus-4-6").model_copy(update={"fallbacks": ("claude-haiku-4-5",)})
        )
    assert states(store)["claude"] == ("active", "AccountUnusable")


@pytest.mark.parametrize("kind", [CircuitOpen, LimiterBusy, RequestTooLarge])
async def test_limits_of_our_own_are_not_held_against_an_account(store: Store, kind: type[LLMFailure]) -> None:
    await failover(store, Model({"claude": failing(kind)}), "claude", "gpt").complete(request_of())
    assert states(store)["claude"] == ("active", "")


async def test_the_limit_of_a_subscription_holds_for_all_its_models(store: Store) -> None:
    model = Model({"max": limited()})
    accounts = book(store, [row("max", type=AccountType.CLI, provider="anthropic", model="claude-sonnet-4-6")])
    client = failover_of(store, model, accounts)
    with pytest.raises(AccountsExhausted):
        await client.complete(request_of(model="claude-opus-4-6"))
    with pytest.raises(AccountsExhausted):
        await client.complete(request_of(model="claude-haiku-4-5"))
    assert model.asked == [("max", "claude-opus-4-6")]


async def test_the_log_names_accounts_and_classes_and_nothing_else(store: Store) -> None:
    model = Model({"claude": limited(), "gpt": failing(AuthenticationFailed)})
    with structlog.testing.capture_logs() as lines, pytest.raises(AccountsExhausted):
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert [line["event"] for line in lines] == [
        "account limited",
        "account disabled: its key is refused",
        "no account can be asked now",
    ]
    assert "PROMPT-SECRET" not in str(lines)
    assert "sk-1" not in str(lines)


# When nobody answers


async def test_all_limited_the_job_waits_for_the_first_to_recover(store: Store) -> None:
    model = Model({"claude": limited(7200), "gpt": failing(QuotaExhausted)})
    with pytest.raises(AccountsExhausted) as caught:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert caught.value.wake_at == START + timedelta(hours=1)
    with pytest.raises(AccountsExhausted):
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert len(model.asked) == 2, "nobody is asked before the time"


async def test_where_only_our_own_limits_leave_no_room_the_job_waits_for_room(store: Store) -> None:
    def busy() -> Exception:
        failure = LimiterBusy("busy")
        failure.retry_after = timedelta(seconds=30)
        return failure

    model = Model({"claude": busy, "gpt": limited(7200)})
    with pytest.raises(AccountsExhausted) as caught:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert caught.value.wake_at == START + timedelta(seconds=30)
    model.failures["claude"] = failing(ProviderUnavailable)
    with pytest.raises(ProviderUnavailable):
        await failover(store, model, "claude", "gpt").complete(request_of())


async def test_the_job_waits_for_a_provider_that_is_left_alone_or_for_an_account_that_is_free_sooner(
    store: Store,
) -> None:
    def resting() -> CircuitOpen:
        failure = CircuitOpen("left alone")
        failure.retry_after = timedelta(seconds=30)
        return failure

    model = Model({"claude": resting, "gpt": limited(7200)})
    with pytest.raises(CircuitOpen) as caught:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert (caught.value.reason, caught.value.wake_at) == (WaitReason.PROVIDER, START + timedelta(seconds=30))

    def opening() -> Exception:
        failure = ProviderUnavailable("down")
        failure.instead = resting()
        return failure

    model.failures["claude"] = opening
    with pytest.raises(ProviderUnavailable) as failed:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert isinstance(failed.value.instead, CircuitOpen)
    assert failed.value.instead.wake_at == START + timedelta(seconds=30)


async def test_a_limit_that_ended_meanwhile_is_waited_for_no_more(store: Store, clock: Clock) -> None:
    def passing() -> None:
        clock.now += timedelta(hours=1)

    model = Model({"claude": limited(), "gpt": failing(AuthenticationFailed)}, after=passing)
    with pytest.raises(AccountsExhausted) as caught:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert caught.value.wake_at == clock.now


async def test_a_failure_worth_repeating_goes_before_a_limit(store: Store) -> None:
    model = Model({"claude": failing(ProviderUnavailable), "gpt": limited()})
    with pytest.raises(ProviderUnavailable) as caught:
        await failover(store, model, "claude", "gpt").complete(request_of())
    assert caught.value.__context__ is None
    assert caught.value.site is not None
    assert caught.value.site.account == "claude"


async def test_refused_by_all_it_is_the_key(store: Store) -> None:
    model = Model({"claude": failing(RequestTooLarge), "gpt": failing(AuthenticationFailed)})
    client = failover(store, model, "gpt", "claude")
    with pytest.raises(AuthenticationFailed):
        await client.complete(request_of())
    model.failures["claude"] = failing(AuthenticationFailed)
    with pytest.raises(AuthenticationFailed):
        await client.complete(request_of())
    with pytest.raises(NoAccount, match=r"Every account is disabled.*maestro accounts enable"):
        await client.complete(request_of())


# Accounts that come and go


async def test_the_demo_model_answers_while_there_is_no_account(store: Store) -> None:
    model = Model({})
    client = failover(store, model)
    await client.complete(request_of(model="claude-opus-4-6"))
    with store.begin() as tx:
        tx.llm.accounts.add_account(row("mine", source=AccountSource.API, secret="sk-2"))
    await client.complete(request_of())
    with store.begin() as tx:
        tx.llm.accounts.change_account("mine", {"status": AccountStatus.DISABLED})
    with pytest.raises(NoAccount):
        await client.complete(request_of())
    with store.begin() as tx:
        tx.llm.accounts.remove_account("mine")
    await client.complete(request_of())
    assert model.asked == [("demo", "demo"), ("mine", "m"), ("demo", "demo")]


async def test_the_demo_model_may_refuse_too(store: Store) -> None:
    model = Model({"demo": failing(NoAccount)})
    with pytest.raises(NoAccount):
        await failover(store, model).complete(request_of())
    assert len(model.asked) == 1


async def test_an_account_whose_key_this_process_has_not_is_not_asked(store: Store) -> None:
    with store.begin() as tx:
        tx.llm.accounts.set_configured([row("claude"), row("gpt")])
    here = AccountBook(store, own(row("gpt")), SecretStr, lambda: LADDER)
    model = Model({})
    await failover_of(store, model, here).complete(request_of())
    assert model.asked == [("gpt", "gpt-4o-mini")]
    nobody = AccountBook(store, (), SecretStr, lambda: LADDER)
    with pytest.raises(NoAccount, match="no key for claude, gpt"):
        await failover_of(store, model, nobody).complete(request_of())

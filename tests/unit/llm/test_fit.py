"""Whoever stands in can read all of the request, where there is anybody who can: some cut a prompt without a word."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.llm.accounts import AccountStatus
from maestro.domain.llm.calls import AccountsExhausted, ProviderUnavailable
from maestro.domain.llm.models import ModelTable, estimate_input
from maestro.domain.llm.prompts import LLMRequest
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.llm_accounts import START, Clock, Model, book, failing, failover, failover_of, limited, row
from tests.support.llm_requests import request_of

LONG = request_of("word " * 12_000)
"""Takes more than the window of the local model, and less than any other."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


async def test_who_cannot_read_all_of_it_is_passed_over(store: Store) -> None:
    model = Model({"gpt": failing(ProviderUnavailable)})
    await failover(store, model, "gpt", "local", "claude").complete(LONG.model_copy(update={"model": "gpt-4o"}))
    assert model.asked == [("gpt", "gpt-4o"), ("claude", "claude-haiku-4-5")]
    model = Model({"gpt": failing(ProviderUnavailable), "claude": failing(ProviderUnavailable)})
    with pytest.raises(ProviderUnavailable):
        await failover(store, model, "gpt", "local", "claude").complete(LONG)
    assert ("local", "llama3.1") not in model.asked


async def test_a_short_request_goes_to_anybody(store: Store) -> None:
    model = Model({"claude": limited()})
    assert (await failover(store, model, "claude", "local").complete(request_of())).content == "from local"


async def test_the_job_waits_for_those_that_can_read_it_and_for_nobody_else(store: Store) -> None:
    model = Model({"claude": limited(7200), "local": limited(60)})
    client = failover(store, model, "claude", "local")
    with pytest.raises(AccountsExhausted) as caught:
        await client.complete(request_of())
    assert caught.value.wake_at == START + timedelta(minutes=1)
    with pytest.raises(AccountsExhausted, match="too small a context window") as caught:
        await client.complete(LONG)
    assert caught.value.wake_at == START + timedelta(hours=2)


async def test_where_nobody_can_read_it_all_the_first_choice_is_asked(store: Store) -> None:
    model = Model({})
    client = failover(store, model, "claude", "local")
    with store.begin() as tx:
        tx.llm.accounts.change_account("claude", {"status": AccountStatus.DISABLED})
    await client.complete(LONG)
    assert model.asked == [("local", "llama3.1")]


async def test_other_models_of_the_same_account_are_asked(store: Store) -> None:
    model = Model({})
    await failover(store, model, "gpt").complete(request_of(model="gpt-3.5-turbo"))
    fallback = LONG.model_copy(update={"model": "openai/gpt-oss-tiny", "fallbacks": ("openai/gpt-4o",)})
    await failover(store, model, "gpt").complete(fallback)
    assert model.asked == [("gpt", "gpt-3.5-turbo"), ("gpt", "gpt-4o")]


async def test_the_answer_needs_room_too(store: Store) -> None:
    tokens = estimate_input(LONG)
    windows = {"ollama/llama3.1": tokens + 99}
    assert await asked(store, windows) == "claude"
    assert await asked(store, {"ollama/llama3.1": tokens + 100}) == "local"


async def test_one_account_alone_is_asked_without_an_estimate(store: Store) -> None:
    class Unread(ModelTable):
        """A table that nobody may ask."""

        def context_window(self, model: str) -> int:
            raise AssertionError(model)

    model = Model({})
    accounts = book(store, [row("local")])
    await failover_of(store, model, accounts, Unread().context_window).complete(LONG)
    assert model.asked == [("local", "llama3.1")]


async def asked(store: Store, windows: dict[str, int]) -> str:
    """Return who is asked for a long request, first the local model, when its window is as said."""
    model = Model({})
    request: LLMRequest = LONG.model_copy(update={"model": "ollama/llama3.1"})
    accounts = book(store, [row("local"), row("claude")])
    client = failover_of(store, model, accounts, lambda name: windows.get(name, 200_000))
    return (await client.complete(request)).content.removeprefix("from ")

"""Several accounts: a person sees an answer, not which provider failed before it.

See docs/decisions.md: retry, failover.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from maestro.domain.jobs.job import FAILURE_NOTICE
from maestro.domain.jobs.steps import WAITING_NOTICE
from maestro.domain.llm.accounts import AccountSource, AccountStatus, ModelAccount
from maestro.installation.data_folder import open_keys
from maestro.llm.accounts import AccountBook
from maestro.settings.accounts import convert_account
from maestro.store.store import Store
from tests.support.instance import Instance, running_instance, until
from tests.support.llm_script import Failure

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("failover")]

CLAUDE, GPT = "claude-haiku-4-5", "gpt-4o-mini"
TIMEOUT = 3.0
"""Seconds one request may take."""
CREDIT = '{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}'


def accounts(maestro: Instance) -> list[dict[str, Any]]:
    """Two accounts at two providers, both of which the test's model server plays."""
    return [
        {"name": name, "provider": provider, "model": model, "apiKey": f"key-{name}", "priority": priority}
        | {"baseUrl": maestro.llm.base_url(provider)}
        for priority, (name, provider, model) in enumerate([("first", "anthropic", CLAUDE), ("second", "openai", GPT)])
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def composed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("failover"), start=False) as maestro:
        await maestro.restart(
            llm={
                "accounts": accounts(maestro),
                "totalTimeoutSeconds": TIMEOUT,
                "cooldownMinutes": [0.5 / 60],
                "breaker": {"failures": 1000},
            }
        )
        yield maestro


@pytest.fixture
def maestro(composed: Instance) -> Instance:
    """Give accounts without a past."""
    composed.llm.reset()
    composed.change("DELETE FROM account_limits")
    composed.change("UPDATE accounts SET status = 'active', last_error = '', rate_limited_until = NULL")
    return composed


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def asked(maestro: Instance) -> list[tuple[str, str]]:
    """Return the key and the model of each request."""
    return [(request.key.removeprefix("key-"), request.body["model"]) for request in maestro.llm.requests]


def account(maestro: Instance, name: str) -> dict[str, Any]:
    """Return the row of an account."""
    [row] = maestro.query("SELECT * FROM accounts WHERE name = ?", name)
    return dict(row)


FIRST, SECOND = ("first", CLAUDE), ("second", GPT)


async def test_a_rate_limit_is_only_a_slightly_later_answer(maestro: Instance, channel: str) -> None:
    maestro.llm.script("busy day", failure=Failure.limited(2), wire="anthropic", times=1)
    async with maestro.client(channel) as client:
        assert await client.ask("busy day") == "answer to: busy day"
        assert asked(maestro) == [FIRST, SECOND], "the second provider got a model of its own"
        assert await client.ask("still busy") == "answer to: still busy"
        assert asked(maestro) == [FIRST, SECOND, SECOND], "the first is left alone"
        [limit] = maestro.query("SELECT * FROM account_limits")
        ends = datetime.fromisoformat(limit["limited_until"])
        assert (ends - datetime.fromisoformat(limit["limited_at"])).total_seconds() == 2, "as long as it asked"
        await until(lambda: datetime.now(UTC) > ends, what="the end of the cool-down")
        assert await client.ask("all is well") == "answer to: all is well"
    assert asked(maestro) == [FIRST, SECOND, SECOND, FIRST]
    assert maestro.query("SELECT * FROM account_limits") == [], "and its ladder begins anew"
    [job, *_] = maestro.jobs(channel)
    calls = maestro.query("SELECT account, model, state, error FROM llm_calls WHERE job_id = ? ORDER BY id", job["id"])
    assert [tuple(call) for call in calls] == [
        ("first", CLAUDE, "failed", "RateLimited"),
        ("second", GPT, "answered", ""),
    ]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure.status(500), "ProviderUnavailable"),
        (Failure.status(529), "ProviderUnavailable"),
        (Failure.status(502, {"content-type": "text/html"}, "<html>Bad gateway</html>"), "ProviderUnavailable"),
        (Failure.reset(), "ProviderUnavailable"),
        (Failure.malformed(), "ProviderUnavailable"),
        (Failure.empty_body(), "ProviderUnavailable"),
        (Failure.silence(), "ModelTimeout"),
        (Failure.dribble(), "ModelTimeout"),
    ],
    ids=["500", "529", "502 HTML", "reset", "malformed", "empty body", "silence", "dribble"],
)
async def test_what_the_provider_fails_at_another_one_does(
    maestro: Instance, channel: str, failure: Failure, error: str
) -> None:
    maestro.llm.script(failure=failure, wire="anthropic")
    async with maestro.client(channel) as client:
        assert await client.ask("who can") == "answer to: who can"
    assert asked(maestro) == [FIRST, SECOND]
    first = account(maestro, "first")
    assert (first["status"], first["last_error"], first["rate_limited_until"]) == ("active", error, None)
    [job] = await maestro.ended(channel, "completed")
    assert job["attempts"] == 0, "a failover is no retry"


async def test_an_account_without_credit_is_left_alone_as_a_whole(maestro: Instance, channel: str) -> None:
    maestro.llm.script("out of credit", failure=Failure.status(400, body=CREDIT), wire="anthropic")
    async with maestro.client(channel) as client:
        assert await client.ask("out of credit") == "answer to: out of credit"
        await client.ask("and again")
    assert asked(maestro) == [FIRST, SECOND, SECOND]
    [limit] = maestro.query("SELECT model FROM account_limits")
    assert limit["model"] == "", "every model"
    assert account(maestro, "first")["last_error"] == "QuotaExhausted"


@pytest.mark.parametrize("code", [401, 403])
async def test_a_refused_key_disables_its_account_until_a_person_changes_it(
    maestro: Instance, channel: str, code: int
) -> None:
    maestro.llm.script("let me in", failure=Failure.status(code), wire="anthropic")
    async with maestro.client(channel) as client:
        assert await client.ask("let me in") == "answer to: let me in"
        await client.ask("next one")
        assert asked(maestro) == [FIRST, SECOND, SECOND]
        assert account(maestro, "first")["status"] == "disabled"
        await asyncio.to_thread(enable, maestro, "first")
        await client.ask("with the new key")
    assert asked(maestro)[-1] == FIRST


def enable(maestro: Instance, name: str) -> None:
    """Do as a person does, from another process."""
    store = Store(maestro.data_dir / "maestro.db")
    with store.begin() as tx:
        tx.llm.accounts.change_account(name, {"status": AccountStatus.ACTIVE})
    store.close()


@pytest.mark.parametrize("failure", [Failure.status(400), Failure.status(404), Failure.context()])
async def test_what_is_wrong_with_the_request_is_not_asked_of_others(
    maestro: Instance, channel: str, failure: Failure
) -> None:
    maestro.llm.script("nonsense", failure=failure, wire="anthropic")
    async with maestro.client(channel) as client:
        assert await client.ask("nonsense") == FAILURE_NOTICE
    assert SECOND not in asked(maestro)
    assert account(maestro, "first")["status"] == "active"


async def test_when_all_fail_the_same_is_tried_again_later(maestro: Instance, channel: str) -> None:
    maestro.llm.script("bad hour", failure=Failure.status(503), times=2)
    async with maestro.client(channel) as client:
        assert await client.ask("bad hour") == "answer to: bad hour"
    assert asked(maestro) == [FIRST, SECOND, FIRST]
    [job] = await maestro.ended(channel, "completed")
    assert job["attempts"] == 1, "two accounts, one attempt"


async def test_what_an_account_is_limited_to_another_worker_knows(maestro: Instance, channel: str) -> None:
    maestro.llm.script("tell the others", failure=Failure.limited(60), wire="anthropic", times=1)
    async with maestro.client(channel) as client:
        await client.ask("tell the others")
    assert await asyncio.to_thread(chosen_elsewhere, maestro) == "second"


def chosen_elsewhere(maestro: Instance) -> str:
    """Return whom a worker in another process asks now."""
    store = Store(maestro.data_dir / "maestro.db")
    own = map(convert_account, maestro.loaded.settings.llm.accounts)
    choice = AccountBook(store, own, SecretStr, tuple).read_roster().choose_account((), (), {})
    store.close()
    assert choice is not None
    return choice.account.name


async def test_without_an_account_the_demo_model_answers_until_one_is_added(tmp_path: Path, channel: str) -> None:
    async with (
        running_instance(tmp_path, llm={"accounts": [], "demoSeconds": 0}) as bare,
        bare.client(channel) as client,
    ):
        assert "demo model" in await client.ask("anybody there")
        await asyncio.to_thread(add, bare)
        assert await client.ask("and now") == "answer to: and now"
        [request] = bare.llm.requests
        assert (request.key, request.body["model"]) == ("key-typed", GPT)


def add(maestro: Instance) -> None:
    """Do as a person does who types a key into the dashboard."""
    store = Store(maestro.data_dir / "maestro.db")
    kept = open_keys(maestro.loaded.settings, {}).stored_form("key-typed")
    with store.begin() as tx:
        tx.llm.accounts.add_account(
            ModelAccount(
                name="typed",
                provider="openai",
                model=GPT,
                base_url=maestro.llm.base_url("openai"),
                secret=kept.secret,
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
    store.close()


async def test_when_the_attempts_are_over_a_limited_account_is_waited_for(maestro: Instance) -> None:
    text = "one is limited and the other is down"
    maestro.llm.script(text, failure=Failure.limited(4), account="key-first", times=1)
    maestro.llm.script(text, failure=Failure.status(500), account="key-second")
    async with maestro.client("limited-and-down") as client:
        assert (await client.ask(text, patience=30)).startswith(WAITING_NOTICE)
        answer = await client.wait_for("message", patience=30)
    assert answer["content"] == f"answer to: {text}"
    assert [request.key for request in maestro.llm.matching(text)] == ["key-first", *["key-second"] * 3, "key-first"]


async def test_a_misspelled_provider_is_passed_over_and_a_small_window_gets_what_it_can_read(
    tmp_path: Path, channel: str
) -> None:
    async with running_instance(tmp_path, start=False) as maestro:
        wrong, large = accounts(maestro)
        local = {"name": "local", "provider": "ollama", "model": "llama3.1", "priority": 1}
        local |= {"apiKey": "key-local", "baseUrl": maestro.llm.base_url("ollama")}
        wrong, large = {**wrong, "provider": "antropic"}, {**large, "priority": 2}
        await maestro.restart(llm={"accounts": [wrong, local, large]})
        async with maestro.client(channel) as client:
            await client.ask("a short one")
            await client.ask("длинный " * 1_500)
        assert asked(maestro) == [("local", "llama3.1"), SECOND]
        first = account(maestro, "first")
        assert (first["status"], first["last_error"]) == ("active", "AccountUnusable")

"""Budgets as people and operators meet them: one notice, or a cheaper model, and what was spent outlives a restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.steps import BUDGET_NOTICE
from maestro.domain.llm.prompts import CallKey
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Heartbeat
from maestro.operations.settings import SettingsOperations
from maestro.settings.control import EffectiveSettings
from maestro.settings.live import LiveSettings
from tests.support.instance import Instance, running_instance
from tests.support.llm_wires import INPUT_TOKENS, OUTPUT_TOKENS
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("budgets")]

DOLLAR_A_TOKEN = 1e6
"""US dollars per million tokens."""
ANSWER_USD = float(INPUT_TOKENS + OUTPUT_TOKENS)
CHEAPER = "claude-haiku-4-5"
PRICES = {"models": [{"name": "gpt-4o-mini", "inputUsd": DOLLAR_A_TOKEN, "outputUsd": DOLLAR_A_TOKEN}]}
CLIENTS: dict[str, Any] = {
    "clients": [{"name": "Acme", "dailyBudgetUsd": ANSWER_USD}],
    "agents": [{"slug": "conductor", "role": "conductor"}],
    "channels": [{"platform": "web", "channel": "acme", "agent": "conductor", "client": "Acme"}],
}
UNLIMITED = {"dayUsd": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    """Run with a budget of one answer for each conversation, and one for the client Acme."""
    budgets = {**UNLIMITED, "conversationDayUsd": ANSWER_USD}
    folder = tmp_path_factory.mktemp("budgets")
    async with running_instance(folder, llm=PRICES, budgets=budgets, **CLIENTS) as instance:
        yield instance


async def told(client: WebClient) -> str:
    """Return the next message."""
    return str((await client.wait_for("message", patience=30))["content"])


async def set_budget(maestro: Instance, usd: float | None, key: str = "budgets.conversationDayUsd") -> None:
    """Set or take back a budget while Maestro runs, as an operator does."""
    with maestro.operator() as operator:
        control = SettingsOperations(operator.store, EffectiveSettings(LiveSettings(maestro.loaded)))
        await asyncio.to_thread(control.change, {key: usd}, None, "a test")


async def ask(maestro: Instance, channel: str, text: str) -> str:
    """Say something and return what comes back."""
    async with maestro.client(channel) as client:
        await client.say(text)
        return str((await client.wait_for("message", patience=30))["content"])


async def test_beyond_the_budget_a_person_is_told_once_and_answered_when_it_is_raised(maestro: Instance) -> None:
    assert await ask(maestro, "poor", "the first") == "answer to: the first"
    async with maestro.client("poor") as client:
        for text in ("one too many", "and another"):
            await client.say(text)
        assert (await told(client)).startswith(BUDGET_NOTICE)
        await maestro.until("SELECT 1 FROM queue WHERE status = 'waiting' GROUP BY status HAVING count(*) = 2")
        assert maestro.llm.matching("one too many") == []
        job, _ = maestro.query("SELECT * FROM queue WHERE status = 'waiting' ORDER BY turn")
        assert (job["waits_for"], job["wake_at"][11:19]) == ("budget", "00:00:00")
        (step,) = maestro.query("SELECT * FROM job_steps WHERE job_id = ? AND step = 'model-1'", job["id"])
        assert (step["error"], "budgets.conversationDayUsd" in step["detail"]) == ("BudgetExceeded", True)
        await set_budget(maestro, 3 * ANSWER_USD)
        assert [await told(client) for _ in range(2)] == ["answer to: one too many", "answer to: and another"]
    await set_budget(maestro, None)


async def test_the_budget_of_one_conversation_leaves_the_others_alone(maestro: Instance) -> None:
    assert await ask(maestro, "one", "hello one") == "answer to: hello one"
    assert await ask(maestro, "two", "hello two") == "answer to: hello two"


async def test_the_client_of_a_channel_pays_for_it_and_has_a_budget_of_its_own(maestro: Instance) -> None:
    await ask(maestro, "acme", "for acme")
    (spent,) = maestro.query("SELECT spent_usd, reserved_usd FROM spending WHERE scope = 'client'")
    assert (spent["spent_usd"], spent["reserved_usd"]) == (pytest.approx(ANSWER_USD), 0)
    (used,) = maestro.query("SELECT clients.name FROM usage_log JOIN clients ON clients.id = client_id")
    assert used["name"] == "Acme"


async def test_a_heartbeat_beyond_the_budget_is_skipped_and_counted_and_goes_on(maestro: Instance) -> None:
    await ask(maestro, "spender", "hello")
    await set_budget(maestro, ANSWER_USD / 2, "budgets.agentDayUsd")
    with maestro.operator() as operator, operator.store.begin() as tx:
        new = NewSchedule(agent="conductor", schedule="every 1h", prompt="look", platform="web", channel="beat")
        beat = tx.background.schedules.add_schedule(Heartbeat, new, "a test")
        tx.llm.budgets.add_cost(CallKey(job_id=maestro.jobs("spender")[0]["id"], number=9), ANSWER_USD)
        ref = beat.ref
    for count in range(1, 5):
        with maestro.operator() as operator, operator.store.begin() as tx:
            tx.background.runs.run_now(tx.background.schedules.get(ref), "a test")
        await maestro.until("SELECT 1 FROM heartbeat_configs WHERE skipped = ? AND failures = 0", count)
    (row,) = maestro.query("SELECT paused_reason FROM heartbeat_configs")
    jobs = maestro.query("SELECT status, error, reason FROM queue WHERE schedule = ?", ref)
    assert (row["paused_reason"], len(jobs)) == ("", 4)
    assert {(job["status"], job["error"]) for job in jobs} == {("dropped", "BudgetExceeded")}
    assert jobs[0]["reason"].startswith("skipped: the daily budget of agent conductor")
    await set_budget(maestro, None, "budgets.agentDayUsd")


async def test_what_was_spent_outlives_a_restart(tmp_path: Path) -> None:
    async with running_instance(tmp_path, llm=PRICES, budgets={"dayUsd": ANSWER_USD}) as maestro:
        assert await ask(maestro, "before", "the first") == "answer to: the first"
        await maestro.restart()
        assert (await ask(maestro, "after", "one too many")).startswith(BUDGET_NOTICE)
        assert maestro.llm.matching("one too many") == []


async def test_beyond_the_budget_the_cheaper_model_answers(tmp_path: Path) -> None:
    budgets = {**UNLIMITED, "agentDayUsd": ANSWER_USD, "onLimit": "fallback", "fallbackModel": f"anthropic/{CHEAPER}"}
    async with running_instance(tmp_path, start=False, llm=PRICES, budgets=budgets) as maestro:
        (dear,) = maestro.loaded.settings.llm.accounts
        cheap = {
            "name": "cheap",
            "provider": "anthropic",
            "model": CHEAPER,
            "apiKey": "sk-cheap",
            "baseUrl": maestro.llm.base_url("anthropic"),
            "priority": dear.priority + 1,
        }
        main = {
            "name": dear.name,
            "provider": dear.provider,
            "model": dear.model,
            "apiKey": dear.api_key.get_secret_value(),
            "baseUrl": dear.base_url,
        }
        await maestro.restart(llm={"accounts": [main, cheap]})
        for text in ("the first", "the second"):
            assert await ask(maestro, "talk", text) == f"answer to: {text}"
        assert [maestro.llm.matching(text)[0].model for text in ("the first", "the second")] == ["gpt-4o-mini", CHEAPER]
        asked = [row["account"] for row in maestro.query("SELECT account FROM usage_log ORDER BY id")]
        assert asked == ["main", "cheap"]

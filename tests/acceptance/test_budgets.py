"""Budgets as people and operators meet them: one notice, or a cheaper model, and what was spent outlives a restart."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.llm.errors import BudgetExceeded
from tests.support.instance import Instance, running_instance
from tests.support.llm_wires import INPUT_TOKENS, OUTPUT_TOKENS

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


async def ask(maestro: Instance, channel: str, text: str) -> str:
    """Say something and return what comes back."""
    async with maestro.client(channel) as client:
        await client.say(text)
        return str((await client.wait_for("message", patience=30))["content"])


async def test_beyond_the_budget_a_person_is_told_once_and_nobody_is_asked(maestro: Instance) -> None:
    assert await ask(maestro, "poor", "the first") == "answer to: the first"
    assert await ask(maestro, "poor", "one too many") == BudgetExceeded.notice
    assert maestro.llm.matching("one too many") == []
    (job,) = await maestro.ended("poor", "failed")
    assert job["error"] == "BudgetExceeded"
    assert "budgets.conversationDayUsd" in job["reason"]
    attempts = maestro.query("SELECT count(*) FROM job_steps WHERE job_id = ? AND step = 'model-1'", job["id"])
    assert attempts[0][0] == 1, "what is refused is not tried again"


async def test_the_budget_of_one_conversation_leaves_the_others_alone(maestro: Instance) -> None:
    assert await ask(maestro, "one", "hello one") == "answer to: hello one"
    assert await ask(maestro, "two", "hello two") == "answer to: hello two"


async def test_the_client_of_a_channel_pays_for_it_and_has_a_budget_of_its_own(maestro: Instance) -> None:
    await ask(maestro, "acme", "for acme")
    (spent,) = maestro.query("SELECT spent_usd, reserved_usd FROM spending WHERE scope = 'client'")
    assert (spent["spent_usd"], spent["reserved_usd"]) == (pytest.approx(ANSWER_USD), 0)
    (used,) = maestro.query("SELECT clients.name FROM usage_log JOIN clients ON clients.id = client_id")
    assert used["name"] == "Acme"


async def test_what_was_spent_outlives_a_restart(tmp_path: Path) -> None:
    async with running_instance(tmp_path, llm=PRICES, budgets={"dayUsd": ANSWER_USD}) as maestro:
        assert await ask(maestro, "before", "the first") == "answer to: the first"
        await maestro.restart()
        assert await ask(maestro, "after", "one too many") == BudgetExceeded.notice
        assert maestro.llm.matching("one too many") == []


async def test_beyond_the_budget_the_cheaper_model_answers(tmp_path: Path) -> None:
    budgets = {
        **UNLIMITED,
        "agentDayUsd": ANSWER_USD,
        "onLimit": "fallback",
        "fallbackModel": f"anthropic/{CHEAPER}",
    }
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

"""A subscription answers through the command ``claude`` like any other account."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.support.claude import FakeClaude, saying
from tests.support.instance import KEY, Instance, running_instance
from tests.support.left_behind import nobody_left, nobody_stays, noted

pytestmark = pytest.mark.xdist_group("message-flow")

Composed = Callable[[str], AbstractAsyncContextManager[tuple[Instance, FakeClaude]]]


@pytest.fixture
def composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Composed:
    """Run a Maestro with a subscription, whose command runs this script, before an account with a key."""

    @asynccontextmanager
    async def compose(script: str) -> AsyncIterator[tuple[Instance, FakeClaude]]:
        claude = FakeClaude(tmp_path / "bin", script)
        monkeypatch.setenv("PATH", claude.path)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-the-command-must-not-see-this")
        async with running_instance(tmp_path, start=False) as maestro:
            url = maestro.llm.base_url("openai")
            by_key = {"name": "main", "provider": "openai", "model": "gpt-4o-mini", "apiKey": KEY, "baseUrl": url}
            await maestro.restart(llm={"accounts": [{"name": "max", "type": "cli", "priority": 1}, by_key]})
            yield maestro, claude

    return compose


async def test_a_conversation_goes_through_the_command(composed: Composed) -> None:
    async with composed(saying("answer from the subscription")) as (maestro, claude):
        async with maestro.client("cli") as client:
            assert await client.ask("hello there") == "answer from the subscription"
            assert await client.ask("and again") == "answer from the subscription"
        assert maestro.llm.requests == []
        assert ["--continue" in claude.words(run) for run in range(2)] == [False, True]
        assert "[user]: hello there\n\n[assistant]: answer from the subscription\n\n[user]: and again" in claude.said(1)
        [conversation] = maestro.query("SELECT id FROM conversations")
        assert claude.where() == maestro.data_dir / "sessions" / str(conversation["id"])
        assert "ANTHROPIC_API_KEY" not in claude.environment()
        rows = maestro.query("SELECT account, model, cost_usd FROM usage_log")
        assert [tuple(row) for row in rows] == [("max", "claude-sonnet-4-6", 0.0)] * 2
        assert nobody_left(claude.folder)


async def test_a_used_up_subscription_leaves_the_answer_to_the_next_account(composed: Composed) -> None:
    async with composed('echo "You\'ve hit your limit · resets 1pm (Europe/Lisbon)"; exit 1') as (maestro, claude):
        async with maestro.client("limited") as client:
            assert await client.ask("one") == "answer to: one"
            assert await client.ask("two") == "answer to: two"
        assert claude.runs == 1
        [account] = maestro.query("SELECT * FROM accounts WHERE name = 'max'")
        assert (account["status"], account["last_error"]) == ("active", "RateLimited")
        assert account["rate_limited_until"]


async def test_a_command_without_a_login_is_not_asked_again(composed: Composed) -> None:
    async with composed("echo 'Invalid API key · Please run /login'; exit 1") as (maestro, claude):
        async with maestro.client("refused") as client:
            assert await client.ask("one") == "answer to: one"
            assert await client.ask("two") == "answer to: two"
        assert claude.runs == 1
        assert maestro.query("SELECT status FROM accounts WHERE name = 'max'")[0]["status"] == "disabled"


async def test_a_stop_ends_the_command_and_all_it_started(composed: Composed) -> None:
    async with composed('sleep 600 & echo $! > "$here/behind-pid"; sleep 600') as (maestro, claude):
        async with maestro.client("stopped") as client:
            await client.say("take your time")
            await noted(claude.folder / "behind-pid")
            await client.say("/stop")
            [job] = await maestro.ended("stopped", "cancelled")
        await nobody_stays(claude.folder)
        assert maestro.llm.requests == []
        rows = maestro.query("SELECT state FROM llm_calls WHERE job_id = ?", job["id"])
        assert [row["state"] for row in rows] == ["interrupted"]

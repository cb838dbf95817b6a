"""What a job would answer now: paid and shown, and nothing else happens (docs/decisions.md: what-if)."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
import pytest_asyncio

from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import JobEdits
from maestro.domain.jobs.replay import ReplayMode, ReplayPreview
from maestro.domain.jobs.views import JobDetail, job_detail
from maestro.store.replays import preview_replay
from tests.support.database import table_names
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("what-if")]

KEY = "a key that makes its holder a user and not the owner"
READ_ONLY = "announcements"
LONG = 60.0
ITS_OWN = {
    *(
        "queue",
        "job_steps",
        "llm_calls",
        "prompts",
        "prompt_parts",
        "usage_log",
        "usage_days",
        "tool_calls",
        "audit_log",
    ),
    *("accounts", "account_limits", "spending"),
}
"""What a what-if leaves behind: itself, what it took, and what the budgets and accounts count of that."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    binding = {"platform": "web", "channel": READ_ONLY, "agent": "conductor", "permissions": "read_only"}
    tools = ["calculate", "write_file", "ask_question"]
    agents = [
        {"slug": "conductor", "role": "conductor", "tools": tools},
        {"slug": "ada", "systemPrompt": "You are Ada."},
    ]
    async with running_instance(
        tmp_path_factory.mktemp("what-if"),
        web={"apiKey": KEY},
        channels=[binding],
        agents=agents,
        budgets={"dayUsd": 1_000_000},
        tools={"files": True},
    ) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def user(maestro: Instance, channel: str) -> AbstractAsyncContextManager[WebClient]:
    """Connect as somebody who is not an owner."""
    return maestro.client(channel, api_key=KEY)


async def replay(maestro: Instance, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> str:
    """Replay as an operator does and return the job that runs now."""
    with maestro.operator() as operator:
        return await operator.jobs.replay(job_id, mode, "ada", edits)


async def what_if(
    maestro: Instance, job_id: str, edits: JobEdits | None = None, status: str = "completed"
) -> JobDetail:
    """Ask what a job would answer, and return the what-if once it has ended so."""
    asked = await replay(maestro, job_id, ReplayMode.WHAT_IF, edits)
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = ?", asked, status)
    return shown(maestro, asked)


def shown(maestro: Instance, job_id: str) -> JobDetail:
    with maestro.operator() as operator, operator.store.view() as tx:
        return job_detail(tx.jobs.lists.read_record(job_id))


def seen_before(maestro: Instance, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> ReplayPreview:
    with maestro.operator() as operator, operator.store.view() as tx:
        return preview_replay(tx, job_id, mode, edits)


def tables(maestro: Instance) -> dict[str, str]:
    """Return a digest of the rows of every table."""
    names = table_names(maestro.data_dir / "maestro.db")
    return {
        name: hashlib.sha256(repr([tuple(row) for row in maestro.query(f"SELECT * FROM {name}")]).encode()).hexdigest()
        for name in names
    }


async def answered(maestro: Instance, channel: str, text: str) -> str:
    """Have a message answered and return its job."""
    async with user(maestro, channel) as client:
        await client.ask(text)
        [job] = await maestro.ended(channel, "completed")
    return str(job["id"])


async def test_nothing_is_written_but_what_it_took(maestro: Instance, channel: str) -> None:
    answer = "Noted. [MEMORY:taste] likes tea [/MEMORY][STATE:mood] well [/STATE][DELEGATE:ada] cook [/DELEGATE]"
    maestro.llm.script("tell me what you know", reply="An answer. [MEMORY:taste] likes milk [/MEMORY]", times=1)
    async with user(maestro, channel) as client:
        await client.ask("tell me what you know")
        [job] = await maestro.ended(channel, "completed")
        maestro.llm.script("tell me what you know", reply=answer)
        before, sent, typed = tables(maestro), len(maestro.taps.sent), len(maestro.taps.typed)
        asked = await what_if(maestro, job["id"])
        after = tables(maestro)
        assert {name for name in after if after[name] != before.get(name)} <= ITS_OWN
        assert (len(maestro.taps.sent), len(maestro.taps.typed)) == (sent, typed)
    assert (asked.said, asked.what_if, asked.restarted_from) == ("Noted.", True, job["id"])
    assert [(tag.tag, tag.subject, tag.text) for tag in asked.would_act] == [
        ("MEMORY", "taste", "likes tea"),
        ("STATE", "mood", "well"),
        ("DELEGATE", "ada", "cook"),
    ]
    assert (asked.actions, asked.deliveries, asked.led_to) == ((), (), ())
    original = shown(maestro, job["id"])
    assert (original.what_ifs, original.restarted_by) == ((asked.id,), ())
    [first, second] = maestro.llm.matching("tell me what you know")
    assert len(first.texts) == len(second.texts)


async def test_it_is_paid_and_counts_against_the_budget(maestro: Instance, channel: str) -> None:
    job_id = await answered(maestro, channel, "what is dear")
    spent = "SELECT sum(spent_usd) AS usd FROM spending WHERE scope = 'day'"
    before = maestro.query(spent)[0]["usd"]
    asked = await what_if(maestro, job_id)
    assert asked.cost_usd is not None
    assert asked.cost_usd > 0
    assert maestro.query(spent)[0]["usd"] == pytest.approx(before + asked.cost_usd)
    assert [row["cost_usd"] for row in maestro.query("SELECT cost_usd FROM usage_log WHERE job_id = ?", asked.id)] == [
        asked.cost_usd
    ]


async def test_it_may_be_asked_as_often_as_wanted_and_hinders_nothing(maestro: Instance, channel: str) -> None:
    maestro.llm.script("fails at first", failure=Failure.status(400), times=1)
    async with user(maestro, channel) as client:
        await client.say("fails at first")
        await client.wait_for("message")
        [job] = await maestro.ended(channel, "failed")
        for said in ("one", "two"):
            maestro.llm.script("fails at first", reply=said, times=1)
            assert (await what_if(maestro, job["id"])).said == said
        assert await replay(maestro, job["id"], ReplayMode.RESUME) == job["id"]
        assert (await client.wait_for("message"))["content"] == "answer to: fails at first"
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", job["id"])


async def test_edits_are_tried_before_they_are_used(maestro: Instance, channel: str) -> None:
    job_id = await answered(maestro, channel, "say hello")
    edits = JobEdits(agent="ada", model="gpt-4o", prompt="say hello in German")
    tried = await what_if(maestro, job_id, edits)
    assert (tried.agent, tried.edits, tried.route) == ("ada", edits, "an operator chose")
    assert tried.said == "answer to: say hello in German"
    [request] = maestro.llm.matching("say hello in German")
    assert "You are Ada." in request.texts[0]
    assert [call.model for call in tried.calls] == ["gpt-4o"]
    again = await replay(maestro, job_id, ReplayMode.RESTART, edits)
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", again)
    assert maestro.llm.matching("say hello in German")[1].texts == request.texts


async def test_a_dropped_message_shows_what_would_be_said_or_why_nothing(maestro: Instance) -> None:
    async with user(maestro, READ_ONLY) as client:
        await client.say("may I speak")
        [dropped] = await maestro.ended(READ_ONLY, "dropped")
    refused = await what_if(maestro, dropped["id"], status="dropped")
    assert refused.reason == dropped["reason"] == "the channel's permission is read_only"
    maestro.change("UPDATE agent_channels SET permission = 'full' WHERE channel = ?", READ_ONLY)
    before = tables(maestro)
    assert (await what_if(maestro, dropped["id"])).said == "answer to: may I speak"
    after = tables(maestro)
    assert {name for name in after if after[name] != before.get(name)} <= ITS_OWN


async def test_only_tools_that_change_nothing_are_called(maestro: Instance, channel: str) -> None:
    job_id = await answered(maestro, channel, "work with tools")
    calls = [
        ("calculate", {"expression": "6*7"}),
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("ask_question", {"question": "Really?"}),
    ]
    maestro.llm.script("work with tools", calls=calls, rounds=0)
    before = tables(maestro)
    asked = await what_if(maestro, job_id)
    after = tables(maestro)
    assert {name for name in after if after[name] != before.get(name)} <= ITS_OWN
    assert [(run.tool, run.state, run.attempts) for run in asked.tools] == [
        ("calculate", "done", 1),
        ("write_file", "refused", 0),
        ("ask_question", "refused", 0),
    ]
    assert asked.tools[0].result == "42"
    assert not list(maestro.data_dir.glob("workspaces/**/a.txt"))


async def test_a_running_one_is_cancelled_and_finished_later(maestro: Instance, channel: str) -> None:
    job_id = await answered(maestro, channel, "think about it")
    maestro.llm.script("think about it", delay=LONG, times=1)
    asked = await replay(maestro, job_id, ReplayMode.WHAT_IF)
    await maestro.asked("think about it", 2)
    with maestro.operator() as operator:
        await operator.jobs.cancel(asked, "ada")
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'cancelled'", asked)
    assert maestro.llm.matching("think about it")[1].outcome == "gone"
    with pytest.raises(Conflict, match=f"ask again what job {job_id} would answer"):
        await replay(maestro, asked, ReplayMode.RESTART)
    assert await replay(maestro, asked, ReplayMode.RESUME) == asked
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", asked)
    assert shown(maestro, asked).said == "answer to: think about it"
    assert [sent.content for sent in maestro.taps.sent if sent.address.channel == channel] == [
        "answer to: think about it"
    ]


async def test_one_that_fails_tells_nobody(maestro: Instance, channel: str) -> None:
    job_id = await answered(maestro, channel, "ask and fail")
    maestro.llm.script("ask and fail", failure=Failure.status(400), times=1)
    sent = len(maestro.taps.sent)
    asked = await what_if(maestro, job_id, status="failed")
    assert (len(maestro.taps.sent), asked.deliveries) == (sent, ())
    counted = seen_before(maestro, job_id, ReplayMode.WHAT_IF)
    assert (counted.model_calls, counted.effects, counted.first_calls) == (1, (), 1)

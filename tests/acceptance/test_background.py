"""Work that no person began: persona and memory, no conversation, silence, failure."""

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from temporalio.client import WorkflowFailureError

from maestro.domain.jobs.job import JobRef
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from tests.support.instance import Instance, Row, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("background")]

YEARLY = "0 9 1 1 *"
"""Never while the test runs: what begins here is begun by the test."""
MEMORY = "[MEMORY:learned_pattern] the pump is loud on Mondays [/MEMORY]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    agents = [
        {"slug": "ada", "systemPrompt": "You watch the pump."},
        {"slug": "eve", "systemPrompt": "You are for a few.", "allowUsers": ["web:nobody-we-know"]},
        {"slug": "bob", "systemPrompt": "You count."},
        {"slug": "boss", "role": "conductor"},
    ]
    tools = {"privateHosts": ["127.0.0.1"]}
    async with running_instance(tmp_path_factory.mktemp("background"), agents=agents, tools=tools) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    return "".join(character if character.isalnum() else "-" for character in request.node.name)[-60:]


def planned(
    maestro: Instance, channel: str, prompt: str, kind: type[ScheduleColumns] = Heartbeat, agent: str = "ada"
) -> str:
    """Plan something and return how it is called."""
    new = NewSchedule(agent=agent, name=channel, schedule=YEARLY, prompt=prompt, platform="web", channel=channel)
    with maestro.operator() as operator, operator.store.begin() as tx:
        return tx.background.schedules.add_schedule(kind, new, "operator").ref


async def begin(maestro: Instance, ref: str, *, at: int = 0) -> str:
    """Do what Temporal does when the time of a schedule has come; return the id of the run."""
    slot = datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(days=at)
    run = f"maestro-{ref}-{slot:%Y-%m-%dT%H:%M:%SZ}"
    ref_of_job = JobRef(
        job_id="", run=1, heartbeat_seconds=3, model_seconds=60, tool_seconds=60, tool_rounds=5, schedule=ref
    )
    await (await maestro.temporal()).start_workflow("ScheduledWorkflow", ref_of_job, id=run, task_queue="maestro")
    return run


async def result(maestro: Instance, run: str) -> str:
    """Return what the workflow of a run said at its end."""
    return str(await (await maestro.temporal()).get_workflow_handle(run).result())


def job(maestro: Instance, run: str) -> Row:
    (row,) = maestro.query("SELECT * FROM queue WHERE id = ?", run)
    return row


async def heard(client: WebClient) -> str:
    return str((await client.wait_for("message"))["content"])


async def test_a_heartbeat_has_persona_and_memory_and_no_conversation(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Look at the pump.")
    maestro.llm.script("Look at the pump", reply=f"It runs. {MEMORY}")
    before = maestro.query("SELECT count(*) AS n FROM conversations")[0]["n"]
    async with maestro.client(channel) as client:
        first = await begin(maestro, ref)
        assert await heard(client) == "It runs."
        assert await result(maestro, first) == "completed"
        maestro.llm.script("Look at the pump", reply="Still runs.")
        await begin(maestro, ref, at=1)
        assert await heard(client) == "Still runs."
    one, two = maestro.llm.matching("Look at the pump")
    assert "You watch the pump." in one.texts[0]
    assert "the pump is loud on Mondays" not in one.texts[0]
    assert "the pump is loud on Mondays" in two.texts[0]
    assert len(two.texts) == 2, "a fresh message each time: no run knows what the one before said"
    assert "a heartbeat of yours, planned for" in two.last_user
    row = job(maestro, first)
    assert (row["kind"], row["status"], row["priority"], row["conversation_id"], row["said"]) == (
        "heartbeat",
        "completed",
        10,
        None,
        "It runs.",
    )
    assert maestro.query("SELECT count(*) AS n FROM conversations")[0]["n"] == before
    (schedule,) = maestro.query("SELECT * FROM heartbeat_configs WHERE name = ?", channel)
    assert (schedule["runs"], schedule["failures"], schedule["last_job_id"][-20:]) == (2, 0, "2026-01-02T09:00:00Z")


@pytest.mark.parametrize("answer", ["[SILENT]", " **[silent]**\n", f"[SILENT]\n{MEMORY}"], ids=["1", "2", "3"])
async def test_a_heartbeat_that_has_nothing_to_tell_posts_nothing(maestro: Instance, channel: str, answer: str) -> None:
    ref = planned(maestro, channel, f"Is there news in {channel}?")
    maestro.llm.script(f"Is there news in {channel}", reply=answer)
    async with maestro.client(channel) as client:
        assert await result(maestro, run := await begin(maestro, ref)) == "completed"
        maestro.llm.script(f"Is there news in {channel}", reply=f"{answer}\nThere is.")
        await begin(maestro, ref, at=1)
        assert await heard(client) == "There is.", "the quiet answer was not posted before"
    assert maestro.query("SELECT * FROM deliveries WHERE job_id = ?", run) == []


async def test_while_a_run_is_not_over_the_next_is_skipped_and_counted(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Take your time.", Cron)
    maestro.llm.script("Take your time", delay=60, times=1)
    async with maestro.client(channel):
        first = await begin(maestro, ref)
        await maestro.asked("Take your time")
        assert await result(maestro, second := await begin(maestro, ref, at=1)) == (
            f"skipped: job {first} of this schedule is not over"
        )
        with maestro.operator() as operator:
            await operator.jobs.cancel(first, "operator")
        await maestro.ended(channel, "cancelled")
    assert maestro.query("SELECT * FROM queue WHERE id = ?", second) == []
    (schedule,) = maestro.query("SELECT * FROM cron_jobs WHERE name = ?", channel)
    assert (schedule["runs"], schedule["skipped"], schedule["failures"]) == (1, 1, 0)


async def test_a_failure_is_seen_by_operators_only_and_ten_in_a_row_pause_it(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "This cannot be answered.")
    maestro.llm.script("This cannot be answered", failure=Failure.status(400))
    async with maestro.client(channel) as client:
        for number in range(10):
            run = await begin(maestro, ref, at=number)
            with pytest.raises(WorkflowFailureError):
                await result(maestro, run)
        told = await heard(client)
        assert "failed 10 times in a row and is paused now" in told
        assert [frame["content"] for frame in client.frames if frame["type"] == "message"] == [told]
        assert await result(maestro, await begin(maestro, ref, at=10)) == "the schedule is paused"
    assert len(await maestro.ended(channel, "failed", 10)) == 10
    (schedule,) = maestro.query("SELECT * FROM heartbeat_configs WHERE name = ?", channel)
    assert (schedule["failures"], schedule["paused_reason"]) == (10, "failed 10 times in a row")


async def test_a_failed_run_is_resumed_and_restarted(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Answer at the second attempt.", Cron)
    maestro.llm.script("Answer at the second", failure=Failure.status(400), times=1)
    maestro.llm.script("Answer at the second", reply="Here it is.")
    maestro.llm.script("Answer at the second", failure=Failure.status(400), times=1)
    async with maestro.client(channel) as client:
        run = await begin(maestro, ref)
        await maestro.ended(channel, "failed")
        with maestro.operator() as operator:
            assert await operator.jobs.replay(run, ReplayMode.RESUME, "operator") == run
            assert await heard(client) == "Here it is."
            await maestro.ended(channel, "completed")
            again = await operator.jobs.replay(run, ReplayMode.RESTART, "operator")
        assert await heard(client) == "Here it is."
    assert (job(maestro, again)["kind"], job(maestro, again)["schedule"]) == ("cron", ref)


async def test_nobody_asked_so_no_word_of_a_conductor_acts(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Grow the team.", Cron, agent="boss")
    maestro.llm.script("Grow the team", reply="[CREATE_AGENT]\nslug: mallory\nname: Mallory\n[/CREATE_AGENT]")
    async with maestro.client(channel) as client:
        await begin(maestro, ref)
        assert await heard(client) == "The agent “mallory” was not created: no user asked for it."
    assert maestro.query("SELECT * FROM agents WHERE slug = 'mallory'") == []


async def test_it_gives_tasks_to_agents_that_are_for_everybody_and_hears_them(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Have it counted.")
    maestro.llm.script(
        "Have it counted",
        reply="[DELEGATE:eve] peek [/DELEGATE] [DELEGATE:bob wait] count the pumps [/DELEGATE] I asked.",
    )
    maestro.llm.script("count the pumps", reply="Three.")
    maestro.llm.script("It answered", reply="There are three pumps.")
    async with maestro.client(channel) as client:
        await begin(maestro, ref)
        first, last = await heard(client), await heard(client)
    assert "only some people may talk to that agent" in first
    assert last == "There are three pumps."
    (going_on,) = maestro.llm.matching("It answered:\n> Three.")
    assert "Have it counted." in "\n".join(going_on.texts)


@contextlib.asynccontextmanager
async def prices(*answers: str) -> AsyncIterator[str]:
    """Serve these answers one after the other, the last one again and again; give the address."""
    left = list(answers)

    async def answer(request: web.Request) -> web.Response:
        assert request.headers.get("Authorization") == "Bearer shown to that address alone"
        return web.Response(text=left.pop(0) if len(left) > 1 else left[0], content_type="application/json")

    app = web.Application()
    app.router.add_get("/prices", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/prices"
    finally:
        await runner.cleanup()


async def test_a_script_posts_without_a_model_and_asks_one_when_its_condition_holds(
    maestro: Instance, channel: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("shown to that address alone")
    ref = planned(maestro, channel, "Watch the price.")
    async with prices('{"sol": 142.3}', '{"sol": 99.5}', "no json") as url, maestro.client(channel) as client:
        condition = {"path": "sol", "op": "<", "value": 100, "prompt": "SOL fell to {{sol}}. What now?"}
        script = {"url": url, "bearer": f"file:{token}", "template": "SOL is {{sol}} USD", "condition": condition}
        maestro.change("UPDATE heartbeat_configs SET script = ? WHERE name = ?", json.dumps(script), channel)
        assert await result(maestro, run := await begin(maestro, ref)) == "completed"
        assert await heard(client) == "SOL is 142.30 USD"
        assert maestro.query("SELECT * FROM llm_calls WHERE job_id = ?", run) == []
        maestro.llm.script("SOL fell to 99.50", reply="Buy.")
        await begin(maestro, ref, at=1)
        assert {await heard(client), await heard(client)} == {"SOL is 99.50 USD", "Buy."}
        await maestro.ended(channel, "completed", 3)
        await begin(maestro, ref, at=2)
        (failed,) = await maestro.ended(channel, "failed")
    assert failed["error"] == "ScriptFailed"
    steps = maestro.query("SELECT detail FROM job_steps WHERE job_id = ? AND step = 'script'", failed["id"])
    assert steps[-1]["detail"] == "the server's answer is not usable: the body is not valid JSON"


async def test_a_script_does_not_reach_private_addresses(maestro: Instance, channel: str) -> None:
    ref = planned(maestro, channel, "Peek inside.")
    script = json.dumps({"url": "http://10.0.0.1/secrets", "template": "{{all}}"})
    maestro.change("UPDATE heartbeat_configs SET script = ? WHERE name = ?", script, channel)
    await begin(maestro, ref)
    (failed,) = await maestro.ended(channel, "failed")
    assert failed["error"] == "FetchRefused"

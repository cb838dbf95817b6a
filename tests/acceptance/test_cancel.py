"""Cancel really stops a job, whatever it is in the middle of."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.job import CANCELLED_NOTICE, Job, JobKind
from maestro.domain.messages import Address, OutgoingMessage
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("cancel")]

KEY = "a key that makes its holder a user and not the owner"
LONG = 60.0
LIMITED = "the-channel-of-a-limited-agent"
SLEEP = ("run_shell", {"command": "sleep 60"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    # A limit holds for one model of an account: nobody else here is kept waiting by the model that is limited.
    agents = [
        {"slug": "conductor", "role": "conductor", "tools": ["run_shell"]},
        {"slug": "limited", "model": "gpt-4.1-mini"},
    ]
    channels = [{"platform": "web", "channel": LIMITED, "agent": "limited"}]
    settings: dict[str, Any] = {"agents": agents, "channels": channels, "tools": {"shell": True}}
    async with running_instance(tmp_path_factory.mktemp("cancel"), web={"apiKey": KEY}, **settings) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


async def cancel(maestro: Instance, job_id: str) -> None:
    """Cancel as an operator does."""
    with maestro.operator() as operator:
        await operator.jobs.cancel(job_id, "ada")


async def test_a_tool_call_under_way_is_broken_off(maestro: Instance, channel: str) -> None:
    maestro.llm.script(channel, calls=[SLEEP], rounds=0)
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say(channel)
        await maestro.until(
            "SELECT 1 FROM tool_calls JOIN queue ON queue.id = tool_calls.job_id "
            "WHERE channel = ? AND tool_calls.state = 'started'",
            channel,
        )
        await cancel(maestro, maestro.jobs(channel)[0]["id"])
        [job] = await maestro.ended(channel, "cancelled")
        assert job["reason"] == "cancelled by ada"
        assert (await client.wait_for("message"))["content"] == CANCELLED_NOTICE
        assert await client.ask("go on") == "answer to: go on"
    assert len(maestro.llm.matching(channel)) == 1
    [run] = maestro.query("SELECT state FROM tool_calls WHERE job_id = ?", job["id"])
    assert run["state"] == "started", "nobody knows what came of it"


@pytest.mark.parametrize("kind", [JobKind.CRON, JobKind.HEARTBEAT, JobKind.WEBHOOK])
async def test_work_that_no_person_began_is_stopped_in_its_call(maestro: Instance, channel: str, kind: JobKind) -> None:
    maestro.llm.script(channel, delay=LONG)
    job_id = f"{kind}-{channel}"
    with maestro.operator() as operator, operator.store.begin() as tx:
        agent, place = tx.agents.get_agent_by_slug("conductor"), Address(platform="web", channel=channel)
        its_own: dict[str, Any] = {"kind": kind, "agent_id": agent.id, "task": channel, "created_at": tx.now}
        tx.jobs.add(Job(id=job_id, **its_own, **place.model_dump()))
    await maestro.asked(channel)
    await cancel(maestro, job_id)
    await maestro.ended(channel, "cancelled")
    assert maestro.llm.matching(channel)[0].outcome == "gone"


async def test_what_waits_for_an_account_is_cancelled(maestro: Instance) -> None:
    maestro.llm.script("wait for it", failure=Failure.status(429, {"retry-after": "3600"}))
    async with maestro.client(LIMITED, api_key=KEY) as client:
        await client.say("wait for it")
        await maestro.until("SELECT 1 FROM queue WHERE channel = ? AND status = 'waiting'", LIMITED)
        await cancel(maestro, maestro.jobs(LIMITED)[0]["id"])
    [job] = await maestro.ended(LIMITED, "cancelled")
    assert (job["reason"], job["waits_for"]) == ("cancelled by ada", None)


async def test_the_rest_of_a_long_answer_is_not_sent(maestro: Instance, channel: str) -> None:
    maestro.llm.script(channel, reply="A long answer. " * 20_000)

    async def stop(_: OutgoingMessage) -> None:
        maestro.taps.after.pop(channel)
        await cancel(maestro, maestro.jobs(channel)[0]["id"])

    maestro.taps.after[channel] = stop
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say(channel)
        [job] = await maestro.ended(channel, "cancelled")
    sent = maestro.query("SELECT state FROM deliveries WHERE job_id = ? ORDER BY seq", job["id"])
    assert len(sent) > 1
    assert [row["state"] for row in sent] == ["sent", *["abandoned"] * (len(sent) - 1)]

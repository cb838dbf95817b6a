"""The Temporal server dies alone, or together with Maestro, or is away for longer than a heartbeat may be."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once, assert_in_order
from tests.support.chatting import Person, person
from tests.support.crashing import MAESTRO, TEMPORAL, is_armed
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-server-killed")]

MOMENTS = (
    *("after accept", "after start", "after route done", "after context done", "before wire"),
    *("after model-1 answer", "after tags done", "before send", "after send", "after deliver done"),
)
"""What Temporal may know at its death; random moments are those of ``test_torture``."""
TOGETHER = ("after start", "after wire", "after send")

HEARTBEAT = 1.0
AWAY = 4 * HEARTBEAT
"""Seconds without a heartbeat after which Temporal surely has given an attempt up."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    """A Maestro that compares its jobs with Temporal all the time, so that a kill meets a comparison."""
    folder = tmp_path_factory.mktemp("maestro")
    jobs = {"dispatchSeconds": 0.1, "reconcileSeconds": 0.05}
    async with running(folder, llm, agents=[HELPER], jobs=jobs) as started:
        yield started


async def talked(maestro: Maestro, evidence: Evidence, somebody: Person, said: list[str]) -> list[Row]:
    """Return the jobs of these messages when they have ended and everything sent has arrived."""
    jobs = await evidence.ended(*said)
    await somebody.acknowledged(*said)
    await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(evidence, somebody, job, client_id)
    return jobs


def of(moment: str) -> list[str]:
    """The client ids of two messages about this moment."""
    return [f"{moment.replace(' ', '-')}.{suffix}" for suffix in "ab"]


@pytest.mark.parametrize("point", MOMENTS)
async def test_the_server_dies_alone(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    said = of(point)
    since = len(maestro.said)
    maestro.arm(point, victims=[TEMPORAL])
    async with person(maestro.web_port, f"alone-{said[0]}") as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await maestro.says("The Temporal server is ready", since)
        jobs = await talked(maestro, evidence, somebody, said)
    assert maestro.alive
    assert_in_order(evidence, somebody, llm, said)
    for job, client_id in zip(jobs, said, strict=True):
        assert evidence.calls(job["id"]) == {"answered": 1}
        assert len(llm.matching(client_id)) == 1


@pytest.mark.parametrize("point", TOGETHER)
async def test_both_die(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    said = [f"both-{client_id}" for client_id in of(point)]
    maestro.arm(point, victims=[TEMPORAL, MAESTRO])
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, said[0]) as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await crash
        await talked(maestro, evidence, somebody, said)
    assert_in_order(evidence, somebody, llm, said)
    assert [len(llm.matching(client_id)) for client_id in said] == [1 + (point == "after wire"), 1]


@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL], ids=["and-wakes", "and-dies"])
async def test_an_answer_is_bought_once_while_the_server_is_away(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, ending: signal.Signals
) -> None:
    """Temporal repeats a call whose heartbeats it missed; the call that is still running here is the one."""
    said = [f"away-{ending.name}.a"]
    llm.script(delay=AWAY + 2 * HEARTBEAT)
    async with person(maestro.web_port, said[0]) as somebody:
        await somebody.say(f"{said[0]} please, @helper")
        await asyncio.to_thread(llm.wait_for, lambda requests: len(requests) > 0)
        maestro.kill_temporal(signal.SIGSTOP)
        await asyncio.sleep(AWAY)
        maestro.kill_temporal(ending)
        (job,) = await talked(maestro, evidence, somebody, said)
    assert evidence.calls(job["id"]) == {"answered": 1}
    assert len(llm.matching(said[0])) == 1


async def test_an_answer_is_bought_once_by_a_process_that_slept(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    """As a laptop that is closed in the middle of an answer."""
    said = ["slept.a", "slept.b"]
    llm.script(match=said[0], delay=AWAY + HEARTBEAT, reply="after a while")
    async with person(maestro.web_port, said[0]) as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await asyncio.to_thread(llm.wait_for, lambda requests: len(requests) > 0)
        maestro.send_signal(signal.SIGSTOP)
        await asyncio.sleep(AWAY)
        maestro.send_signal(signal.SIGCONT)
        jobs = await talked(maestro, evidence, somebody, said)
    assert_in_order(evidence, somebody, llm, said)
    assert evidence.calls(jobs[0]["id"]) == {"answered": 1}
    assert len(llm.matching(said[0])) == 1


@pytest.mark.parametrize("point", ["after start", "after model-1 answer", "after send"])
async def test_temporal_lost_everything(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    """The store is the truth: with Temporal's database gone every open job goes on from its rows."""
    said = [f"lost-{client_id}" for client_id in of(point)]
    maestro.arm(point, victims=[TEMPORAL, MAESTRO])
    async with person(maestro.web_port, said[0]) as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await maestro.died()
        for file in maestro.data.glob("temporal.db*"):
            file.unlink()
        await maestro.start()
        await talked(maestro, evidence, somebody, said)
    assert_in_order(evidence, somebody, llm, said)
    assert [len(llm.matching(client_id)) for client_id in said] == [1, 1]

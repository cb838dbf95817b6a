"""Messages of one channel are answered one after another in the order they came, those of many channels together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.chaos.promise import assert_answered_once, assert_in_order
from tests.support.chatting import Person, person
from tests.support.crashing import MAESTRO, TEMPORAL
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-order")]

TEN = 10
DELAYS = (1.0, 0.0, 0.5)
"""Seconds of the model, in turns: an answer that comes sooner must not overtake."""
GAP = 0.09
"""Seconds between two messages, so that ten come within one."""
SLOW = 4.0
"""Seconds of each model call where ten channels talk at once: enough for all of them to be in flight."""
ENDLESS = 60.0
"""Seconds of a model call that only a death ends."""


def ten(name: str) -> list[str]:
    """Client ids of ten messages."""
    return [f"{name}-{number}." for number in range(TEN)]


async def say_ten(somebody: Person, llm: LLMServer, said: list[str]) -> None:
    """Say ten things within a second; each has its own delay."""
    for number, client_id in enumerate(said):
        llm.script(match=client_id, delay=DELAYS[number % len(DELAYS)], reply="so you say: {last}")
        await somebody.say(f"{client_id} please, @helper")
        await asyncio.sleep(GAP)


async def all_answered(evidence: Evidence, somebody: Person, said: list[str]) -> list[Row]:
    """Return the jobs when all have ended, each answered once."""
    jobs = await evidence.ended(*said)
    await somebody.acknowledged(*said)
    await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(evidence, somebody, job, client_id)
    return jobs


async def test_ten_messages_in_one_second(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    said = ten("calm")
    async with person(maestro.web_port, "calm") as somebody:
        await say_ten(somebody, llm, said)
        await all_answered(evidence, somebody, said)
    assert_in_order(evidence, somebody, llm, said)
    assert llm.in_flight_peak("calm-") == 1
    assert len(llm.matching("calm-")) == TEN


@pytest.mark.parametrize("point", ["after wire", "before send"])
async def test_ten_messages_while_everything_is_killed(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    """Everything dies with the first message, while others still arrive, and again in the middle."""
    name = f"killed-{point.replace(' ', '-')}"
    said = ten(name)
    maestro.arm(point, victims=[TEMPORAL, MAESTRO])
    first = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, name) as somebody:
        await say_ten(somebody, llm, said)
        await first
        await somebody.answered(*said[: TEN // 2])
        maestro.kill_temporal()
        await maestro.kill()
        await maestro.start()
        jobs = await all_answered(evidence, somebody, said)
    assert_in_order(evidence, somebody, llm, said)
    interrupted = sum(evidence.calls(job["id"])["interrupted"] for job in jobs)
    assert interrupted <= 2  # one for each death
    assert len(llm.matching(name)) <= TEN + interrupted


@asynccontextmanager
async def channels(maestro: Maestro, name: str) -> AsyncIterator[list[Person]]:
    """Ten people in ten channels."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(person(maestro.web_port, f"{name}-{number}")) for number in range(TEN)]


async def test_ten_channels_overlap(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    said = ten("wide")
    llm.script(match="wide-", delay=SLOW, reply="so you say: {last}")
    async with channels(maestro, "wide") as people:
        for somebody, client_id in zip(people, said, strict=True):
            await somebody.say(f"{client_id} please, @helper")
        for somebody, client_id in zip(people, said, strict=True):
            await all_answered(evidence, somebody, [client_id])
    assert llm.in_flight_peak("wide-") == TEN
    assert len(llm.matching("wide-")) == TEN


async def test_ten_channels_while_everything_is_killed(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    """Ten calls are in flight when everything dies: each is repeated once, and each channel has one answer."""
    said = ten("felled")
    llm.script(match="felled-", delay=ENDLESS)
    async with channels(maestro, "felled") as people:
        for somebody, client_id in zip(people, said, strict=True):
            await somebody.say(f"{client_id} please, @helper")
        await asyncio.to_thread(llm.wait_for, lambda requests: len(requests) == TEN)
        maestro.kill_temporal()
        await maestro.kill()
        llm.script(match="felled-", reply="so you say: {last}")
        await maestro.start()
        for somebody, client_id in zip(people, said, strict=True):
            (job,) = await all_answered(evidence, somebody, [client_id])
            assert evidence.calls(job["id"]) == {"interrupted": 1, "answered": 1}
    assert len(llm.matching("felled-")) == 2 * TEN
    assert len({request.last_user for request in llm.requests[TEN:]}) == TEN

"""The process dies while messages are collected into one turn, or while one interrupts another.

See docs/decisions.md: busy agents.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from maestro.domain.jobs.busy import INTERRUPTED
from tests.chaos.promise import assert_answered_together
from tests.support.chatting import Person, person
from tests.support.crashing import is_armed
from tests.support.database import change
from tests.support.evidence import Evidence
from tests.support.llm_server import Failure, LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-busy")]

HASTY = "hasty"
"""How channels begin in which a newer message interrupts."""

COLLECTING = (
    *("before route done", "after route done", "before conversation done", "after conversation done"),
    *("after wire", "after model-1 answer", "after send"),
)
"""Where the process of a message dies that answers for two others."""
INTERRUPTING = (
    *("after accept", "before close-1 done", "after close-1 done", "before route done", "after route done"),
    "before conversation done",
)
"""Where it dies after one that is being answered was interrupted."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    """A Maestro that collects, and in some channels lets messages interrupt."""
    agents = [{"slug": "helper", "role": "conductor"}]
    channels = [
        {"platform": "web", "channel": f"{HASTY}-{named(point)}", "agent": "helper", "busy": "interrupt"}
        for point in INTERRUPTING
    ]
    folder = tmp_path_factory.mktemp("maestro")
    async with running(folder, llm, agents=agents, channels=channels, routing={"busy": "collect"}) as started:
        yield started


def named(point: str) -> str:
    return point.replace(" ", "-")


async def hold(somebody: Person, llm: LLMServer, text: str) -> None:
    """Say something that the model does not answer, and return when it was asked."""
    llm.script(text, failure=Failure.silence())
    await somebody.say(text)
    async with asyncio.timeout(60):
        while not llm.matching(text):  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.02)


def stop(evidence: Evidence, client_id: str) -> None:
    """Ask a job to stop as a person does, but without a message of its own, whose steps would reach points too."""
    which = "SELECT job_id FROM inbox WHERE message_id LIKE ?"
    change(evidence.path, (f"UPDATE queue SET stop_requested = TRUE WHERE id IN ({which})", f"%:{client_id}"))


@pytest.mark.parametrize("point", COLLECTING)
async def test_a_collected_turn_survives_a_crash(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    said = [f"{named(point)}-{name}" for name in ("one", "two", "three")]
    async with person(maestro.web_port, named(point)) as somebody:
        await hold(somebody, llm, f"{named(point)}-hold")
        for client_id in said:
            await somebody.say(client_id)
        await somebody.acknowledged(*said)
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point))
        stop(evidence, f"{named(point)}-hold")
        await crash
        host, *_ = await evidence.ended(*said)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(host["id"])))
    assert not is_armed(maestro.data)
    assert_answered_together(evidence, somebody, host, said)
    prompts = [one.texts[1:] for one in llm.matching(said[-1])]
    assert prompts == [[f"{named(point)}-hold", *said]] * (1 + (point == "after wire"))
    merged = evidence.rows("SELECT status FROM queue WHERE merged_into = ?", host["id"])
    assert [job["status"] for job in merged] == ["merged", "merged"]


@pytest.mark.parametrize("point", INTERRUPTING)
async def test_an_interruption_survives_a_crash(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    older, newer = f"{named(point)}-older", f"{named(point)}-newer"
    async with person(maestro.web_port, f"{HASTY}-{named(point)}") as somebody:
        await hold(somebody, llm, older)
        (row,) = evidence.rows("SELECT job_id FROM inbox WHERE message_id LIKE ?", f"%:{older}")
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point))
        await somebody.say(newer)
        await crash
        host, *_ = await evidence.ended(newer, older)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(host["id"])))
    assert_answered_together(evidence, somebody, host, [older, newer])
    (interrupted,) = evidence.rows("SELECT * FROM queue WHERE id = ?", row["job_id"])
    assert (interrupted["status"], interrupted["reason"]) == ("cancelled", INTERRUPTED)
    assert evidence.deliveries(interrupted["id"]) == []
    assert [one.texts[1:] for one in llm.matching(newer)] == [[older, newer]]

"""A step that kills its process again and again is given up, visibly, and the lane goes on (decision 9)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from maestro.settings import JobSettings
from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once, assert_delivered_once, assert_journal_closed
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import Failure, LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-quarantine")]

LIMIT = 3
"""Crashes in one step here; ten is the default, and asserted below."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    """A Maestro that gives a step up sooner."""
    jobs = {"dispatchSeconds": 0.1, "reconcileSeconds": 0.5, "crashLimit": LIMIT}
    async with running(tmp_path_factory.mktemp("maestro"), llm, agents=[HELPER], jobs=jobs) as started:
        yield started


async def crash_through(maestro: Maestro, evidence: Evidence, point: str) -> tuple[Person, Row, Row]:
    """Let a message crash the process at a point until its step is given up; return its job and that of the next."""
    said = [f"{point.replace(' ', '-')}.{suffix}" for suffix in ("poison", "next")]
    maestro.arm(point, times=LIMIT)
    crashes = asyncio.create_task(crash_again_and_again(maestro, point))
    async with person(maestro.web_port, f"channel-{said[0]}") as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await crashes
        poison, following = await evidence.ended(*said)
        await somebody.acknowledged(*said)
        sent = [*evidence.deliveries(poison["id"]), *evidence.deliveries(following["id"])]
        await somebody.has(*(chunk["id"] for chunk in sent if chunk["state"] == "sent"))
    assert_answered_once(evidence, somebody, following, said[1])
    assert_journal_closed(evidence, poison)
    assert poison["completed_at"] <= following["started_at"]
    assert evidence.lanes() == []
    return somebody, poison, following


async def crash_again_and_again(maestro: Maestro, point: str) -> None:
    """Start it again as often as it dies."""
    for _ in range(LIMIT):
        await maestro.crash_at(point)


def attempts(evidence: Evidence, job: Row, step: str) -> list[str]:
    """The states of the attempts at one step."""
    return [state for name, state in evidence.steps(job["id"]) if name == step]


@pytest.mark.parametrize(
    ("point", "step"),
    [("after route begins", "route"), ("before tags done", "tags"), ("before wire", "model-1")],
)
async def test_a_step_that_crashes_too_often_is_given_up(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str, step: str
) -> None:
    somebody, poison, _ = await crash_through(maestro, evidence, point)
    assert (poison["status"], poison["error"]) == ("failed", "Quarantined")
    assert step in poison["reason"]
    assert attempts(evidence, poison, step) == ["interrupted"] * LIMIT + ["failed"]
    (notice,) = evidence.deliveries(poison["id"])
    assert_delivered_once(evidence, somebody, poison, notice["content"])
    assert len(llm.matching(".poison")) == (1 if step == "tags" else 0)


async def test_a_delivery_that_crashes_too_often_is_given_up(maestro: Maestro, evidence: Evidence) -> None:
    """The person has seen the first chunk, once; nobody can be sure of that, and nothing more is sent, no notice."""
    somebody, poison, _ = await crash_through(maestro, evidence, "after send")
    assert (poison["status"], poison["error"]) == ("failed", "Quarantined")
    chunks = evidence.deliveries(poison["id"])
    assert [chunk["state"] for chunk in chunks] == ["unconfirmed", "abandoned", "abandoned"]
    ids = [chunk["id"] for chunk in chunks]
    assert [frame["id"] for frame in somebody.replies if frame["id"] in ids] == ids[:1]


async def test_a_notice_that_crashes_too_often_does_not_hold_up_the_lane(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    llm.script(match=".poison", failure=Failure.status(400))
    _, poison, _ = await crash_through(maestro, evidence, "after notice begins")
    assert (poison["status"], poison["error"]) == ("failed", "BadRequest")
    assert evidence.deliveries(poison["id"]) == []


async def test_a_job_that_cannot_even_be_closed_is_closed_by_its_next_run(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    llm.script(match=".poison", failure=Failure.status(400))
    somebody, poison, _ = await crash_through(maestro, evidence, "after close-1 begins")
    assert (poison["status"], poison["error"], poison["run"]) == ("failed", "BadRequest", 2)
    (notice,) = evidence.deliveries(poison["id"])
    assert_delivered_once(evidence, somebody, poison, notice["content"])


async def test_ten_crashes_are_the_limit() -> None:
    assert JobSettings().crash_limit == 10

"""A step that kills its process again and again is given up, visibly, and the lane goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from maestro.domain.settings.jobs import JobSettings
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


@dataclass
class Poison:
    """A message that lets the process die at a point until its step is given up, and the one behind it in its lane."""

    maestro: Maestro
    evidence: Evidence
    point: str
    step: str
    off_record: int = 0
    """Deaths at which the attempt was not on record: a step that only writes is recorded by its end, in one life."""

    @property
    def ids(self) -> list[str]:
        """The client ids of both messages."""
        return [f"{self.point.replace(' ', '-')}.{suffix}" for suffix in ("poison", "next")]

    async def crash(self) -> tuple[Person, Row, Row]:
        """Return who said both messages, and their jobs."""
        self.maestro.arm(self.point, times=LIMIT)
        crashes = asyncio.create_task(self._crash_again_and_again())
        async with person(self.maestro.web_port, f"channel-{self.ids[0]}") as somebody:
            for client_id in self.ids:
                await somebody.say(f"{client_id} please, @helper")
            await crashes
            poison, following = await self.evidence.ended(*self.ids)
            await somebody.acknowledged(*self.ids)
            sent = [*self.evidence.deliveries(poison["id"]), *self.evidence.deliveries(following["id"])]
            await somebody.has(*(chunk["id"] for chunk in sent if chunk["state"] == "sent"))
        assert_answered_once(self.evidence, somebody, following, self.ids[1])
        assert_journal_closed(self.evidence, poison)
        assert poison["completed_at"] <= following["started_at"]
        assert self.evidence.lanes() == []
        return somebody, poison, following

    async def _crash_again_and_again(self) -> None:
        """Start it again as often as it dies: as often as is counted, and once more for each death off the record."""
        deaths = 0
        while deaths < LIMIT + self.off_record:
            deaths += 1
            await self.maestro.crash_at(self.point, self._look)

    def _look(self) -> None:
        (job,) = self.evidence.jobs(self.ids[0])
        if (self.step, "running") not in self.evidence.steps(job["id"]) and not self.off_record:
            self.off_record = 1
            self.maestro.arm(self.point, times=LIMIT)


def attempts(evidence: Evidence, job: Row, step: str) -> list[str]:
    """The states of the attempts at one step."""
    return [state for name, state in evidence.steps(job["id"]) if name == step]


@pytest.mark.parametrize(
    ("point", "step"), [("before route done", "route"), ("before tags done", "tags"), ("before wire", "model-1")]
)
async def test_a_step_that_crashes_too_often_is_given_up(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str, step: str
) -> None:
    poisoned = Poison(maestro, evidence, point, step)
    somebody, poison, _ = await poisoned.crash()
    assert (poison["status"], poison["error"]) == ("failed", "Quarantined")
    assert step in poison["reason"]
    assert attempts(evidence, poison, step) == ["interrupted"] * LIMIT + ["failed"]
    (notice,) = evidence.deliveries(poison["id"])
    assert_delivered_once(evidence, somebody, poison, notice["content"])
    if step == "route":
        assert llm.matching(".poison") == []
    if step == "tags":
        assert len(llm.matching(".poison")) == 1 + evidence.calls(poison["id"])["interrupted"]
        assert evidence.calls(poison["id"])["interrupted"] <= poisoned.off_record


async def test_a_delivery_that_crashes_too_often_is_given_up(maestro: Maestro, evidence: Evidence) -> None:
    """The person has seen the first chunk, once; nobody can be sure of that, and nothing more is sent, no notice."""
    somebody, poison, _ = await Poison(maestro, evidence, "after send", "deliver").crash()
    assert (poison["status"], poison["error"]) == ("failed", "Quarantined")
    chunks = evidence.deliveries(poison["id"])
    assert [chunk["state"] for chunk in chunks] == ["unconfirmed", "abandoned", "abandoned"]
    ids = [chunk["id"] for chunk in chunks]
    assert [frame["id"] for frame in somebody.replies if frame["id"] in ids] == ids[:1]


async def test_a_notice_that_crashes_too_often_does_not_hold_up_the_lane(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    llm.script(match=".poison", failure=Failure.status(400))
    _, poison, _ = await Poison(maestro, evidence, "after notice begins", "notice").crash()
    assert (poison["status"], poison["error"]) == ("failed", "BadRequest")
    assert evidence.deliveries(poison["id"]) == []


async def test_a_job_that_cannot_even_be_closed_is_closed_by_its_next_run(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    llm.script(match=".poison", failure=Failure.status(400))
    somebody, poison, _ = await Poison(maestro, evidence, "before close-1 done", "close-1").crash()
    assert (poison["status"], poison["error"], poison["run"]) == ("failed", "BadRequest", 2)
    (notice,) = evidence.deliveries(poison["id"])
    assert_delivered_once(evidence, somebody, poison, notice["content"])


async def test_ten_crashes_are_the_limit() -> None:
    assert JobSettings().crash_limit == 10

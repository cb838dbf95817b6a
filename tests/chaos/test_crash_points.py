"""The process dies at every point at which something is done but not recorded, or recorded but not done.

The points are those of a recorded run, so that none is forgotten when the path of a message changes. What a point must
show follows from what was committed, and what the model had been asked, when the process died there.
"""

import asyncio
import os
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.chaos.promise import (
    Bought,
    assert_answered_once,
    assert_books_closed,
    assert_bought_once,
    assert_delivered_once,
    assert_in_order,
    assert_journal_closed,
)
from tests.support.chatting import Person, person
from tests.support.crash_points import HOUSEKEEPING, Recording
from tests.support.crashing import forget_recording, is_armed, notes_of, recording
from tests.support.database import table_names
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import Failure, LLMServer
from tests.support.running import Maestro

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = [{"slug": "helper"}, {"slug": "handy", "tools": ["note"]}]

ALL = "MAESTRO_TEST_ALL_CRASH_POINTS"
"""Set to anything, each point has its crash; else one of those between two changes of the store or the world."""


@dataclass(frozen=True)
class World:
    """One Maestro, what it leaves in its store, and its model."""

    maestro: Maestro
    evidence: Evidence
    llm: LLMServer

    def prepare(self, kind: str, client_id: str) -> None:
        """Let the model do to a message what makes it one of its kind."""
        if kind == "failing":
            self.llm.script(match=client_id, failure=Failure.status(400))
        elif kind == "tools":
            self.llm.script(match=client_id, calls=(("note", f'{{"text": "{client_id}"}}'),), rounds=0)

    async def record(self, kind: str, name: str = "recorded") -> Recording:
        """Return what happens when a message of a kind is answered without a crash."""
        # Said once only, for the same message again would be recognised, and nothing would happen.
        client_id = f"{name}-{kind}-{self.evidence.rows('SELECT count(*) AS n FROM inbox')[0]['n']}."
        self.prepare(kind, client_id)
        forget_recording(self.maestro.data)
        async with person(self.maestro.web_port, f"channel-{client_id}") as somebody:
            await somebody.say(TEXTS[kind].format(client_id), client_id)
            await somebody.acknowledged(client_id)
            await self.evidence.ended(client_id)
        return recording(self.maestro.data)


@pytest_asyncio.fixture(loop_scope="module")
async def world(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> World:
    return World(maestro, evidence, llm)


TEXTS = {
    "long": "{} please, @helper",
    "failing": "{} please, @helper",
    "tools": "{} please, @handy",
    "control": "/status",
    "dropped": "{} and no agent is mentioned",
}
"""What is said, by kind of message; an answer is of three chunks."""

SHARES = {"long": 2, "failing": 1, "tools": 1, "control": 1, "dropped": 1}
"""The number of tests that share the points of a kind."""


async def points_of(world: World, kind: str) -> list[str]:
    """Return the points of a kind of message: all of a long answer, of the others what is not the same there.

    What the first message writes for all that follow, such as a text that prompts share, is no point of the next one.
    """
    await world.record(kind, "first")
    recorded = whole = await world.record("long")
    if kind != "long":
        recorded = (await world.record(kind)).beside(whole)
    return recorded.points() if os.environ.get(ALL) else recorded.sample()


def share_of(point: str, shares: int) -> int:
    """Return the test that a point belongs to: by its name, for two recordings are not the same in every detail.

    A point that two tests had would be met by the same messages twice, and nothing happens to those.
    """
    return zlib.crc32(point.encode()) % shares


@pytest.mark.parametrize(("kind", "share"), [(kind, n) for kind, shares in SHARES.items() for n in range(shares)])
async def test_a_message_survives_a_crash_at_any_point(
    world: World, subtests: pytest.Subtests, kind: str, share: int
) -> None:
    points = [point for point in await points_of(world, kind) if share_of(point, SHARES[kind]) == share]
    for point in points:
        with subtests.test(point=point):
            await world.maestro.revive()
            await CHECKS[kind](world, Crash(kind, point))
    assert points


@dataclass(frozen=True)
class Crash:
    """A death at a point, and the messages that it meets."""

    kind: str
    point: str

    def named(self, suffix: str) -> str:
        """Return a client's id for a message about this point."""
        return f"{re.sub('[^a-z0-9]+', '-', f'{self.kind}-{self.point}')}.{suffix}"


Talk = tuple[Person, list[Row], Bought]


async def talk_through(world: World, crash: Crash, **said: str) -> Talk:
    """Say things, by client id, in a new channel while the point is armed; return when all jobs have ended.

    What the first message had cost when the process died comes with them.
    """
    maestro, evidence, first = world.maestro, world.evidence, next(iter(said))
    costs: list[Bought] = []
    maestro.arm(crash.point)
    crashing = asyncio.create_task(
        maestro.crash_at(crash.point, lambda: costs.append(Bought.read(evidence, world.llm, first)))
    )
    async with person(maestro.web_port, f"channel-{first}") as somebody:
        for client_id, content in said.items():
            await somebody.say(content, client_id)
        await crashing
        jobs = await evidence.ended(*said)
        await somebody.acknowledged(*said)
        await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    return somebody, jobs, costs[0]


async def a_long_answer(world: World, crash: Crash) -> None:
    said = [crash.named("a"), crash.named("b")]
    texts = {client_id: TEXTS["long"].format(client_id) for client_id in said}
    somebody, jobs, cost = await talk_through(world, crash, **texts)
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(world.evidence, somebody, job, client_id)
    assert_in_order(world.evidence, somebody, world.llm, said)
    assert_bought_once(world.evidence, world.llm, said[0], cost)
    assert len(world.llm.matching(said[1])) == 1


async def a_failure(world: World, crash: Crash) -> None:
    said = [crash.named("refused"), crash.named("next")]
    world.prepare("failing", said[0])
    texts = {client_id: TEXTS["failing"].format(client_id) for client_id in said}
    somebody, (failed, answered), cost = await talk_through(world, crash, **texts)
    assert_failed_once(world.evidence, somebody, failed)
    assert_answered_once(world.evidence, somebody, answered, said[1])
    assert len(somebody.replies_to(said[0])) == 1
    assert Bought.read(world.evidence, world.llm, said[0]).unanswered == cost.unanswered
    # A refusal that Temporal was not told of is no answer to hold: the model is asked once more.
    assert len(world.llm.matching(said[0])) <= cost.requests + 1
    assert len(world.llm.matching(said[1])) == 1


def assert_failed_once(evidence: Evidence, somebody: Person, job: Row) -> None:
    """The reason is kept, the person told once, the lane is free."""
    assert (job["status"], job["error"]) == ("failed", "BadRequest")
    assert evidence.answers(job["id"]) == []
    (notice,) = evidence.deliveries(job["id"])
    assert notice["purpose"] == "notice"
    assert_delivered_once(evidence, somebody, job, notice["content"])
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)


async def an_answer_with_tools(world: World, crash: Crash) -> None:
    """The effect of a tool that may not be repeated happens once; once it has begun, its row says what is known."""
    client_id = crash.named("tools")
    world.prepare("tools", client_id)
    somebody, (job,), cost = await talk_through(world, crash, **{client_id: TEXTS["tools"].format(client_id)})
    assert job["status"] == "completed"
    (answer,) = world.evidence.answers(job["id"])
    assert_delivered_once(world.evidence, somebody, job, answer)
    assert_journal_closed(world.evidence, job)
    assert_books_closed(world.evidence, job)
    assert_bought_once(world.evidence, world.llm, client_id, cost)
    (tool,) = world.evidence.rows("SELECT state FROM tool_calls WHERE job_id = ?", job["id"])
    notes = notes_of(world.maestro.data).read_text().split().count(client_id)
    assert (tool["state"], notes) in {("done", 1), ("unknown", 0), ("unknown", 1)}


async def a_reply_of_its_own(world: World, crash: Crash) -> None:
    client_id = crash.named("status")
    somebody, (job,), _ = await talk_through(world, crash, **{client_id: TEXTS["control"]})
    assert job["status"] == "completed"
    assert_delivered_once(world.evidence, somebody, job, job["notice"])
    assert_journal_closed(world.evidence, job)


async def a_dropped_message(world: World, crash: Crash) -> None:
    client_id = crash.named("dropped")
    somebody, (job,), _ = await talk_through(world, crash, **{client_id: TEXTS["dropped"].format(client_id)})
    assert job["status"] == "dropped"
    assert job["reason"]
    assert world.evidence.user_rows(client_id) == (1, 0)
    assert somebody.replies == []
    assert_journal_closed(world.evidence, job)


CHECKS: dict[str, Callable[[World, Crash], Awaitable[None]]] = {
    "long": a_long_answer,
    "failing": a_failure,
    "tools": an_answer_with_tools,
    "control": a_reply_of_its_own,
    "dropped": a_dropped_message,
}
"""What must be true after a crash, by kind of message."""


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_recording_misses_no_write(world: World, kind: str) -> None:
    """What the tables have more after a message than before it is what the recorded transactions say."""
    await world.record(kind, "first")  # what is written once in a life is no part of a message
    before = sizes(world.evidence)
    recorded = await world.record(kind, "counted")
    after = sizes(world.evidence)
    counted = Counter[str]()
    for change in (change for commit in recorded.commits for change in commit.changes):
        counted[change.table] += {"insert": 1, "delete": -1}.get(change.verb, 0)
    assert {table: more for table in after if (more := after[table] - before[table])} == {
        table: more for table, more in counted.items() if more
    }


def sizes(evidence: Evidence) -> dict[str, int]:
    """Return how many rows each table has."""
    unwatched = ("sqlite_", "memory_index", *HOUSEKEEPING)
    names = [name for name in table_names(evidence.path) if not name.startswith(unwatched)]
    return {name: evidence.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in names}


@pytest.mark.parametrize("kind", TEXTS)
async def test_every_transaction_and_every_effect_has_its_points(world: World, kind: str) -> None:
    recorded = await world.record(kind, "complete")
    points = recorded.points()
    for moment in recorded.moments:
        names = {moment} if isinstance(moment, str) else {f"before {moment.name}", f"after {moment.name}"}
        assert names <= set(points)
    inside = sum(len(commit.changes) - 1 for commit in recorded.commits)
    assert len(points) == len(recorded.moments) + len(recorded.commits) + inside
    assert [point in gap for point, gap in zip(recorded.sample(), recorded.gaps(), strict=True)].count(False) == 0

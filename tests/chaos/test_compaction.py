"""The process dies while a long conversation is compacted: what it bought for that is not bought again either."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from itertools import product

import pytest
import pytest_asyncio

from maestro.domain.conversations.compaction import INSTRUCTIONS
from maestro.domain.llm.prompts import CallPurpose
from tests.chaos.promise import assert_answered_once
from tests.chaos.test_crash_points import ANSWERING, HOUSEKEEPING
from tests.support.chatting import Person, person
from tests.support.crashing import forget_passed, is_armed, passed
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-compaction")]

FORGETFUL = {"slug": "helper", "role": "conductor", "model": "openai/nobody-knows-this-model"}
"""Its window is 8,192 tokens, so a conversation may take 6,144."""

FILLER = " ".join(["seven words that mean nothing at all"] * 90)
"""About 850 tokens."""
ROUNDS = 7
"""So many messages of this length fit; the next one makes compaction due."""
GOING = 5
"""So many messages, questions and answers, go then."""

FACTS = INSTRUCTIONS[CallPurpose.FACTS]
SUMMARY = INSTRUCTIONS[CallPurpose.SUMMARY]

STEPS = (
    *("compaction begins", "facts request", "facts answer", "memory.learn"),
    *("summary request", "summary answer", "compaction done"),
)
POINTS = {f"{when} {name}" for when, name in product(("before", "after"), STEPS)}
IN_FLIGHT = {"after facts request", "before facts answer", "after summary request", "before summary answer"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    """A Maestro whose agent has a small model."""
    async with running(tmp_path_factory.mktemp("maestro"), llm, agents=[FORGETFUL]) as started:
        yield started


@pytest.fixture(autouse=True)
def scripted(maestro: Maestro, llm: LLMServer) -> None:
    """Let the model answer briefly, and extract and summarise as it should."""
    llm.reset()
    llm.script(reply="as you say")
    llm.script(SUMMARY, reply="They spoke of nothing at all.")


async def outgrow(somebody: Person, llm: LLMServer) -> str:
    """Talk until the next message makes compaction due; return what that is called."""
    name = somebody.channel
    # A fact that resembles one of another conversation would be refused, and nothing written.
    fact = sha256(name.encode()).hexdigest()
    llm.script(FACTS, reply=f"[MEMORY:user_preference] {fact} [/MEMORY]")
    for number in range(ROUNDS):
        await somebody.say(f"{name}-{number}. {FILLER}")
        await somebody.answered(f"{name}-{number}.")
    return f"{name}-last."


@pytest.mark.parametrize("point", sorted(POINTS))
async def test_a_compaction_survives_a_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    async with person(maestro.web_port, point.replace(" ", "-")) as somebody:
        last = await outgrow(somebody, llm)
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point))
        await somebody.say(f"{last} {FILLER}")
        await crash
        (job,) = await evidence.ended(last)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    assert_answered(evidence, somebody, job, last, point in IN_FLIGHT)
    for purpose, instruction in ((CallPurpose.FACTS, FACTS), (CallPurpose.SUMMARY, SUMMARY)):
        asked = [one for one in llm.matching(instruction) if f"{somebody.channel}-0." in one.last_user]
        assert len(asked) == 1 + (point == f"before {purpose} answer")
    assert len(llm.matching(last)) == 1


def assert_answered(evidence: Evidence, somebody: Person, job: Row, last: str, in_flight: bool) -> None:
    """One answer, one compaction, every message either in the conversation or in its archive, no fact twice."""
    calls = evidence.calls(job["id"])
    assert calls == {"answered": 3} | ({"interrupted": 1} if in_flight else {})
    assert_answered_once(evidence, somebody, job, last)
    compactions = evidence.rows("SELECT * FROM compactions WHERE conversation_id = ?", job["conversation_id"])
    assert len(compactions) == 1
    kept, gone = (
        [
            row["id"]
            for row in evidence.rows(f"SELECT id FROM {table} WHERE conversation_id = ?", job["conversation_id"])
        ]
        for table in ("messages", "messages_archive")
    )
    assert len(gone) == GOING
    assert len(kept) == 2 * (ROUNDS + 1) - GOING
    assert not set(kept) & set(gone)
    fact = sha256(somebody.channel.encode()).hexdigest()
    assert len(evidence.rows("SELECT id FROM memory_facts WHERE content = ?", fact)) == 1


async def test_every_point_has_its_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    """A step that is added to compaction without its crash points makes this fail."""
    async with person(maestro.web_port, "clean") as somebody:
        last = await outgrow(somebody, llm)
        forget_passed(maestro.data)
        await somebody.say(f"{last} {FILLER}")
        await evidence.ended(last)
    found = {point for point in passed(maestro.data) if not point.endswith(HOUSEKEEPING)}
    assert found - ANSWERING == POINTS

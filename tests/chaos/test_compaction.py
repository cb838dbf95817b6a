"""The process dies while a long conversation is compacted: what it bought for that is not bought again either."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
import pytest_asyncio

from maestro.domain.conversations.conversation import INSTRUCTIONS
from maestro.domain.llm.prompts import CallPurpose
from tests.chaos.promise import assert_answered_once
from tests.support.chatting import Person, person
from tests.support.crash_points import Recording
from tests.support.crashing import forget_recording, is_armed, recording
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


async def outgrow(somebody: Person, evidence: Evidence, llm: LLMServer) -> str:
    """Talk until the next message makes compaction due, which finds its lane free; return what that is called."""
    name = somebody.channel
    # A fact that resembles one of another conversation would be refused, and nothing written.
    fact = sha256(name.encode()).hexdigest()
    llm.script(FACTS, reply=f"[MEMORY:user_preference] {fact} [/MEMORY]")
    for number in range(ROUNDS):
        await somebody.say(f"{name}-{number}. {FILLER}")
        await somebody.answered(f"{name}-{number}.")
    await evidence.ended(*(f"{name}-{number}." for number in range(ROUNDS)))
    return f"{name}-last."


async def record(maestro: Maestro, evidence: Evidence, somebody: Person, said: str) -> Recording:
    """Return what happens when a message is answered without a crash."""
    forget_recording(maestro.data)
    await somebody.say(f"{said} {FILLER}")
    await evidence.ended(said)
    return recording(maestro.data)


async def test_a_compaction_survives_a_crash_at_any_point(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, subtests: pytest.Subtests
) -> None:
    """What a compaction adds to a message without one is what is recorded only with it."""
    async with person(maestro.web_port, "recorded") as somebody:
        last = await outgrow(somebody, evidence, llm)
        compacted = await record(maestro, evidence, somebody, last)
        without = await record(maestro, evidence, somebody, "recorded-without.")
    points = compacted.beside(without).sample()
    assert any(purpose in point for purpose in (CallPurpose.FACTS, CallPurpose.SUMMARY) for point in points)
    for number, point in enumerate(points):
        with subtests.test(point=point):
            await maestro.revive()
            await compacted_through(maestro, evidence, llm, f"point-{number}", point)


async def compacted_through(maestro: Maestro, evidence: Evidence, llm: LLMServer, channel: str, point: str) -> None:
    """Let a compaction be due, and the process die in it."""
    calls: Counter[tuple[str, str]] = Counter()
    async with person(maestro.web_port, channel) as somebody:
        last = await outgrow(somebody, evidence, llm)
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point, lambda: calls.update(calls_of(evidence, llm, last))))
        await somebody.say(f"{last} {FILLER}")
        await crash
        (job,) = await evidence.ended(last)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    in_flight = sum(calls[purpose, "sent"] for purpose in CallPurpose)
    assert_answered(evidence, somebody, job, last, in_flight > 0)
    for purpose, instruction in ((CallPurpose.FACTS, FACTS), (CallPurpose.SUMMARY, SUMMARY)):
        asked = [one for one in llm.matching(instruction) if f"{channel}-0." in one.last_user]
        assert len(asked) == calls[purpose, "asked"] + 1 - calls[purpose, "answered"]
    assert len(llm.matching(last)) == 1


def calls_of(evidence: Evidence, llm: LLMServer, client_id: str) -> Counter[tuple[str, str]]:
    """Count the calls of a message by purpose and state, and the requests that the model has had by purpose."""
    sql = "SELECT purpose, state FROM llm_calls JOIN inbox USING (job_id) WHERE message_id LIKE ?"
    calls = Counter((row["purpose"], row["state"]) for row in evidence.rows(sql, f"%:{client_id}"))
    first = client_id.replace("-last.", "-0.")
    for purpose, instruction in ((CallPurpose.FACTS, FACTS), (CallPurpose.SUMMARY, SUMMARY)):
        calls[purpose, "asked"] = len([one for one in llm.matching(instruction) if first in one.last_user])
    return calls


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

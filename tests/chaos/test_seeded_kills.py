"""Maestro, its Temporal server or both are killed at random moments while messages of every kind are answered.

Each round has a seed of its own, which is in the name of its test: ``MAESTRO_TEST_KILLS=300`` makes so many kills, and
``MAESTRO_TEST_KILL_SEED`` other ones. A round is bounded by its messages and kills, and its time by that of a test.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil

import pytest
import pytest_asyncio

from maestro.bootstrap.up import READY
from temporal.server_process import read_record
from tests.chaos.conftest import ANN
from tests.chaos.promise import assert_books_closed, assert_delivered_once, assert_in_order, assert_journal_closed
from tests.support.chatting import Person, person
from tests.support.crashing import MAESTRO, TEMPORAL, notes_of
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

KILLS = int(os.environ.get("MAESTRO_TEST_KILLS", "20"))
SEED = os.environ.get("MAESTRO_TEST_KILL_SEED", "1")
KILLS_OF_A_ROUND = 5
ROUNDS = ceil(KILLS / KILLS_OF_A_ROUND)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("chaos-seeded-kills"),
    pytest.mark.timeout(300),
]

PEOPLE = (("helper", ("plain", "long")), ("helper", ("plain", "long")), ("handy", ("plain", "long", "tools")))
"""The agent that each person talks to, for an agent remembers its own answers, and what for."""
MESSAGES = 4
"""Those of each person, who says the next one without waiting for an answer."""
STREAMED = 3
"""Messages in one thread of Slack, where answers are streamed."""

GAP = 0.5
"""The most seconds between two messages of a person."""
DELAYS = (0.0, 0.1, 0.4)
"""Seconds of a model call."""
PIECE = 0.03
"""Seconds of a piece of a streamed answer."""
LIFE = 0.8
"""The most seconds from a start to the next kill."""
IMPATIENT = 0.2
"""The share of kills that do not wait until the process is ready."""
VICTIMS = ((MAESTRO,), (MAESTRO,), (TEMPORAL,), (TEMPORAL, MAESTRO))

ANSWERS = {
    "plain": "is answered",
    "long": "The quick brown fox jumps over the lazy dog. " * 5,
    "tools": "is noted",
    "streamed": "one two three four five six seven eight nine ten",
}
"""What the model says to a message of each kind, after its id; the long one is of three chunks."""


@dataclass(frozen=True)
class Message:
    """What a person says; its id is in its text, and in that of every request at the model."""

    id: str
    kind: str
    agent: str = "helper"

    @property
    def text(self) -> str:
        """What is said."""
        return f"{self.id} please, @{self.agent}"

    def script(self, llm: LLMServer, delay: float) -> None:
        """Let the model answer it."""
        slow = PIECE if self.kind == "streamed" else 0.0
        llm.script(match=self.id, reply=f"{self.id} {ANSWERS[self.kind]}", delay=delay, slow=slow)
        if self.kind == "tools":
            llm.script(match=self.id, calls=(("note", f'{{"text": "{self.id}"}}'),), rounds=0, delay=delay)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    slack: SlackServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    account = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url}
    streaming = {"streaming": True, "streamingSeconds": 0.2, "paceSeconds": 0}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "helper"}, {"slug": "handy", "tools": ["note"]}],
        connectors={"slack": {"enabled": True, **streaming, **account}},
    ) as started:
        await slack.connected()
        yield started


class Killer:
    """Kills and starts again, at the moments of a seed."""

    def __init__(self, maestro: Maestro, chance: random.Random) -> None:
        self._maestro = maestro
        self._chance = chance

    async def kill(self, times: int) -> None:
        """Make so many kills, and return when the process is ready once more."""
        since = 0
        for _ in range(times):
            if since and self._chance.random() > IMPATIENT:
                await self._maestro.says(READY, since)
            await asyncio.sleep(self._chance.uniform(0, LIFE))
            victims = self._chance.choice(VICTIMS)
            killed = TEMPORAL in victims and self._kill_temporal()
            if MAESTRO in victims or not killed:
                await self._maestro.kill()
                since = self._maestro.begin()
        if since:
            await self._maestro.says(READY, since)

    def _kill_temporal(self) -> bool:
        """Kill the server; false when a kill before this one has left none."""
        record = read_record(self._maestro.data / "temporal.json")
        with contextlib.suppress(ProcessLookupError):
            if record is not None and record.is_running():
                self._maestro.kill_temporal()
                return True
        return False


@dataclass
class Load:
    """What is said in a round, by whom."""

    people: dict[Person, list[Message]]
    thread: list[Message]
    chance: random.Random

    async def talk(self, somebody: Person) -> None:
        """Say everything of one person."""
        for message in self.people[somebody]:
            await asyncio.sleep(self.chance.uniform(0, GAP))
            await somebody.say(message.text, message.id)

    async def talk_on_slack(self, slack: SlackServer, channel: str) -> list[str]:
        """Say everything in one thread; return the platform's ids of the messages."""
        ids: list[str] = []
        for message in self.thread:
            await asyncio.sleep(self.chance.uniform(0, GAP))
            ids.append(await slack.say(channel, ANN, message.text, thread=ids[0] if ids else ""))
        return ids


@pytest.mark.parametrize("number", range(ROUNDS), ids=lambda number: f"seed-{SEED}-round-{number}")
async def test_everything_is_answered_once_and_in_order(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer, number: int
) -> None:
    # Chances for a test, not secrets; the killer has its own, so that they do not depend on who is first.
    chance, channel = random.Random(f"{SEED}-{number}"), f"CROUND{number}"
    async with AsyncExitStack() as stack:
        load = Load({}, messages(f"r{number}-slack", ["streamed"] * STREAMED), chance)
        for lane, (agent, kinds) in enumerate(PEOPLE):
            somebody = await stack.enter_async_context(person(maestro.web_port, f"round-{number}-{lane}"))
            load.people[somebody] = messages(f"r{number}-{lane}", chance.choices(kinds, k=MESSAGES), agent)
        for message in [*load.thread, *(message for said in load.people.values() for message in said)]:
            message.script(llm, chance.choice(DELAYS))
        left = min(KILLS_OF_A_ROUND, KILLS - number * KILLS_OF_A_ROUND)
        killing = Killer(maestro, random.Random(f"{SEED}-{number}-kills")).kill(left)
        talking = asyncio.gather(*(load.talk(somebody) for somebody in load.people))
        _, ids, _ = await asyncio.gather(killing, load.talk_on_slack(slack, channel), talking)
        for somebody, said in load.people.items():
            await assert_lane(maestro, evidence, llm, somebody, said)
    await assert_thread(evidence, llm, slack, channel, dict(zip(ids, load.thread, strict=True)))
    assert evidence.rows("SELECT * FROM reservations") == []
    assert evidence.lanes() == []


def messages(name: str, kinds: list[str], agent: str = "helper") -> list[Message]:
    """Return messages of these kinds to an agent."""
    return [Message(f"{name}-{number}.", kind, agent) for number, kind in enumerate(kinds)]


async def assert_lane(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, somebody: Person, said: list[Message]
) -> None:
    """Wait for the end of what a person said: each answered once, in order."""
    ids = [message.id for message in said]
    jobs = await evidence.ended(*ids)
    await somebody.acknowledged(*ids)
    await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    for job, message in zip(jobs, said, strict=True):
        answer = assert_answered(evidence, llm, job, message)
        assert evidence.user_rows(message.id) == (1, 1)
        assert_delivered_once(evidence, somebody, job, answer)
        if message.kind == "tools":
            assert_one_effect(maestro, evidence, job, message)
    assert_in_order(evidence, somebody, llm, ids)


def assert_answered(evidence: Evidence, llm: LLMServer, job: Row, message: Message) -> str:
    """One answer, whose calls are answered once each, and asked for only once more than they were interrupted."""
    assert job["status"] == "completed"
    (answer,) = evidence.answers(job["id"])
    assert message.id in answer
    found = evidence.rows("SELECT number, state FROM llm_calls WHERE job_id = ?", job["id"])
    calls = Counter((row["number"], row["state"]) for row in found)
    requests = Counter(request.rounds + 1 for request in llm.matching(message.id))
    assert set(requests) == {call for call, _ in calls} == set(range(1, 2 + (message.kind == "tools")))
    for call, asked in requests.items():
        assert calls[call, "answered"] == 1
        assert asked <= 1 + calls[call, "interrupted"], "a held answer is bought again"
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)
    return answer


def assert_one_effect(maestro: Maestro, evidence: Evidence, job: Row, message: Message) -> None:
    """A tool that may not be repeated has taken effect once, or the model was told that nobody knows."""
    (tool,) = evidence.rows("SELECT state FROM tool_calls WHERE job_id = ?", job["id"])
    notes = notes_of(maestro.data)
    effects = notes.read_text().split().count(message.id) if notes.exists() else 0
    assert (tool["state"], effects) in {("done", 1), ("unknown", 0), ("unknown", 1)}


def _has_rows(evidence: Evidence, sql: str, value: str) -> bool:
    return bool(evidence.rows(sql, value))


async def assert_thread(
    evidence: Evidence, llm: LLMServer, slack: SlackServer, channel: str, said: dict[str, Message]
) -> None:
    """Wait for the end of a thread on Slack: one message each, in order, with the whole answer."""
    sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND completed_at > ''"
    answers = []
    for its_id, message in said.items():
        await until(partial(_has_rows, evidence, sql, its_id), what=f"an answer to {message.id}")
        (job,) = evidence.rows(sql, its_id)
        answers.append(assert_answered(evidence, llm, job, message))
        assert {row["state"] for row in evidence.deliveries(job["id"])} == {"sent"}
    assert [post["text"] for post in slack.posted(channel)] == answers
    assert evidence.rows("SELECT * FROM drafts") == []

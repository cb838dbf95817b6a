"""The process dies in the middle of the tool loop: only the call in flight is repeated, each effect happens once."""

import asyncio

import pytest

from maestro.domain.tools import UNKNOWN_OUTCOME
from tests.chaos.promise import assert_journal_closed
from tests.support.chatting import person
from tests.support.crashing import notes_of
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-tools")]

AGENTS = [{"slug": "helper", "tools": ["note", "note_again", "ask_question"]}]


@pytest.fixture(autouse=True)
def nothing_noted(maestro: Maestro) -> None:
    notes_of(maestro.data).unlink(missing_ok=True)


def noted(maestro: Maestro) -> list[str]:
    """Return what the tools have written."""
    notes = notes_of(maestro.data)
    return notes.read_text().split() if notes.exists() else []


def note(text: str, tool: str = "note") -> tuple[str, str]:
    """A call of a tool that notes a word."""
    return (tool, f'{{"text": "{text}"}}')


async def talk(maestro: Maestro, evidence: Evidence, client_id: str, point: str) -> str:
    """Say something while the point is armed; return the id of the job that answered it once."""
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @helper", client_id)
        await crash
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    numbers = evidence.rows(
        "SELECT number FROM llm_calls WHERE job_id = ? AND state = 'answered' ORDER BY id", job["id"]
    )
    assert len(numbers) == len({row["number"] for row in numbers}), "no answer is bought twice"
    assert job["status"] == "completed"
    assert_journal_closed(evidence, job)
    return str(job["id"])


@pytest.mark.parametrize("point", ["before effect", "after effect"])
async def test_what_may_not_be_repeated_is_not_and_the_model_is_told(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    client_id = f"never-{point.replace(' ', '-')}"
    llm.script(client_id, calls=(note("mine"),), rounds=0)
    llm.script(client_id, reply="I will look", rounds=1)
    await talk(maestro, evidence, client_id, point)
    assert noted(maestro) == (["mine"] if point == "after effect" else [])
    assert llm.matching(client_id)[-1].results == [("note", UNKNOWN_OUTCOME)]


@pytest.mark.parametrize("point", ["before effect", "after effect"])
async def test_what_may_be_repeated_is_made_again(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    client_id = f"again-{point.replace(' ', '-')}"
    llm.script(client_id, calls=(note("yours", "note_again"),), rounds=0)
    llm.script(client_id, reply="done", rounds=1)
    await talk(maestro, evidence, client_id, point)
    assert noted(maestro) == ["yours"] * (2 if point == "after effect" else 1)
    assert llm.matching(client_id)[-1].results == [("note_again", "noted yours")]


async def test_killed_in_round_two_of_four_only_the_call_in_flight_is_repeated(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    rounds = 4
    for done in range(rounds):
        llm.script("four rounds", calls=(note(f"effect-{done + 1}"),), rounds=done)
    llm.script("four rounds", reply="four effects", rounds=rounds)
    llm.script("four rounds", calls=(note("effect-2"),), rounds=1, delay=60.0, times=1)
    async with person(maestro.web_port, "rounds") as somebody:
        await somebody.say("four rounds please, @helper", "rounds-1")
        await asyncio.to_thread(llm.wait_for, lambda requests: [one.rounds for one in requests] == [0, 1])
        await maestro.kill()
        await maestro.start()
        (job,) = await evidence.ended("rounds-1")
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert [one.rounds for one in llm.matching("four rounds")] == [0, 1, 1, 2, 3, 4]
    assert noted(maestro) == [f"effect-{number}" for number in range(1, rounds + 1)]
    calls = evidence.rows("SELECT number, state FROM llm_calls WHERE job_id = ? ORDER BY id", job["id"])
    assert [(row["number"], row["state"]) for row in calls] == [
        (1, "answered"),
        (2, "interrupted"),
        (2, "answered"),
        (3, "answered"),
        (4, "answered"),
        (5, "answered"),
    ]
    assert_answered_once_of_five(evidence, job["id"])


def assert_answered_once_of_five(evidence: Evidence, job_id: str) -> None:
    """Each call has one answer, one answer reached the person, and each request one row of usage."""
    assert len(evidence.answers(job_id)) == 1
    usage = evidence.rows("SELECT state FROM usage_log WHERE job_id = ?", job_id)
    assert sorted(row["state"] for row in usage) == ["answered"] * 5 + ["interrupted"]


@pytest.mark.parametrize(
    "point", ["before tool-1-0 waits", "after tool-1-0 waits", "before park-1 done", "after park-1 done"]
)
async def test_a_question_survives_a_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    client_id = f"asking-{point.replace(' ', '-')}"
    llm.script(client_id, calls=(("ask_question", '{"question": "Which city?"}'), note("beside")), rounds=0)
    llm.script(client_id, reply="So it is {results}", rounds=1)
    async with person(maestro.web_port, client_id) as somebody:
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point))
        await somebody.say(f"{client_id} please, @helper", client_id)
        await crash
        await _asked(evidence, client_id)
        await somebody.say("Lisbon", f"{client_id}-answer")
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert job["status"] == "completed"
    (answer,) = evidence.answers(job["id"])
    assert "Lisbon" in answer
    assert len(evidence.rows("SELECT id FROM questions WHERE job_id = ?", job["id"])) == 1
    notices = evidence.rows("SELECT id FROM queue WHERE notice LIKE ? AND channel = ?", "%Which city?%", job["channel"])
    assert len(notices) == 1
    assert len(noted(maestro)) <= 1


async def _asked(evidence: Evidence, client_id: str) -> None:
    """Return when the job of this message waits for a person, and its question has left for the platform."""
    await evidence.found(
        "SELECT queue.id FROM queue JOIN inbox ON inbox.job_id = queue.id "
        "JOIN deliveries ON deliveries.channel = queue.channel AND purpose = 'notice' AND state = 'sent' "
        "WHERE message_id LIKE ? AND status = 'waiting'",
        f"%:{client_id}",
    )

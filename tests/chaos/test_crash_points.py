"""The process dies before and after every step, and inside every window in which something is done but not recorded."""

import asyncio
from itertools import product

import pytest

from tests.chaos.promise import (
    assert_answered_once,
    assert_books_closed,
    assert_delivered_once,
    assert_in_order,
    assert_journal_closed,
)
from tests.support.chatting import Person, person
from tests.support.crashing import forget_passed, is_armed, passed
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import Failure, LLMServer
from tests.support.running import Maestro

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRANSACTIONS = (
    *("people.own_channel", "accept", "claim"),
    *("route begins", "route done", "conversation begins", "conversation done", "context begins", "context done"),
    *("model-1 begins", "model-1 request", "model-1 answer", "model-1 done"),
    *("tags begins", "tags done", "deliver begins", "chunks", "receipt", "deliver done"),
)
EFFECTS = ("wire", "send", "start")
ANSWERING = {
    "before ack",
    *(f"{when} {name}" for when, name in product(("before", "after"), (*TRANSACTIONS, *EFFECTS))),
}

FAILURES = (
    *("model-1 failure", "release", "model-1 failed"),
    *("notice begins", "notice done", "close-1 begins", "close-1 done"),
)
FAILING = {
    "before wire",
    *(f"{when} {name}" for when, name in product(("before", "after"), (*FAILURES, "chunks", "send"))),
}

HOUSEKEEPING = ("people.connector_state", "people.connector_event", "drafts.offer")
"""Transactions that no message waits for."""

IN_FLIGHT = {"after model-1 request", "before wire", "after wire", "before model-1 answer"}
"""Where a request is committed and its answer is not: the model is asked once more, and the row says interrupted."""
SEEN_TWICE = {"after wire", "before model-1 answer"}
"""Where the model server had the request already."""


Talk = tuple[Person, list[Row]]


def said_to_helper(client_ids: list[str]) -> dict[str, str]:
    """What is said, by client id: something for the one agent there is."""
    return {client_id: f"{client_id} please, @helper" for client_id in client_ids}


def named(point: str, suffix: str) -> str:
    """A client's id for a message about this point."""
    return f"{point.replace(' ', '-')}.{suffix}"


async def talk_through_a_crash(maestro: Maestro, evidence: Evidence, point: str, **said: str) -> Talk:
    """Say things, by client id, in a new channel while the point is armed; return when all jobs have ended."""
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, f"channel-{next(iter(said))}") as somebody:
        for client_id, content in said.items():
            await somebody.say(content, client_id)
        await crash
        jobs = await evidence.ended(*said)
        await somebody.acknowledged(*said)
        await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    return somebody, jobs


@pytest.mark.parametrize("point", sorted(ANSWERING))
async def test_a_message_survives_a_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    said = [named(point, "a"), named(point, "b")]
    somebody, jobs = await talk_through_a_crash(maestro, evidence, point, **said_to_helper(said))
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(evidence, somebody, job, client_id)
    assert_in_order(evidence, somebody, llm, said)
    assert evidence.calls(jobs[0]["id"])["interrupted"] == (point in IN_FLIGHT)
    assert len(llm.matching(said[0])) == 1 + (point in SEEN_TWICE)
    assert len(llm.matching(said[1])) == 1


@pytest.mark.parametrize("point", sorted(FAILING))
async def test_a_failure_survives_a_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    said = [named(point, "refused"), named(point, "next")]
    llm.script(match=said[0], failure=Failure.status(400))
    somebody, (failed, answered) = await talk_through_a_crash(maestro, evidence, point, **said_to_helper(said))
    assert_failed_once(evidence, somebody, failed)
    assert_answered_once(evidence, somebody, answered, said[1])
    assert len(somebody.replies_to(said[0])) == 1
    calls = evidence.calls(failed["id"])
    assert calls["interrupted"] == (point in {"before wire", "before model-1 failure"})
    # A refusal that Temporal was not told of is no answer to hold: the model is asked once more.
    assert len(llm.matching(said[0])) <= 2
    assert len(llm.matching(said[1])) == 1


def assert_failed_once(evidence: Evidence, somebody: Person, job: Row) -> None:
    """The reason is kept, the person heard once, the lane is free."""
    assert (job["status"], job["error"]) == ("failed", "BadRequest")
    assert evidence.answers(job["id"]) == []
    (notice,) = evidence.deliveries(job["id"])
    assert notice["purpose"] == "notice"
    assert_delivered_once(evidence, somebody, job, notice["content"])
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["accept", "claim", "route done", "deliver begins", "chunks", "send", "deliver done"])
async def test_a_reply_of_our_own_survives_a_crash(maestro: Maestro, evidence: Evidence, when: str, name: str) -> None:
    point = f"{when} {name}"
    client_id = named(point, "status")
    somebody, (job,) = await talk_through_a_crash(maestro, evidence, point, **{client_id: "/status"})
    assert job["status"] == "completed"
    assert_delivered_once(evidence, somebody, job, job["notice"])
    assert_journal_closed(evidence, job)


@pytest.mark.parametrize("point", ["before route done", "after route done"])
async def test_a_dropped_message_survives_a_crash(maestro: Maestro, evidence: Evidence, point: str) -> None:
    client_id = named(point, "dropped")
    said = {client_id: "nobody is mentioned"}
    somebody, (job,) = await talk_through_a_crash(maestro, evidence, point, **said)
    assert job["status"] == "dropped"
    assert job["reason"]
    assert evidence.user_rows(client_id) == (1, 0)
    assert somebody.replies == []
    assert_journal_closed(evidence, job)


async def test_every_point_has_its_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    """A step that is added without its crash points makes this fail: the points are those of a clean run."""
    assert await points_of(maestro, evidence, "clean") == ANSWERING
    llm.script(match="refused", failure=Failure.status(400))
    assert await points_of(maestro, evidence, "refused") - ANSWERING == FAILING - ANSWERING


async def points_of(maestro: Maestro, evidence: Evidence, client_id: str) -> set[str]:
    """Answer a message without a crash, and return the points it passed."""
    forget_passed(maestro.data)
    async with person(maestro.web_port, f"channel-{client_id}") as somebody:
        await somebody.say(f"{client_id} please, @helper")
        await evidence.ended(client_id)
    return {point for point in passed(maestro.data) if not point.endswith(HOUSEKEEPING)}

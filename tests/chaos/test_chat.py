"""The process dies around a model's answer: no post is lost, none told twice in what is stored, none posted twice."""

import asyncio
from itertools import pairwise

import pytest

from maestro.domain.agent_chat import HUMAN, REMINDER
from maestro.domain.llm.prompts import PromptMessage, StoredRequest
from maestro.store.store import Store
from tests.chaos.promise import assert_books_closed, assert_journal_closed
from tests.support.chatting import person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-chat")]

AGENTS = [{"slug": "coder-1", "role": "coder"}]

POINTS = (
    *("before wire", "before model-1 answer", "after model-1 answer"),
    *("before tool-1-0 done", "before model-2 answer", "after model-2 answer"),
)
"""Everywhere that posts were read, told or written, and somebody may not know it yet."""


def post(maestro: Maestro, text: str) -> int:
    store = Store(maestro.data / "maestro.db")
    with store.begin() as tx:
        posted = tx.chat.add_post(HUMAN, text)
    store.close()
    return posted


def answered_requests(maestro: Maestro, job_id: str) -> list[tuple[PromptMessage, ...]]:
    """Return what the calls of a job were asked that have an answer, as it is stored."""
    store = Store(maestro.data / "maestro.db")
    with store.view() as tx:
        kept = [
            StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request))
            for call in tx.llm.calls.list_calls_of_job(job_id)
            if call.state == "answered"
        ]
        found = [tx.llm.prompts.restore_messages(request.turns) for request in kept]
    store.close()
    return found


def times_told(messages: tuple[PromptMessage, ...], text: str) -> int:
    return sum(message.content.count(f"> {text}") for message in messages if message.chat)


@pytest.mark.parametrize("point", POINTS)
async def test_posts_survive_a_crash(maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str) -> None:
    client_id = point.replace(" ", "-")
    llm.script(client_id, calls=(("chat_post", f'{{"text": "mine of {client_id}"}}'),), rounds=0)
    llm.script(client_id, reply="well", rounds=1)
    first = f"first of {client_id}"
    post(maestro, first)
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @coder-1", client_id)
        await crash
        (job,) = await evidence.ended(client_id)
        second = f"second of {client_id}"
        newest = post(maestro, second)
        await somebody.say("and now, @coder-1", f"and-{client_id}")
        (later,) = await evidence.ended(f"and-{client_id}")
    assert (job["status"], later["status"]) == ("completed", "completed")
    one, two = answered_requests(maestro, job["id"])
    (three,) = answered_requests(maestro, later["id"])
    assert [times_told(request, first) for request in (one, two, three)] == [1, 1, 0]
    assert [times_told(request, second) for request in (one, two, three)] == [0, 0, 1]
    assert [request[0].content.startswith(REMINDER) for request in (one, two, three)] == [False, True, False]
    assert evidence.rows("SELECT count(*) AS n FROM chat WHERE text = ?", f"mine of {client_id}")[0]["n"] == 1
    assert_told_without_gap_or_repeat(evidence)
    assert evidence.rows("SELECT last_id FROM chat_cursor") == [{"last_id": newest}]
    assert evidence.rows("SELECT * FROM chat_reminders") == []
    for ended in (job, later):
        assert_books_closed(evidence, ended)
        assert_journal_closed(evidence, ended)


def assert_told_without_gap_or_repeat(evidence: Evidence) -> None:
    """Each answered call begins where the one before ended."""
    told = evidence.rows("SELECT chat_after, chat_upto FROM llm_calls WHERE state = 'answered' ORDER BY id")
    assert all(before["chat_upto"] == after["chat_after"] for before, after in pairwise(told))

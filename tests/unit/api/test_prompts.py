"""What exactly a model saw, over the API."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.prompts import ToolCall
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.llm_requests import TIME, response_of
from tests.support.spoken import LONGEST_ANSWER, Spoken

CALL = ToolCall(id="call_1_0", name="get_time", arguments='{"zone": "UTC"}')
ANSWER = response_of("[MEMORY:sticky] never Addie [/MEMORY] hello").model_copy(update={"tool_calls": (CALL,)})


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def only_call(http: httpx.AsyncClient, job_id: str) -> int:
    answer = await http.get(f"/api/jobs/{job_id}/calls")
    assert answer.status_code == 200, answer.text
    [call] = answer.json()["items"]
    assert (call["purpose"], call["number"], call["attempt"], call["state"]) == ("answer", 1, 1, "answered")
    return int(call["id"])


async def seen(http: httpx.AsyncClient, job_id: str) -> Any:
    answer = await http.get(f"/api/jobs/{job_id}/calls/{await only_call(http, job_id)}/prompt")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_call_shows_what_was_asked_and_what_was_said(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    earlier = await spoken.answered("who am I?")
    job_id = await spoken.answered("and now?", ANSWER)
    shown = await seen(http, job_id)
    kept = spoken.messages(job_id)
    assert [turn["text"] for turn in shown["messages"]] == [turn.content for turn in kept]
    assert [turn["role"] for turn in shown["messages"]] == ["system", "user", "assistant", "user"]
    assert shown["messages"][0]["stableCharacters"] == kept[0].stable > 0
    assert shown["messages"][1]["messageId"] == kept[1].message_id
    assert (shown["maxOutputTokens"], shown["final"], shown["platform"]) == (LONGEST_ANSWER, False, "web")
    assert shown["tools"] == [
        {"name": TIME.name, "description": TIME.description, "parameters": {"properties": {}, "type": "object"}}
    ]
    names = [layer["name"] for layer in shown["layers"]]
    assert names == ["identity", "rules", "own prompt", "moment", "history", "asked"]
    assert sum(layer["tokens"] for layer in shown["layers"]) >= shown["tokens"] - 100
    assert shown["answer"]["text"] == ANSWER.content, "with its tags: they are what the model said"
    assert shown["answer"]["toolCalls"] == [CALL.model_dump()]
    assert (await seen(http, earlier))["messages"][-1]["text"] == "who am I?"


async def test_what_a_compaction_took_away_is_still_shown(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    job_id = await spoken.answered("an old question")
    before = await seen(http, job_id)
    with rows.store.begin() as tx:
        said = tx.conversations.list_messages(tx.jobs.get(job_id).conversation_id or 0)
        tx.conversations.compactions.archive_messages(said[0].conversation_id, [message.id or 0 for message in said])
    assert await seen(http, job_id) == before


async def test_what_was_deleted_says_so(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.end(await Spoken(rows).answered("a secret"), JobStatus.COMPLETED)
    call_id = await only_call(http, job_id)
    with rows.store.begin() as tx:
        plan = tx.conversations.removals.plan_removal(tx.jobs.get(job_id).conversation_id or 0)
        tx.conversations.removals.carry_out(plan, "operator", facts=False)
    answer = await http.get(f"/api/jobs/{job_id}/calls/{call_id}/prompt")
    assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
    assert answer.json()["message"] == f"the requests of job {job_id} were deleted with its conversation"
    assert await only_call(http, job_id) == call_id, "that it was asked is in the books"


async def test_a_call_is_looked_for_in_its_own_job(rows: JobRows, http: httpx.AsyncClient) -> None:
    spoken = Spoken(rows)
    first, second = await spoken.answered("one"), await spoken.answered("two")
    call_id = await only_call(http, first)
    for path in (f"{second}/calls/{call_id}/prompt", f"{first}/calls/99/prompt", "nope/calls/1/prompt", "nope/calls"):
        answer = await http.get(f"/api/jobs/{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound"), path
    answer = await http.get(f"/api/jobs/{first}/calls/{'9' * 30}/prompt")
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")

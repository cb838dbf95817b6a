"""Questions over the API: the list, one, and an operator's answer (docs/decisions.md: questions)."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.jobs.job import JobStatus
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.questions import ARGUMENTS, EXPIRY, waiting_approval, waiting_question


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def ids(http: httpx.AsyncClient, query: str = "") -> list[int]:
    answer = await http.get(f"/api/questions?{query}")
    assert answer.status_code == 200, answer.text
    return [question["id"] for question in answer.json()["items"]]


async def test_questions_come_newest_first_in_pages_that_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    numbers = [waiting_question(rows).id for _ in range(5)]
    first = (await http.get("/api/questions?limit=3")).json()
    waiting_question(rows)
    rest = (await http.get("/api/questions", params={"limit": 3, "cursor": first["next"]})).json()
    assert [one["id"] for one in first["items"] + rest["items"]] == numbers[::-1]
    assert rest["next"] is None


async def test_questions_are_found_by_where_they_stand(rows: JobRows, http: httpx.AsyncClient) -> None:
    denied, left = waiting_approval(rows), waiting_question(rows)
    await http.post(f"/api/questions/{denied.id}/answer", json={"approve": False})
    assert await ids(http, "status=open") == [left.id]
    assert await ids(http, "status=denied&status=open") == [left.id, denied.id]
    rows.clock.now += EXPIRY
    assert await ids(http, "status=open") == []
    assert await ids(http, "status=expired") == [left.id]


async def test_a_question_says_what_is_asked_of_whom(rows: JobRows, http: httpx.AsyncClient) -> None:
    question, approval = waiting_question(rows), waiting_approval(rows)
    shown = (await http.get(f"/api/questions/{question.id}")).json()
    assert (shown["kind"], shown["status"], shown["text"]) == ("question", "open", "Which colour?")
    assert (shown["askedOf"], shown["approvers"]) == ("web:u-1", [])
    assert (shown["agent"], shown["jobId"], shown["channel"]) == ("ada", question.job_id, "general")
    assert (shown["answer"], shown["answeredBy"], shown["answeredAt"]) == ("", "", None)
    shown = (await http.get(f"/api/questions/{approval.id}")).json()
    assert (shown["tool"], shown["context"]) == ("write_file", ARGUMENTS)
    assert (shown["askedOf"], shown["approvers"]) == (None, ["web:alan"])


@pytest.mark.parametrize(
    ("kind", "body", "status", "kept", "action"),
    [
        ("question", {"answer": " dark blue "}, "answered", "dark blue", "question.answer"),
        ("approval", {"approve": True}, "answered", "yes", "question.approve"),
        ("approval", {"approve": False}, "denied", "no", "question.deny"),
    ],
)
async def test_an_answer_is_kept_and_lets_the_job_go_on(
    rows: JobRows, http: httpx.AsyncClient, kind: str, body: dict[str, Any], status: str, kept: str, action: str
) -> None:
    asked = waiting_question(rows) if kind == "question" else waiting_approval(rows)
    answer = await http.post(f"/api/questions/{asked.id}/answer", json=body)
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["status"], shown["answer"], shown["answeredBy"]) == (status, kept, "operator")
    with rows.store.begin() as tx:
        assert [(entry.actor, entry.action, entry.subject) for entry in tx.system.audit.list_latest_entries(10)] == [
            ("operator", action, str(asked.id))
        ]
        tx.jobs.resume_due()
        assert tx.jobs.read_status(asked.job_id or "") is JobStatus.PENDING
    again = await http.post(f"/api/questions/{asked.id}/answer", json=body)
    assert (again.status_code, again.json()["error"]) == (409, "Conflict")
    assert again.json()["message"].startswith(f"question {asked.id} is {status} already")


async def test_after_its_time_a_question_is_a_conflict(rows: JobRows, http: httpx.AsyncClient) -> None:
    question = waiting_question(rows)
    rows.clock.now += EXPIRY
    answer = await http.post(f"/api/questions/{question.id}/answer", json={"answer": "blue"})
    assert answer.status_code == 409
    assert "expired" in answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"answer": "yes", "approve": True},
        {"answer": ""},
        {"answer": None},
        {"answer": 7},
        {"approve": "perhaps"},
        {"reply": "x"},
        {"answer": "x" * 20_001},
        [],
    ],
)
async def test_another_shape_is_refused(rows: JobRows, http: httpx.AsyncClient, body: object) -> None:
    question = waiting_question(rows)
    answer = await http.post(f"/api/questions/{question.id}/answer", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert (await http.get(f"/api/questions/{question.id}")).json()["status"] == "open"


async def test_words_do_not_decide_and_a_yes_is_no_answer(rows: JobRows, http: httpx.AsyncClient) -> None:
    for asked, body in ((waiting_approval(rows), {"answer": "yes"}), (waiting_question(rows), {"approve": True})):
        answer = await http.post(f"/api/questions/{asked.id}/answer", json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "InvalidMessage")


async def test_what_does_not_exist_is_not_found(http: httpx.AsyncClient) -> None:
    for answer in (
        await http.get("/api/questions/7"),
        await http.post("/api/questions/7/answer", json={"answer": "x"}),
    ):
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
    for wrong in ("0", "-1", "x", str(2**63)):
        assert (await http.get(f"/api/questions/{wrong}")).status_code == 400
    assert (await http.get("/api/questions?cursor=x")).status_code == 400
    assert (await http.get("/api/questions?status=lost")).status_code == 400

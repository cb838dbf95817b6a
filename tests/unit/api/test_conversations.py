"""Conversations over the API: the list, what was said, and deleting (docs/decisions.md: retention)."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.conversations.conversation import ConversationStatus, Message
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address, IncomingMessage
from tests.support.api_client import BASIC, app_of, client
from tests.support.conversations import talk_with
from tests.support.job_rows import JobRows


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def talk(rows: JobRows, *said: str, channel: str = "general", user: str = "Grace") -> int:
    """Have a conversation in which each message has an answer; return its number."""
    address = Address(platform="web", channel=channel)
    with rows.store.begin() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        assert agent is not None
        conversation = talk_with(tx, agent.id or 0, address, (user.lower(), user))
    for text in said:
        rows.clock.go(seconds=1)
        with rows.store.begin() as tx:
            job_id = f"message-{tx.now:%H%M%S}"
            message = IncomingMessage(
                id=job_id, address=address, user_id=user.lower(), user_name=user, content=text, sent_at=tx.now
            )
            row = tx.inbox.add(message, job_id)
            job = Job(id=job_id, inbox_id=row.id, conversation_id=conversation.id, created_at=tx.now, **_of(address))
            tx.jobs.add(job)
            for role, content, inbox_id in ((Role.USER, text, row.id), (Role.ASSISTANT, f"to {text}", None)):
                tx.conversations.add_message(
                    Message(
                        conversation_id=conversation.id or 0,
                        role=role,
                        content=content,
                        token_estimate=5,
                        inbox_id=inbox_id,
                        job_id=job_id,
                        created_at=tx.now,
                    )
                )
            tx.jobs.close_job(job_id, JobEnding(status=JobStatus.COMPLETED))
    return conversation.id or 0


def _of(address: Address) -> dict[str, Any]:
    return address.model_dump()


async def ids(http: httpx.AsyncClient, **query: Any) -> list[int]:
    answer = await http.get("/api/conversations", params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["items"]]


async def test_the_list_begins_with_the_one_spoken_in_last(rows: JobRows, http: httpx.AsyncClient) -> None:
    first, second = talk(rows, "hello", channel="one"), talk(rows, "hello", channel="two")
    assert await ids(http) == [second, first]
    talk(rows, "again", channel="one")
    shown = (await http.get("/api/conversations")).json()["items"][0]
    assert (shown["id"], shown["agent"], shown["channel"], shown["userName"]) == (first, "ada", "one", "Grace")
    assert (shown["status"], shown["messageCount"], shown["totalTokensEstimate"]) == ("active", 4, 20)


async def test_pages_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    numbers = [talk(rows, "hello", channel=f"channel-{number}") for number in range(5)]
    page = (await http.get("/api/conversations?limit=2")).json()
    rest = (await http.get("/api/conversations", params={"limit": 200, "cursor": page["next"]})).json()
    assert [one["id"] for one in page["items"] + rest["items"]] == numbers[::-1]
    assert rest["next"] is None
    for nonsense in ("nonsense", "1.2.3", "-1.2", "9" * 40, "1." + "9" * 40):
        assert (await http.get("/api/conversations", params={"cursor": nonsense})).status_code == 400


@pytest.mark.parametrize("path", ["/api/conversations", "/api/conversations/search", "/api/jobs"])
@pytest.mark.parametrize("text", ["\0", "x" * 60_000])
async def test_what_no_database_looks_for_is_refused(
    rows: JobRows, http: httpx.AsyncClient, path: str, text: str
) -> None:
    talk(rows, "hello")
    refused = await http.get(path, params={"q": text})
    assert (refused.status_code, refused.json()["message"][:3]) == (400, "q: ")


async def test_conversations_are_found(rows: JobRows, http: httpx.AsyncClient) -> None:
    code, general = talk(rows, "a 100% sure thing", channel="code"), talk(rows, "hello", user="Alan")
    with rows.store.begin() as tx:
        tx.conversations.get(general).status = ConversationStatus.CLOSED
        oldest = tx.conversations.list_messages(code)[0]
        tx.conversations.compactions.archive_messages(code, [oldest.id or 0])
    assert await ids(http, channel="code") == [code]
    assert await ids(http, user="alan") == [general]
    assert await ids(http, status="closed") == [general]
    assert await ids(http, agent="ada", platform="web") == [general, code]
    assert await ids(http, agent="nobody") == []
    assert await ids(http, q="100% SURE") == [code], "what a compaction took away is found, and % is no joker"
    assert await ids(http, q="Alan") == [general]
    found = (await http.get("/api/conversations/search", params={"q": "hello"})).json()
    assert [(one["conversationId"], one["content"]) for one in found["items"]] == [
        (general, "to hello"),
        (general, "hello"),
    ]


async def test_what_was_said_is_shown_in_order_with_its_marks(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "one", "two")
    with rows.store.begin() as tx:
        said = tx.conversations.list_messages(number)
        tx.conversations.compactions.archive_messages(number, [said[0].id or 0, said[1].id or 0])
        tx.conversations.mark_superseded([said[3].job_id])
    shown = (await http.get(f"/api/conversations/{number}/messages?limit=3")).json()
    rest = (await http.get(f"/api/conversations/{number}/messages?cursor={shown['next']}")).json()
    everything = shown["items"] + rest["items"]
    assert [(one["author"], one["content"], one["archived"], one["superseded"]) for one in everything] == [
        ("Grace", "one", True, False),
        ("ada", "to one", True, False),
        ("Grace", "two", False, False),
        ("ada", "to two", False, True),
    ]
    assert rest["next"] is None
    detail = (await http.get(f"/api/conversations/{number}")).json()
    assert (detail["messageCount"], detail["archivedCount"], detail["openJobs"]) == (2, 2, [])


async def test_a_conversation_is_deleted(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    job_id = f"message-{rows.clock.now:%H%M%S}"
    assert (await http.delete(f"/api/conversations/{number}")).status_code == 204
    for path in (f"/api/conversations/{number}", f"/api/conversations/{number}/messages"):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
        assert "was deleted by operator" in answer.json()["message"]
    assert (await http.delete(f"/api/conversations/{number}")).status_code == 404
    assert await ids(http) == []
    job = await http.get(f"/api/jobs/{job_id}")
    assert (job.status_code, job.json()["conversationId"], job.json()["excerpt"]) == (200, None, "")
    assert job.json()["erased"]
    with rows.store.view() as tx:
        assert (tx.system.audit.list_latest_entries(1)[0].actor, tx.system.audit.list_latest_entries(1)[0].subject) == (
            "operator",
            str(number),
        )


async def test_one_that_is_spoken_in_is_not_deleted(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    job_id = rows.add("more")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, conversation_id=number)
    answer = await http.delete(f"/api/conversations/{number}")
    assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")
    assert job_id in answer.json()["message"]
    assert (await http.get(f"/api/conversations/{number}")).json()["openJobs"] == [job_id]


async def test_nobody_reads_without_a_password(rows: JobRows) -> None:
    async with client(app_of(rows)) as stranger:
        for path in ("", "/1", "/1/messages", "/search?q=x"):
            assert (await stranger.get(f"/api/conversations{path}")).status_code == 401

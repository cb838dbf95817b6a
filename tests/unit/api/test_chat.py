"""The #maestro chat for people: the API, and the page without scripts."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from api.parts import AgentChat
from maestro.domain.settings.jobs import ChatLimits, ChatSettings
from tests.support.api_client import BASIC, VIEWER, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import MOST_CHARS, SECRET, chat_of

NOTE = " (Note: content redacted by scanner)"
POSTING = 'action="/maestro"'


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to an API that has the chat, as the operator."""
    chat = AgentChat(
        chat_of(rows.store), lambda: ChatSettings(limits=ChatLimits(max_message_chars=MOST_CHARS), poll_ms=300)
    )
    async with client(app_of(rows, chat=chat), auth=BASIC) as http:
        yield http


async def texts(http: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await http.get(f"/api/chat{query}")
    assert answer.status_code == 200, answer.text
    return [post["text"] for post in answer.json()]


async def test_a_post_is_by_human_whatever_the_body_says(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/chat", json={"text": "hello", "author": "@ada", "session_id": "mine", "id": 7})
    assert (answer.status_code, answer.json()) == (200, {"id": 1, "success": True})
    [post] = (await http.get("/api/chat")).json()
    assert post == {"id": 1, "ts": post["ts"], "author": "@human", "text": "hello"}
    assert post["ts"].endswith("Z")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"it is {SECRET}", f"it is [redacted]{NOTE}"),
        ("x" * (MOST_CHARS + 1), "x" * (MOST_CHARS - 14) + " … [truncated]"),
        ("half \ud83d a pair \0 and a nul", "half \ufffd a pair  and a nul"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
async def test_a_post_is_kept_as_it_may_be(http: httpx.AsyncClient, text: str, kept: str) -> None:
    body = json.dumps({"text": text})  # plain ASCII, so half a character is sent as it is
    await http.post("/api/chat", content=body, headers={"Content-Type": "application/json"})
    assert await texts(http) == [kept]


@pytest.mark.parametrize("body", [{"text": ""}, {"text": " \n"}, {"text": 5}, {}])
async def test_what_says_nothing_is_refused_with_the_fix(http: httpx.AsyncClient, body: object) -> None:
    answer = await http.post("/api/chat", json=body)
    assert answer.status_code == 400
    assert "text" in answer.json()["message"]
    assert await texts(http) == []


async def test_who_asks_every_second_is_told_what_is_new_and_nothing_else(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    await http.post("/api/chat", json={"text": "one"})
    first = await http.get("/api/chat")
    tag = first.headers["ETag"]
    again = await http.get("/api/chat", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    await http.post("/api/chat", json={"text": "two"})
    assert (await http.get("/api/chat", headers={"If-None-Match": tag})).status_code == 200
    assert await texts(http, "?limit=1") == ["two"]
    assert await texts(http) == ["one", "two"]
    with rows.store.begin() as tx:
        tx.chat.open_session("another")
    empty = await http.get("/api/chat", headers={"If-None-Match": tag})
    assert (empty.status_code, empty.json()) == (200, [])


async def test_without_scripts_the_page_posts_and_shows(http: httpx.AsyncClient) -> None:
    led = await http.post("/maestro", data={"text": "from a form <b>"})
    assert (led.status_code, led.headers["Location"]) == (303, "/maestro#end")
    page = (await http.get("/maestro")).text
    assert "from a form &lt;b&gt;" in page
    assert "@human" in page
    refused = await http.post("/maestro", data={"text": "  "})
    assert refused.status_code == 400
    assert "a post must say something" in refused.text


async def test_without_the_chat_there_is_a_sentence_and_nothing_else(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC) as http:
        page = await http.get("/maestro")
        assert page.status_code == 200
        assert "Chat disabled by configuration" in page.text
        assert POSTING not in page.text
        assert (await http.post("/maestro", data={"text": "x"})).status_code == 405
        for method in ("GET", "POST"):
            assert (await http.request(method, "/api/chat", json={"text": "x"})).status_code == 404


async def test_who_only_looks_reads_the_posts_and_is_offered_no_place_to_write(http: httpx.AsyncClient) -> None:
    await http.post("/maestro", data={"text": "for everybody"})
    assert POSTING in (await http.get("/maestro")).text
    page = await http.get("/maestro", auth=VIEWER)
    assert "for everybody" in page.text
    assert POSTING not in page.text
    assert "<textarea" not in page.text


async def test_everything_asks_for_the_password(rows: JobRows) -> None:
    chat = AgentChat(chat_of(rows.store))
    async with client(app_of(rows, chat=chat)) as http:
        for method, path in (("GET", "/api/chat"), ("POST", "/api/chat"), ("GET", "/maestro"), ("POST", "/maestro")):
            assert (await http.request(method, path)).status_code == 401

"""What agents remember over the API: lists, searches, and what an operator adds, changes and forgets."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.memory.memory import Fact, FactCategory
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

MEMORY = "/api/agents/ada/memory"


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator, of an agent that knows a little."""
    with rows.store.begin() as tx:
        facts = ["likes tea", "lives in 東京", "likes green apples"]
        tx.memory.learn_facts(1, [Fact(FactCategory.USER_PREFERENCE, text) for text in facts], conversation_id=None)
        tx.memory.learn_facts(
            1, [Fact(FactCategory.STICKY, "never call")], conversation_id=None, memory_scope="1/web/x"
        )
        tx.memory.set_state(1, "last-topic", "tea")
        tx.memory.set_state(1, "mood", "fine", "1/web/x")
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def listed(http: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await http.get(MEMORY, params=query)
    assert answer.status_code == 200, answer.text
    return [fact["content"] for fact in answer.json()["items"]]


async def test_facts_come_newest_first_in_pages_with_the_states(http: httpx.AsyncClient) -> None:
    first = (await http.get(MEMORY, params={"limit": 3})).json()
    rest = (await http.get(MEMORY, params={"limit": 3, "cursor": first["next"]})).json()
    assert [fact["id"] for fact in first["items"] + rest["items"]] == [4, 3, 2, 1]
    assert rest["next"] is None
    assert [(state["key"], state["value"], state["place"]) for state in first["states"]] == [
        ("last-topic", "tea", ""),
        ("mood", "fine", "1/web/x"),
    ]
    shown = first["items"][0]
    assert {**shown, "createdAt": ""} == {
        "id": 4,
        "category": "sticky",
        "content": "never call",
        "place": "1/web/x",
        "confidence": 0.8,
        "sourceConversationId": None,
        "createdAt": "",
        "lastAccessed": None,
        "accessCount": 0,
    }


async def test_facts_are_found_by_words_category_and_place(http: httpx.AsyncClient) -> None:
    assert set(await listed(http, q="東京 tea?")) == {"lives in 東京", "likes tea"}
    assert await listed(http, q="likes", limit=1) == ["likes tea"]
    assert await listed(http, category="sticky") == ["never call"]
    assert len(await listed(http, place="1/web/y")) == 3
    assert len(await listed(http, q="?!")) == 4
    seen = (await http.get(MEMORY, params={"place": ""})).json()["states"]
    assert [state["key"] for state in seen] == ["last-topic"]


async def test_a_fact_is_added_changed_and_forgotten_and_each_is_noted(rows: JobRows, http: httpx.AsyncClient) -> None:
    made = await http.post(f"{MEMORY}/facts", json={"content": " has a\ncat ", "category": "sticky"})
    assert made.status_code == 201, made.text
    fact = made.json()
    assert (fact["content"], fact["confidence"], fact["place"]) == ("has a cat", 1, "")
    changed = await http.patch(f"{MEMORY}/facts/{fact['id']}", json={"content": "has two cats", "confidence": 0.5})
    assert (changed.json()["content"], changed.json()["category"]) == ("has two cats", "sticky")
    assert await listed(http, q="two") == ["has two cats"]
    assert (await http.delete(f"{MEMORY}/facts/{fact['id']}")).status_code == 204
    assert await listed(http, q="two") == []
    with rows.store.view() as tx:
        entries = [
            (entry.actor, entry.action, entry.subject, entry.detail) for entry in tx.system.audit.list_latest_entries(9)
        ]
    assert entries == [
        ("operator", "memory.forget", "ada", "fact 5"),
        ("operator", "memory.change", "ada", "fact 5"),
        ("operator", "memory.add", "ada", "fact 5"),
    ]


async def test_a_repeat_is_a_conflict_that_names_the_fact(http: httpx.AsyncClient) -> None:
    again = await http.post(f"{MEMORY}/facts", json={"content": "Likes tea!"})
    assert (again.status_code, again.json()["error"]) == (409, "Conflict")
    assert "fact 1" in again.json()["message"]
    changed = await http.patch(f"{MEMORY}/facts/3", json={"content": "likes the tea"})
    assert changed.status_code == 409


async def test_a_state_is_set_and_forgotten(http: httpx.AsyncClient) -> None:
    put = await http.put(f"{MEMORY}/state/plan/next", json={"value": "sleep"})
    assert (put.status_code, put.json()["key"], put.json()["value"]) == (200, "plan/next", "sleep")
    assert (await http.put(f"{MEMORY}/state/plan/next", json={"value": "eat"})).json()["value"] == "eat"
    assert (await http.delete(f"{MEMORY}/state/plan/next")).status_code == 204
    assert (await http.delete(f"{MEMORY}/state/plan/next")).status_code == 404
    assert (await http.delete(f"{MEMORY}/state/mood")).status_code == 404
    assert (await http.delete(f"{MEMORY}/state/mood", params={"place": "1/web/x"})).status_code == 204
    long = await http.put(f"{MEMORY}/state/{'k' * 101}", json={"value": "x"})
    assert (long.status_code, "101 characters" in long.json()["message"]) == (409, True)


async def test_everything_can_be_forgotten(http: httpx.AsyncClient) -> None:
    assert (await http.delete(MEMORY)).status_code == 204
    assert (await http.get(MEMORY)).json() == {"items": [], "states": [], "next": None}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("facts", {}),
        ("facts", {"content": "  "}),
        ("facts", {"content": "\x00"}),
        ("facts", {"content": "x" * 501}),
        ("facts", {"content": "x", "category": "secret"}),
        ("facts", {"content": "x", "mood": 1}),
        ("facts/1", {"confidence": 1.5}),
        ("facts/1", {"content": ""}),
        ("facts/0", {"content": "x"}),
        ("state/x", {"value": ""}),
        ("state/x", {"value": "x" * 2_001}),
    ],
)
async def test_another_shape_is_refused(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    method = {"facts": "POST", "state/x": "PUT"}.get(path, "PATCH")
    answer = await http.request(method, f"{MEMORY}/{path}", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")


async def test_what_does_not_exist_is_not_found(http: httpx.AsyncClient) -> None:
    for answer in (
        await http.get("/api/agents/nobody/memory"),
        await http.delete("/api/agents/nobody/memory"),
        await http.patch(f"{MEMORY}/facts/77", json={}),
        await http.delete(f"{MEMORY}/facts/77"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
    for query in ("cursor=x", "limit=0", "category=mood", "day=1"):
        assert (await http.get(f"{MEMORY}?{query}")).status_code == 400

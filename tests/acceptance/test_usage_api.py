"""Usage and clients over the API."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from maestro.domain.llm.prompts import ToolCall
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.usage_rows import answered, failed, use


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    use(rows)
    yield rows
    rows.store.close()


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def test_usage_is_added_up_by_day_unless_somebody_asks_otherwise(http: httpx.AsyncClient) -> None:
    page = (await http.get("/api/usage")).json()
    assert page == {
        "items": [
            {
                "key": "2026-11-21",
                "calls": 3,
                "failures": 1,
                "interrupted": 1,
                "inputTokens": 150,
                "outputTokens": 10,
                "cachedTokens": 60,
                "costUsd": 0.25,
                "unknownCost": 1,
                "interruptedCostUsd": 0.125,
            },
            {
                "key": "2026-11-20",
                "calls": 1,
                "failures": 0,
                "interrupted": 0,
                "inputTokens": 100,
                "outputTokens": 10,
                "cachedTokens": 60,
                "costUsd": 0.5,
                "unknownCost": 0,
                "interruptedCostUsd": None,
            },
        ],
        "next": None,
    }


async def test_the_last_thirty_days_are_shown_unless_somebody_asks_otherwise(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    rows.clock.go(days=29)
    keys = [item["key"] for item in (await http.get("/api/usage")).json()["items"]]
    assert keys == ["2026-11-21"]
    keys = [item["key"] for item in (await http.get("/api/usage?since=2026-11-20")).json()["items"]]
    assert keys == ["2026-11-21", "2026-11-20"]


async def test_a_page_ends_with_the_cursor_of_the_next(http: httpx.AsyncClient) -> None:
    first = (await http.get("/api/usage", params={"by": "client", "limit": 1})).json()
    second = (await http.get("/api/usage", params={"by": "client", "limit": 1, "cursor": first["next"]})).json()
    assert [page["items"][0]["key"] for page in (first, second)] == ["Acme", None]
    assert second["next"] is None


@pytest.mark.parametrize(
    "query",
    [
        "by=mood",
        "since=yesterday",
        "since=9999-12-31",
        "until=9999-12-31",
        "until=0001-01-05",
        "cursor=x",
        "since=2026-11-21&until=2026-11-20",
        "limit=0",
        "day=1",
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_reason(query: str, http: httpx.AsyncClient) -> None:
    answer = await http.get(f"/api/usage?{query}")
    assert answer.status_code == 400
    assert answer.json()["message"]


async def test_clients_are_shown_with_what_was_spent_for_them_today(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.clock.go(days=-1)
    page = (await http.get("/api/clients?limit=1")).json()
    assert page == {
        "items": [
            {
                "name": "Acme",
                "slug": "",
                "plan": "per_task",
                "configured": True,
                "dailyBudgetUsd": 2.0,
                "weight": 1.0,
                "spentUsd": 0.5,
                "reservedUsd": 0.0,
            },
        ],
        "next": "Acme",
    }
    (globex,) = (await http.get("/api/clients?cursor=Acme")).json()["items"]
    assert (globex["name"], globex["configured"], globex["spentUsd"]) == ("Globex", False, 0)


async def test_a_jobs_calls_say_which_account_answered_what_was_cached_and_which_tools_were_wanted(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    job_id = rows.add()
    call = ToolCall(id="call_1_0", name="search", arguments='{"q": "private"}')
    answered(rows, job_id, 0.5, tools=(call,))
    answer = await http.get(f"/api/jobs/{job_id}")
    (shown,) = answer.json()["calls"]
    assert (shown["account"], shown["cachedTokens"], shown["tools"]) == ("main", 60, ["search"])
    assert "private" not in answer.text


async def test_an_answer_of_nothing_is_among_what_a_job_cost(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    failed(rows, job_id)
    assert (await http.get(f"/api/jobs/{job_id}")).json()["costUsd"] == 0.25

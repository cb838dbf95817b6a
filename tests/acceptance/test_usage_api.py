"""Usage and clients over the API."""

import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.budgets import NewClient
from maestro.domain.llm.prompts import ToolCall
from maestro.domain.settings.llm import BudgetSettings
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
    assert page["items"] == [
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
    ]
    assert (page["next"], page["since"], page["until"]) == (None, "2026-10-23", "2026-11-21")


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


@pytest.mark.parametrize("text", ["[" * 20_000, '["\\ud800", 1]', f'["x", 1{"0" * 400}]', "", "x", "[[], 1]"])
async def test_a_cursor_that_somebody_made_up_is_refused(text: str, http: httpx.AsyncClient) -> None:
    made_up = base64.urlsafe_b64encode(text.encode()).decode()
    answer = await http.get("/api/usage", params={"by": "model", "cursor": made_up})
    assert answer.status_code == 400
    assert answer.json()["message"] == "cursor: this is not a cursor from an earlier answer"


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
            }
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


async def test_the_sum_of_all_and_that_of_as_many_days_before_stand_beside_a_page(http: httpx.AsyncClient) -> None:
    page = (await http.get("/api/usage?since=2026-11-21&until=2026-11-21&by=account&limit=1")).json()
    assert (page["totals"]["calls"], page["totals"]["costUsd"], page["totals"]["interruptedCostUsd"]) == (
        3,
        0.25,
        0.125,
    )
    assert (page["before"]["calls"], page["before"]["costUsd"]) == (1, 0.5)
    page = (await http.get("/api/usage?until=2020-01-01")).json()
    assert (page["totals"]["calls"], page["totals"]["costUsd"]) == (0, None)


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        ("agent=ada", 3),
        ("account=spare&by=agent", 1),
        ("model=anthropic/llama3&by=job", 1),
        ("client=Acme&by=day", 1),
        ("platform=slack", 0),
        ("purpose=answer&by=conversation", 4),
        ("agent=", 4),
    ],
)
async def test_filters_go_with_whatever_it_is_added_up_by(query: str, calls: int, http: httpx.AsyncClient) -> None:
    page = (await http.get(f"/api/usage?{query}")).json()
    assert sum(item["calls"] for item in page["items"]) == page["totals"]["calls"] == calls


async def test_a_file_for_a_spreadsheet_has_every_line_and_no_formula(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        evil = tx.users.clients.set_configured(NewClient(name='=HYPERLINK("http://evil.example")'))
        tx.jobs.update_job(job_id, client_id=evil.id)
    answered(rows, job_id, 2)
    answer = await http.get("/api/usage.csv?by=client")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert answer.headers["content-disposition"] == 'attachment; filename="usage-by-client.csv"'
    lines = answer.text.split("\r\n")
    assert lines[0].startswith("client,calls,failures,")
    assert [line.split(",")[0] for line in lines[1:-1]] == ['"\'=HYPERLINK(""http://evil.example"")"', "Acme", ""]
    assert lines[2].endswith(",0.5,0,")
    assert lines[-1] == ""


async def test_how_long_each_step_took_and_the_same_as_a_file(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    page = (await http.get("/api/usage/latency")).json()
    spread = {"count": 1, "p50Ms": 250.0, "p95Ms": 250.0, "p99Ms": 250.0}
    assert (page["jobs"], page["perDay"], page["next"]) == (1, 33, None)
    assert page["items"] == [{"stage": stage, **spread} for stage in ("answer", "context")]
    assert page["days"] == [{"day": "2026-11-21", **one} for one in page["items"]]
    assert (await http.get("/api/usage/latency?agent=nobody")).json()["items"] == []
    assert (await http.get("/api/usage/latency?model=gpt")).status_code == 400
    lines = (await http.get("/api/usage/latency.csv")).text.splitlines()
    assert (lines[0], lines[2]) == ("day,stage,count,p50_ms,p95_ms,p99_ms", ",context,1,250.0,250.0,250.0")
    assert lines[4] == "2026-11-21,context,1,250.0,250.0,250.0"


async def test_how_far_each_budget_is_used_and_when_it_starts_anew(rows: JobRows) -> None:
    rows.clock.go(days=-1)
    limits = {"day_usd": 0.6, "agent_day_usd": 0.5, "conversation_day_usd": 3}
    budgets = BudgetSettings(**limits, fallback_model="ollama/llama3", on_limit="fallback")
    async with client(app_of(rows, budgets=lambda: budgets), auth=BASIC) as http:
        page = (await http.get("/api/usage/budgets")).json()
    assert [(one["scope"], one["name"], one["share"], one["state"]) for one in page["items"]] == [
        ("day", None, 0.8333, "near"),
        ("agent", "ada", 1.0, "used up"),
        ("client", "Acme", 0.25, "fine"),
    ]
    assert page["items"][2] == {
        "scope": "client", "name": "Acme", "limitUsd": 2.0, "usedUsd": 0.5, "reservedUsd": 0.0, "share": 0.25,
        "state": "fine",
    }  # fmt: skip
    assert (page["day"], page["startsAnewAt"]) == ("2026-11-20", "2026-11-21T00:00:00Z")
    assert page["fallbackModel"] == "ollama/llama3"

"""The page of usage and cost, over a store with calls of two days."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from maestro.domain.jobs.job import JobStatus
from maestro.domain.settings.llm import BudgetSettings
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.support.usage_rows import answered, use


@pytest_asyncio.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    async with client(app_of(rows, budgets=lambda: BudgetSettings(day_usd=0.45)), auth=BASIC) as http:
        yield http


async def page(http: httpx.AsyncClient, query: str = "", status: int = 200) -> str:
    answer = await http.get(f"/usage{query}")
    assert answer.status_code == status
    return answer.text


async def test_what_is_known_what_is_not_and_what_was_cut_off_are_told_apart(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    use(rows)
    text = await page(http)
    assert '<p class="big-number">$0.75</p>' in text
    assert "1 calls of unknown price; 1 that were cut off, estimated at $0.12" in text
    assert "and 1 of unknown cost" in text
    assert "nothing before" in text


async def test_plots_are_drawn_without_a_script_and_say_in_words_what_they_show(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    use(rows)
    text = await page(http)
    assert "<title>2026-11-20: ada $0.50</title>" in text
    assert '<path class="piece colour-1" d="M' in text
    assert text.count('role="img" aria-labelledby="') == 2
    assert "style=" not in text


async def test_filters_live_in_the_address_and_in_the_links_of_files(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    text = await page(http, "?by=account&agent=ada&since=2026-11-20")
    assert '<a href="/usage?by=account&amp;agent=ada&amp;since=2026-11-20&amp;account=main">main</a>' in text
    assert "spare" not in text
    assert 'href="/api/usage.csv?since=2026-11-20&amp;agent=ada&amp;by=account"' in text
    assert 'href="/api/usage.csv?since=2026-11-20&amp;agent=ada&amp;by=day"' in text
    assert 'value="ada"' in text


async def test_what_belongs_to_nobody_is_named_so(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    assert '<th scope="row">no name</th>' in await page(http, "?by=client")


async def test_how_long_steps_took_and_how_far_budgets_are_used(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    job_id = rows.add()
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    text = await page(http)
    assert "Of 1 completed jobs from 2026-10-23 to 2026-11-21: the newest 33 of each day." in text
    assert '<td data-label="p50" class="number">250 ms</td>' in text
    assert 'aria-label="Budget of all users">84 %</meter>' in text
    assert '<span class="tag warn">near</span>' in text
    assert '<span class="tag good">fine</span>' in text


async def test_with_nothing_to_show_it_says_what_to_do(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "Write to an agent in the" in await page(http)
    use(rows)
    assert "Remove a filter" in await page(http, "?agent=nobody")
    assert "Remove a filter" in await page(http, "?until=2020-01-01")


@pytest.mark.parametrize("query", ["?by=mood", "?by=job", "?since=yesterday", "?since=2026-11-21&until=2026-11-20"])
async def test_a_filter_that_cannot_be_is_said(query: str, http: httpx.AsyncClient) -> None:
    assert '<p class="problem" role="alert">' in await page(http, query, 400)


async def test_years_are_drawn_by_month(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    text = await page(http, "?since=2024-01-01")
    assert "<title>2026-11: ada $0.75</title>" in text
    assert text.count("<title>") < 100


async def test_centuries_are_drawn_by_year(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    text = await page(http, "?since=2000-01-01&until=2039-12-31")
    assert "<title>2026: ada $0.75</title>" in text
    assert text.count("<title>") < 100


async def test_one_day_is_beside_the_day_before(rows: JobRows, http: httpx.AsyncClient) -> None:
    use(rows)
    text = await page(http, "?since=2026-11-21&until=2026-11-21")
    assert "; the day before $0.50" in text
    assert '<th scope="row">The day before</th>' in text
    assert "1 days" not in text


async def test_of_many_budgets_the_fullest_are_shown(rows: JobRows) -> None:
    for number in range(40):
        add_agent(rows, f"agent-{number:02}")
    answered(rows, rows.add(agent="agent-39"), 0.5)
    budgets = BudgetSettings(day_usd=100, agent_day_usd=1)
    async with client(app_of(rows, budgets=lambda: budgets), auth=BASIC) as http:
        text = await page(http)
    shown = re.findall(r'<tr data-row><th scope="row">((?:all users|agent )[^<]*)', text)
    assert shown[:2] == ["all users", "agent agent-39"]
    assert len(shown) == 31
    assert '<a href="/api/usage/budgets">the API</a> lists all 42' in text


async def test_names_from_outside_are_text(rows: JobRows, http: httpx.AsyncClient) -> None:
    answered(rows, rows.add(), 1, account="<script>alert(1)</script>")
    text = await page(http, "?by=account")
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text

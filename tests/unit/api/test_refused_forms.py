"""The page that says why a form was not taken lies where the form was sent, and leads to pages all the same."""

import html
import re
from collections.abc import AsyncIterator, Mapping

import httpx
import pytest

from tests.support.api_client import BASIC, PASSWORD, app_of, client
from tests.support.every_change import stage
from tests.support.job_rows import JobRows

LINK = re.compile(r'(?:href|hx-get)="(/[^"#]*)')
MANY = 101
"""More than a page of a list shows."""


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("/memory/facts", {"agent": "ada"}),
        ("/memory/facts/change?q=apples", {"agent": "ada", "number": "77", "content": "likes plums"}),
        ("/conversations/2/close", {}),
        ("/schedules", {"agent": "ada", "channel": "news", "schedule": "never"}),
        ("/schedules/preview", {"schedule": "never"}),
        ("/webhooks", {"path": "A path", "agent": "ada"}),
        ("/skills/try", {"message": "tea", "agent": "nobody"}),
        ("/questions/answer", {"number": "77", "words": "green"}),
        ("/accounts/add", {"name": ""}),
        ("/settings/change", {"key": "routing.messagesPerMinute", "value": "seven"}),
        ("/agent/ada", {"daily_budget_usd": "much"}),
        ("/agents", {"slug": "A slug"}),
    ],
)
async def test_every_link_of_it_leads_to_a_page(
    rows: JobRows, http: httpx.AsyncClient, form: str, data: Mapping[str, str]
) -> None:
    stage(rows)
    with rows.store.begin() as tx:
        tx.conversations.close_conversation(2)
    for number in range(MANY if form.startswith("/schedules") else 0):
        plan = {"kind": "cron", "agent": "ada", "schedule": "0 9 * * *", "prompt": "Go.", "channel": f"c{number}"}
        assert (await http.post("/schedules", data=plan)).status_code == 303
    refused = await http.post(form, data=data)
    assert refused.status_code < 500
    links = {html.unescape(link) for link in LINK.findall(refused.text)}
    assert "/queue" in links
    dead = [link for link in links if (await http.get(link)).status_code >= 400]
    assert dead == []


BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nowhere", 404, "There is nothing at /nowhere."),
        ("/queue/a/b", 404, "There is nothing at /queue/a/b."),
        ("/queue/message-1/calls/one", 400, "Call_id: Input should be a valid integer"),
        ("/logout", 405, "GET is not allowed at /logout."),
    ],
)
async def test_a_person_gets_a_page_with_the_way_on_and_a_program_json(
    http: httpx.AsyncClient, path: str, status: int, words: str
) -> None:
    page = await http.get(path, headers=BROWSER)
    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert f'<p class="problem" role="alert">{words}' in page.text
    assert '<a class="button" href="/queue">Jobs</a>' in page.text
    assert (await http.get(path)).json()["message"]
    assert (await http.get("/api/nowhere", headers=BROWSER)).json()["error"] == "NotFound"


async def test_an_unknown_page_lists_the_pages_only_to_who_is_logged_in(rows: JobRows) -> None:
    async with client(app_of(rows), headers=BROWSER) as http:
        assert 'id="rail"' not in (await http.get("/nowhere")).text
        await http.post("/login", data={"password": PASSWORD})
        assert 'id="rail"' in (await http.get("/nowhere")).text

"""The first page: what works, what waits and what fails, with a link to each."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.llm.accounts import AccountSource, AccountStatus, ModelAccount
from maestro.domain.messages import Address
from tests.support.api_client import BASIC, FixedHealth, app_of, client, parts
from tests.support.job_rows import JobRows
from tests.support.questions import waiting_approval
from tests.support.wishes import wish

NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
VIEWER = ("viewer", "only for looking at it all")


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def text_of(http: httpx.AsyncClient) -> str:
    page = await http.get("/")
    assert page.status_code == 200, page.text
    return re.sub(r"\s+", " ", page.text)


def problems(page: str) -> list[str]:
    """Return what the page says does not work; none only where it says that everything works."""
    found = re.search(r'<ul class="problems".*?</ul>', page)
    assert bool(found) != ("all healthy<" in page)
    return [re.sub(r"<[^>]+>", "", one) for one in re.findall(r"<li>(.*?)</li>", found[0])] if found else []


def add_account(rows: JobRows, name: str, status: AccountStatus = AccountStatus.ACTIVE) -> None:
    """Add an account as the API does."""
    with rows.store.begin() as tx:
        tx.llm.accounts.add_account(
            ModelAccount(
                name=name,
                provider="anthropic",
                model="claude-haiku-4-5",
                status=status,
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )


def answered(rows: JobRows, seconds: float) -> str:
    """Add a message whose answer is sent after so long, and a quarter of a second."""
    job_id = rows.add()
    rows.clock.go(seconds=seconds)
    rows.worked(job_id)
    return rows.end(job_id, JobStatus.COMPLETED)


async def test_a_fresh_maestro_says_what_to_do_next(http: httpx.AsyncClient) -> None:
    page = await text_of(http)
    assert 'href="/chat">Write to your agents</a>' in page
    for link in ("/accounts#add-account", "/accounts#connectors", "/agents"):
        assert f'href="{link}"' in page
    assert "all healthy<" in page


async def test_what_is_to_do_and_what_was_done_lead_to_the_jobs(rows: JobRows, http: httpx.AsyncClient) -> None:
    first = rows.add("hello")
    rows.add("again")
    rows.end(rows.add(), JobStatus.COMPLETED)
    page = await text_of(http)
    assert "Write to your agents" not in page
    assert '<a href="/queue?status=pending">2 pending</a>' in page
    assert f'next job, created <a href="/queue/{first}">' in page
    assert '<a href="/queue?status=completed&amp;age=24h">1 completed</a>' in page
    rows.clock.go(hours=30)
    assert "none ended" in await text_of(http)


async def test_failures_are_put_together_with_a_link_to_just_these(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(3):
        rows.failed(error="ProviderDown", reason=f"no answer after {number} s")
    newest = rows.failed(error="Refused", reason=NASTY)
    page = await text_of(http)
    (link,) = re.findall(r'href="(/queue\?status=failed[^"]*error=ProviderDown[^"]*)">3<', page)
    listed = (await http.get(link.replace("&amp;", "&"))).text
    assert listed.count("message-0800") >= 3
    assert newest not in listed
    assert f'href="/queue/{newest}"' in page
    assert "<script>alert" not in page
    assert "<img" not in page


async def test_a_job_that_waits_for_a_person_says_since_when(rows: JobRows, http: httpx.AsyncClient) -> None:
    asked = waiting_approval(rows)
    wish(rows, "bob", "ABCDEFGH")
    page = await text_of(http)
    assert f'longest wait for a person <a href="/queue/{asked.job_id}">' in page
    assert '<strong class="number">1</strong> question or approval</a>' in page
    assert '<strong class="number">1</strong> access request' in page


async def test_the_time_to_the_first_answer_is_that_of_the_newest_messages(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    assert "No answer in the last hour" in await text_of(http)
    for seconds in (4, 8):
        answered(rows, seconds)
    with rows.store.view() as tx:
        first, second = sorted(took for _, took in tx.system.overview.read_first_answers(tx.now - timedelta(days=1)))
    assert (first, second) == (timedelta(seconds=4.25), timedelta(seconds=8.25))
    page = await text_of(http)
    assert '<strong class="number">4.2 s</strong> p50' in page
    assert '<strong class="number">8.2 s</strong> p95' in page
    assert "the last hour, 2 messages" in page
    rows.clock.go(hours=2)
    page = await text_of(http)
    assert "No answer in the last hour" in page
    assert "the last day, 2 messages" in page


async def test_scheduled_work_and_unsent_answers_are_not_timed(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.end(rows.add(kind=JobKind.CRON), JobStatus.COMPLETED)
    rows.end(rows.add(), JobStatus.COMPLETED)
    rows.failed()
    assert "No answer in the last day" in await text_of(http)


async def test_what_does_not_work_is_said_first(rows: JobRows) -> None:
    broken = FixedHealth(store="ok", temporal="nobody answers at <b>localhost:7233</b>", worker="ok")
    async with client(app_of(rows, health=broken), auth=BASIC) as http:
        page = await text_of(http)
    assert "all healthy<" not in page
    assert '<strong>temporal</strong>: <span dir="auto">nobody answers at &lt;b&gt;localhost:7233' in page


async def test_failed_jobs_of_a_day_are_a_problem(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    assert problems(await text_of(http)) == ["Failed jobs: 1 in the last 24 hours"]
    assert '<a href="/queue?status=failed&amp;age=24h&amp;group=error">Failed jobs</a>' in await text_of(http)
    rows.clock.go(hours=25)
    assert problems(await text_of(http)) == []


async def test_a_refused_key_is_a_problem_and_a_disabled_account_is_none(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    for name in ("main", "spare"):
        add_account(rows, name)
    with rows.store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("main"))
    assert problems(await text_of(http)) == ["Account main: anthropic refuses its key, so the account is not called"]
    with rows.store.begin() as tx:
        tx.llm.accounts.cool_down("spare", "", timedelta(minutes=7), (timedelta(minutes=1),))
    assert problems(await text_of(http))[1:] == ["Accounts: no account can be called now: each is limited or disabled"]
    await http.delete("/api/accounts/main")
    await http.patch("/api/accounts/spare", json={"status": "active"})
    assert problems(await text_of(http)) == []


async def test_a_closed_channel_and_a_broken_connector_are_problems(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.bots.channels.disable(Address(platform="discord", account="default", channel="c-1"), "the bot was removed")
        tx.users.record_connector_state("web", "default", "degraded", "the socket is gone", trouble=True)
    page = await text_of(http)
    assert problems(page) == [
        "web/default: the socket is gone",
        "Closed channels: 1 channel is refused by the platform, so no answer is sent there",
    ]
    assert 'href="/accounts#channels"' in page
    assert 'href="/accounts#connector-web-default"' in page


async def test_connectors_say_how_they_are_and_what_is_pending(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.add(platform="web")
    with rows.store.begin() as tx:
        tx.users.record_connector_state("web", "default", "failed", NASTY, trouble=True)
        tx.users.record_connector_event("web", "default", timedelta(seconds=3))
    page = await text_of(http)
    assert '<span class="tag bad">failed</span>' in page
    assert ", 3.0 s late" in page
    assert '<a href="/queue?status=pending&amp;platform=web">1 pending</a>' in page
    assert "<script>alert" not in page


async def test_accounts_that_are_not_asked_say_until_when(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "Accounts not in use (limited or disabled)" not in await text_of(http)
    add_account(rows, "main")
    add_account(rows, "spare", AccountStatus.DISABLED)
    with rows.store.begin() as tx:
        tx.llm.accounts.cool_down("main", "claude-haiku-4-5", timedelta(minutes=7), (timedelta(minutes=1),))
    page = await text_of(http)
    assert "Accounts not in use (limited or disabled)" in page
    assert "in 7 min" in page
    assert "an operator enables it" in page


async def test_the_budget_of_the_day_is_measured(http: httpx.AsyncClient) -> None:
    await http.patch("/api/settings", json={"budgets.dayUsd": 0})
    assert "no daily budget" in await text_of(http)
    await http.patch("/api/settings", json={"budgets.dayUsd": 12.5})
    page = await text_of(http)
    assert "$12.50" in page
    assert "<meter" in page


async def test_what_is_open_to_others_is_said(rows: JobRows) -> None:
    async with client(app_of(rows, password="")) as http:
        assert "No password is set" in await text_of(http)


async def test_nothing_new_is_told_without_a_page(rows: JobRows, http: httpx.AsyncClient) -> None:
    tag = (await http.get("/")).headers["etag"]
    known = {"If-None-Match": tag}
    assert (await http.get("/", headers=known)).status_code == 304
    rows.clock.go(minutes=1)
    assert (await http.get("/", headers=known)).status_code == 200
    rows.clock.go(minutes=-1)
    assert (await http.get("/", headers=known)).status_code == 304
    rows.add()
    assert (await http.get("/", headers=known)).status_code == 200


async def test_a_viewer_sees_everything_and_is_not_asked_to_write(rows: JobRows) -> None:
    guard = replace(parts(rows).guard, viewer_password=VIEWER[1])
    async with client(app_of(rows, guard=guard), auth=VIEWER) as http:
        page = await text_of(http)
    assert "No messages yet" in page
    assert "Write to your agents" not in page

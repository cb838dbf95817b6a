"""The page of jobs: what it lists, counts, filters and groups."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.job import JobKind, JobStatus
from tests.support.api_client import BASIC, PASSWORD, app_of, client, parts
from tests.support.job_rows import JobRows

PAGE = "/queue"
NASTY = "<script>alert(1)</script>\"'&"
INERT = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;"


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def listed(http: httpx.AsyncClient, **asked: str) -> list[str]:
    """Return the ids of the jobs on the page, in its order."""
    page = await http.get(PAGE, params=asked)
    assert page.status_code == 200, page.text
    return re.findall(r'id="row-([^"]+)" data-row', page.text)


def counts(page: str) -> dict[str, str]:
    """Return the number beside each status."""
    return dict(re.findall(r'data-status="(\w+)"[^>]*>\w+ <span class="number">([\d,]+)<', page))


async def test_jobs_are_listed_newest_first_with_what_operators_ask_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    old = rows.add("how is the weather?")
    new = rows.failed("what is the time?", error="ProviderDown", reason="the provider is down")
    page = (await http.get(PAGE)).text
    assert re.findall(r'id="row-([^"]+)"', page) == [new, old]
    assert f'href="/queue/{new}"' in page
    row = page[page.index(f'id="row-{new}"') : page.index(f'id="row-{old}"')]
    for word in (
        "failed",
        "what is the time?",
        "Grace",
        "ada",
        "web",
        "general",
        "ProviderDown",
        "the provider is down",
    ):
        assert word in row


async def test_each_status_has_its_count_and_leads_to_its_jobs(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed = [rows.failed(), rows.failed()]
    done = rows.end(rows.add(), JobStatus.COMPLETED)
    page = (await http.get(PAGE, params={"status": "failed"})).text
    assert counts(page) == {
        **dict.fromkeys(("pending", "running", "waiting", "cancelled", "dropped", "merged"), "0"),
        "completed": "1",
        "failed": "2",
    }
    assert re.search(r'data-status="failed"[^>]*aria-current="true"', page)
    assert await listed(http, status="failed") == failed[::-1]
    assert await listed(http, status="completed") == [done]
    assert 'all <b class="number">2</b> that match' in page


async def test_every_filter_narrows_the_list(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="bob", name="Bob", created_at=tx.now, updated_at=tx.now))
    mail = rows.add("the parcel of Monday", platform="discord", agent="bob", user="Linus")
    beat = rows.add("look", kind=JobKind.HEARTBEAT)
    with rows.store.begin() as tx:
        tx.jobs.update_job(beat, priority=10)
    broken = rows.failed(error="ToolFailed")
    assert await listed(http, agent="bob") == [mail]
    assert await listed(http, platform="discord") == [mail]
    assert await listed(http, kind="heartbeat") == [beat]
    assert await listed(http, error="ToolFailed") == [broken]
    assert await listed(http, priority="10") == [beat]
    assert await listed(http, q="PARCEL") == [mail]
    assert await listed(http, q="linus", status="failed") == []
    # An empty field of the form means all.
    assert await listed(http, agent="", platform="", kind="", error="", priority="", q="", age="", status="") == [
        broken,
        beat,
        mail,
    ]


async def test_an_age_looks_back_from_now(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.add("of yesterday")
    rows.clock.go(hours=23)
    new = rows.add("of today")
    assert await listed(http, age="1h") == [new]
    assert len(await listed(http, age="24h")) == 2
    page = (await http.get(PAGE, params={"age": "1h"})).text
    assert '<option value="1h" selected>' in page


async def test_a_time_of_the_clock_finds_what_came_or_was_open_then(rows: JobRows, http: httpx.AsyncClient) -> None:
    ended = rows.end(rows.add("long before"), JobStatus.COMPLETED)
    waiting = rows.add("open since the morning")
    slow = rows.add("ends in three hours")
    rows.clock.go(hours=2)
    missed = rows.failed("no answer")
    minute = f"{rows.clock.now:%Y-%m-%dT%H:%M}"
    rows.clock.go(hours=1)
    rows.end(slow, JobStatus.COMPLETED)
    later = rows.add("much later")
    assert await listed(http, at=minute) == [missed, slow, waiting]
    assert {ended, later}.isdisjoint(await listed(http, at=minute, status=""))
    page = (await http.get(PAGE, params={"at": minute})).text
    assert f'name="at" type="datetime-local" value="{minute}"' in page
    assert f'hx-get="{PAGE}?at={quote(minute, safe="")}"' in page
    assert (await http.get("/api/jobs", params={"at": f"{minute}Z"})).json()["items"][0]["id"] == missed
    assert "at" in (await http.get(PAGE, params={"at": "half past ten"})).text


async def test_each_job_says_when_it_was_created(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.add()
    rows.clock.go(days=1)
    rows.add()
    page = (await http.get(PAGE)).text
    assert re.findall(r"data-clock>([^<]+)<", page) == ["08:00:02", "11-20 08:00"]
    assert 'title="2026-11-20 08:00:01 UTC"' in page
    assert "Time, <span data-zone>UTC</span>" in page


async def test_an_outage_is_one_row_with_one_replay(rows: JobRows, http: httpx.AsyncClient) -> None:
    other = [rows.failed(reason="no answer within 1 s") for _ in range(6)]
    rows.clock.go(hours=1)
    first = rows.clock.now + timedelta(seconds=1)
    outage = [rows.failed(reason=f"no answer within {number} s") for number in range(70)]
    between = rows.failed(error="ToolFailed", reason="the tool failed")
    rows.failed(reason="no answer within 9 s")
    page = (await http.get(PAGE)).text
    assert await listed(http) == [between]
    assert "<b>71 similar failures</b>" in page
    assert "<b>6 similar failures</b>" in page
    assert f'datetime="{first.isoformat()}"' in page
    (wanted,) = re.findall(r'id="all-[^"]+".*?name="filter" value="([^"]+)"', page)[:1]
    forecast = await http.post(
        f"{PAGE}/replay/preview", data={"action": "resume", "all": "1", "filter": unescape(wanted)}
    )
    assert "Resume 71 jobs" in forecast.text
    (link,) = re.findall(r'href="([^"]+)" aria-label="Show the 71 jobs', page)
    single = re.findall(r'id="row-([^"]+)" data-row', (await http.get(unescape(link))).text)
    assert len(single) == 50
    assert set(single) <= {*outage, *re.findall(r"message-\d+", page)} - set(other)


async def test_few_failures_are_listed_singly(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed = [rows.failed(reason=f"no answer within {number} s") for number in range(4)]
    assert await listed(http) == failed[::-1]


async def test_the_form_keeps_what_came_with_a_link_and_offers_to_leave_it_out(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    rows.add()
    page = (await http.get(PAGE, params={"channel": "elsewhere", "status": "failed", "agent": "ada"})).text
    assert '<input type="hidden" name="channel" value="elsewhere">' in page
    assert '<input type="hidden" name="status" value="failed">' in page
    assert '<option value="ada" selected>' in page
    (without,) = re.findall(r'href="([^"]+)" title="Remove this filter"', page)
    assert parse_qs(urlsplit(without.replace("&amp;", "&")).query) == {"status": ["failed"], "agent": ["ada"]}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"status": "broken"}, "status[0]: expected"),
        ({"priority": "11"}, "priority: must be at most 10"),
        ({"priority": "soon"}, "priority:"),
        ({"cursor": "nonsense"}, "this page of the list does not exist"),
        ({"since": "yesterday"}, "since:"),
        ({"q": "x" * 1001}, "q: must have at most 1000 characters"),
    ],
)
async def test_a_filter_that_cannot_be_is_said_on_the_page(
    rows: JobRows, http: httpx.AsyncClient, asked: dict[str, str], sentence: str
) -> None:
    rows.add()
    page = await http.get(PAGE, params=asked)
    assert page.status_code == 400
    assert sentence in page.text
    assert 'role="alert"' in page.text
    # Nothing is counted as none, and the address is not asked again each second.
    assert "data-status" not in page.text
    assert "data-live" not in page.text


async def test_long_lists_have_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    ids = [rows.add() for _ in range(53)]
    first = (await http.get(PAGE)).text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = (await http.get(following.replace("&amp;", "&"))).text
    shown = [re.findall(r'id="row-([^"]+)"', page) for page in (first, second)]
    assert [len(page) for page in shown] == [50, 3]
    assert shown[0] + shown[1] == ids[::-1]
    assert "First page" in second


async def test_an_empty_store_and_an_empty_filter_say_what_to_do(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "No job yet" in (await http.get(PAGE)).text
    rows.add()
    nothing = (await http.get(PAGE, params={"agent": "nobody"})).text
    assert "No job matches" in nothing
    assert 'href="/queue"' in nothing


async def test_failures_are_grouped_by_what_went_wrong(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(3):
        rows.failed(error="ProviderDown", reason=f"request {number} was not answered in {number} seconds")
    tool = rows.failed(error="ToolFailed", reason="it broke")
    rows.end(rows.add(), JobStatus.COMPLETED)
    page = (await http.get(PAGE, params={"group": "error", "status": "completed"})).text
    assert len(re.findall(r'id="group-\d+"', page)) == 2
    assert page.index("ToolFailed") < page.index("ProviderDown")
    assert "request * was not answered in * seconds" in page
    assert "Resume all 3" in page
    assert f'href="/queue/{tool}"' in page
    shown = re.findall(r'<a class="button small" href="([^"]+)"', page)
    of_group = (await http.get(shown[1].replace("&amp;", "&"))).text
    assert len(re.findall(r'id="row-', of_group)) == 3


async def test_the_button_of_a_group_means_its_jobs_and_no_others(rows: JobRows, http: httpx.AsyncClient) -> None:
    ours = {rows.failed(error="ProviderDown", reason=f"request {number}") for number in (1, 22)}
    rows.failed(error="ProviderDown", reason="another reason")
    rows.add("request 3")
    page = (await http.get(PAGE, params={"group": "error", "agent": "ada"})).text
    forms = re.findall(r'name="filter" value="([^"]+)"', page)
    (wanted,) = [form.replace("&#34;", '"') for form in forms if "request" in form]
    told = await http.post(f"{PAGE}/replay/preview", data={"action": "resume", "all": "1", "filter": wanted})
    assert "Resume 2 jobs?" in told.text
    led = await http.post(f"{PAGE}/replay", data={"action": "resume", "all": "1", "filter": wanted, "expected": "2"})
    with rows.store.view() as tx:
        items = tx.jobs.batches.list_items(led.headers["Location"].rsplit("/", 1)[1], (), 0, 9)
    assert {item.job_id for item in items} == ours


async def test_nothing_failed_is_good_news(http: httpx.AsyncClient) -> None:
    assert "Nothing failed" in (await http.get(PAGE, params={"group": "error"})).text


async def test_texts_of_others_stay_texts(rows: JobRows) -> None:
    rows.end(rows.add(NASTY, user=NASTY, platform=NASTY), JobStatus.FAILED, NASTY, NASTY)
    async with client(app_of(rows), auth=BASIC) as http:
        for asked in ({}, {"group": "error"}, {"q": NASTY}, {"channel": NASTY}, {"error": NASTY, "agent": NASTY}):
            page = (await http.get(PAGE, params=asked)).text
            assert "<script>alert" not in page, asked
            assert INERT in page, asked
            assert not re.search(r'="[^"]*"[a-z]+\(1\)', page)


async def test_long_texts_do_not_make_the_page_heavy(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(50):
        rows.end(rows.add("🦄" * 20_000, user="ש" * 10_000), JobStatus.FAILED, f"{number}" + "E" * 10_000, "r" * 10_000)
    page = await http.get(PAGE)
    assert len(re.findall(r'id="row-', page.text)) == 50
    # The address of the filter by error has the error as it is, and nothing else is as long as it may be.
    assert page.text.count("r" * 200) == 0
    assert page.text.count("🦄" * 200) == 0


async def test_what_calls_cost_is_shown_with_the_job(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    free = rows.add()
    page = (await http.get(PAGE)).text
    assert re.findall(r'data-label="Cost"><span>([^<]+)<', page) == ["–", "$0.0025"]
    assert page.index(free) < page.index(job_id)


async def test_a_page_without_news_is_answered_without_a_body(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.add()
    tag = (await http.get(PAGE)).headers["ETag"]
    assert (await http.get(PAGE, headers={"If-None-Match": tag})).status_code == 304
    rows.add()
    assert (await http.get(PAGE, headers={"If-None-Match": tag})).status_code == 200


async def test_the_page_looks_each_second_while_something_is_open(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    assert 'id="live" data-live="1000"' in (await http.get(PAGE)).text
    rows.end(job_id, JobStatus.COMPLETED)
    assert 'id="live" data-live="3000"' in (await http.get(PAGE)).text


async def test_who_only_looks_is_offered_nothing_to_do(rows: JobRows) -> None:
    job_id = rows.failed()
    guard = parts(rows).guard
    viewing = type(guard)(signing_key=guard.signing_key, password=PASSWORD, viewer_password="only looking please")
    async with client(app_of(rows, guard=viewing), auth=("viewer", "only looking please")) as http:
        for asked in ({}, {"group": "error"}):
            page = (await http.get(PAGE, params=asked)).text
            assert job_id in page
            assert "<button" not in page[page.index('id="live"') : page.index("</main>")]
            assert 'type="checkbox"' not in page
        refused = await http.post(f"{PAGE}/replay", data={"action": "resume", "ids": job_id})
        assert refused.status_code == 403

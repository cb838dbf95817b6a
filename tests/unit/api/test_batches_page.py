"""What is done with many jobs at once, by plain forms: told before, begun, watched and stopped."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.jobs.batches import ItemState
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobStatus
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

PAGE = "/queue"
PREVIEW = "/queue/replay/preview"
BEGIN = "/queue/replay"
FAILED = JobFilter(status=(JobStatus.FAILED,)).model_dump_json(exclude_defaults=True)
NASTY = '<script>alert(1)</script>"'


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def big(page: str, name: str) -> str:
    """Return the number on a card."""
    (found,) = re.findall(rf'id="{name}">([^<]+)<', page)
    return str(found)


def batches_of(rows: JobRows) -> list[str]:
    with rows.store.view() as tx:
        return [batch.id for batch in tx.jobs.batches.list_newest_batches(None, 9)]


async def begun(http: httpx.AsyncClient, **form: str) -> str:
    """Begin a batch and return the address of its page."""
    led = await http.post(BEGIN, data={"action": "resume", "all": "1", "filter": FAILED, **form})
    assert led.status_code == 303, led.text
    return str(led.headers["Location"])


async def test_a_selection_is_told_before_anything_is_done(rows: JobRows, http: httpx.AsyncClient) -> None:
    first, second, other = rows.failed(), rows.failed(), rows.failed()
    page = (await http.post(PREVIEW, data={"action": "resume", "ids": [first, second]})).text
    assert "Resume 2 jobs?" in page
    assert (big(page, "possible"), big(page, "calls")) == ("2", "2")
    assert f'name="ids" value="{first} {second}"' in page
    assert other not in page
    assert 'name="expected" value="2"' in page
    assert batches_of(rows) == []


async def test_what_was_told_is_begun_by_the_button(rows: JobRows, http: httpx.AsyncClient) -> None:
    first, second = rows.failed(), rows.failed()
    where = await begun(http, all="", ids=f"{first} {second}", expected="2")
    with rows.store.view() as tx:
        items = tx.jobs.batches.list_items(where.rsplit("/", 1)[1], (), 0, 9)
        entry = tx.system.audit.list_latest_entries(1)[0]
    assert [item.job_id for item in items] == [first, second]
    assert (entry.actor, entry.action) == ("operator", "jobs.resume")
    page = (await http.get(where)).text
    assert "Resume 2 jobs" in page
    assert big(page, "waiting") == "2"


async def test_all_that_match_are_counted_by_the_server(rows: JobRows, http: httpx.AsyncClient) -> None:
    for _ in range(3):
        rows.failed()
    rows.add("not failed")
    form = {"action": "restart", "all": "1", "filter": FAILED}
    page = (await http.post(PREVIEW, data=form)).text
    assert "Restart 3 jobs?" in page
    rows.failed("one more")
    conflict = await http.post(BEGIN, data={**form, "expected": "3"})
    assert conflict.status_code == 409
    assert "4 jobs match by now, not 3" in conflict.text
    assert 'name="expected" value="4"' in conflict.text
    assert batches_of(rows) == []


async def test_rows_do_not_matter_where_all_that_match_are_meant(rows: JobRows, http: httpx.AsyncClient) -> None:
    one = rows.failed()
    rows.failed()
    page = (await http.post(PREVIEW, data={"action": "resume", "all": "1", "filter": FAILED, "ids": one})).text
    assert "Resume 2 jobs?" in page


async def test_jobs_that_cannot_are_told_with_the_reason(rows: JobRows, http: httpx.AsyncClient) -> None:
    done, failed = rows.end(rows.add(), JobStatus.COMPLETED), rows.failed()
    page = (await http.post(PREVIEW, data={"action": "cancel", "ids": [done, failed]})).text
    assert "Cancel 0 jobs?" in page
    assert "2 jobs cannot be changed" in page
    assert "there is nothing to cancel" in page
    assert 'id="confirm"' not in page


async def test_a_restart_with_edits_takes_them_over(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    form = {"all": "1", "filter": FAILED, "agent": "ada", "model": "claude-haiku-4-5", "prompt": "say\r\nhi"}
    page = (await http.post(PREVIEW, data={**form, "action": "edit"})).text
    assert '<details id="edits" open>' in page
    assert '<option value="ada" selected>' in page
    assert 'value="claude-haiku-4-5"' in page
    where = await begun(http, **{**form, "action": "restart"})
    with rows.store.view() as tx:
        batch = tx.jobs.batches.get(where.rsplit("/", 1)[1])
    assert '"prompt":"say\\nhi"' in batch.edits
    shown = (await http.get(where)).text
    assert "claude-haiku-4-5" in shown


@pytest.mark.parametrize(
    ("form", "status", "sentence"),
    [
        ({"action": "resume"}, 400, "No job is selected"),
        ({"action": "resume", "ids": "  "}, 400, "No job is selected"),
        ({"action": "dance", "ids": "job-1"}, 400, "action: expected"),
        ({"action": "resume", "all": "1", "filter": "{"}, 400, "cannot be read"),
        ({"action": "resume", "all": "1", "filter": "[]"}, 400, "cannot be read"),
        ({"action": "resume", "all": "1", "filter": '{"colour": "red"}'}, 400, "unknown field"),
        ({"action": "edit", "ids": "job-1", "model": "two words"}, 400, "model: expected the name of a model"),
        ({"action": "edit", "ids": "job-1", "agent": "nobody"}, 400, "there is no agent nobody"),
    ],
)
async def test_what_cannot_be_done_is_said_on_the_page(
    rows: JobRows, http: httpx.AsyncClient, form: dict[str, str], status: int, sentence: str
) -> None:
    rows.failed()
    for where in (PREVIEW, BEGIN):
        page = await http.post(where, data=form)
        assert page.status_code == status, page.text
        assert sentence in page.text
        assert "Back to the jobs" in page.text
    assert batches_of(rows) == []


async def test_the_way_back_leads_to_the_same_list(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    page = (await http.post(PREVIEW, data={"action": "resume", "filter": FAILED})).text
    assert 'href="/queue?status=failed">Back to the jobs' in page


async def test_a_batch_shows_what_came_of_each_job(rows: JobRows, http: httpx.AsyncClient) -> None:
    jobs = [rows.failed() for _ in range(4)]
    where = await begun(http)
    batch_id = where.rsplit("/", 1)[1]
    with rows.store.begin() as tx:
        tx.jobs.update_job(jobs[0], status=JobStatus.COMPLETED)
        tx.jobs.batches.settle_item(batch_id, 1, ItemState.BEGUN, began=jobs[0])
        tx.jobs.batches.settle_item(batch_id, 2, ItemState.BEGUN, began=jobs[1])
        tx.jobs.batches.settle_item(batch_id, 3, ItemState.REFUSED, problem=NASTY)
    page = (await http.get(where)).text
    numbers = {name: big(page, name) for name in ("waiting", "begun", "completed", "failed", "refused")}
    assert numbers == {"waiting": "1", "begun": "2", "completed": "1", "failed": "1", "refused": "1"}
    assert [f'href="/queue/{job_id}"' in page for job_id in jobs] == [True] * 4
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert f'href="/queue?batch={batch_id}&amp;status=failed"' in page
    refused = (await http.get(where, params={"state": "refused"})).text
    assert re.findall(r'id="item-(\d+)"', refused) == ["3"]
    jobs_of_it = (await http.get(PAGE, params={"batch": batch_id})).text
    assert sorted(re.findall(r'id="row-([^"]+)"', jobs_of_it)) == sorted(jobs[:2])


async def test_a_long_batch_has_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    for _ in range(103):
        rows.failed()
    where = await begun(http)
    first = (await http.get(where, params={"state": "waiting"})).text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = (await http.get(following.replace("&amp;", "&"))).text
    assert re.findall(r'id="item-(\d+)"', second) == ["101", "102", "103"]
    assert f'href="{where}?state=waiting">First page' in second


async def test_a_batch_is_stopped_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    where = await begun(http)
    going = (await http.get(where)).text
    assert f'action="{where}/stop"' in going
    assert 'data-live="1000"' in going
    led = await http.post(f"{where}/stop")
    assert (led.status_code, led.headers["Location"]) == (303, where)
    page = (await http.get(where)).text
    assert "1 skipped by the stop" in page
    assert f'action="{where}/stop"' not in page
    assert 'data-live="5000"' in page
    again = await http.post(f"{where}/stop")
    assert again.status_code == 409
    assert "has ended" in again.text
    # What keeps that page up to date asks for the page itself.
    assert f'hx-get="{where}"' in again.text


@pytest.mark.parametrize("asked", [{"state": "odd"}, {"cursor": "odd"}, {"cursor": "-1"}])
async def test_a_page_of_results_that_cannot_be_is_said(
    rows: JobRows, http: httpx.AsyncClient, asked: dict[str, str]
) -> None:
    rows.failed()
    page = await http.get(await begun(http), params=asked)
    assert page.status_code == 400
    assert 'role="alert"' in page.text


async def test_a_batch_that_does_not_exist_is_told_as_a_page(http: httpx.AsyncClient) -> None:
    for page in (await http.get("/queue/batches/nothing"), await http.post("/queue/batches/nothing/stop")):
        assert page.status_code == 404
        assert "There is no such batch" in page.text


async def test_batches_are_listed_with_their_progress(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "No batch yet" in (await http.get("/queue/batches")).text
    rows.failed()
    chosen = rows.failed()
    filtered = await begun(http)
    picked = await begun(http, all="", ids=chosen)
    page = (await http.get("/queue/batches")).text
    assert page.index(picked) < page.index(filtered)
    assert "status failed" in page
    assert "selected one by one" in page
    assert "0 of 2" in page


async def test_many_batches_have_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    made = []
    for _ in range(22):
        made.append(await begun(http, all="", ids=job_id))
    first = (await http.get("/queue/batches")).text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = (await http.get(following.replace("&amp;", "&"))).text
    assert [where in second for where in made[:2]] == [True, True]
    assert made[2] not in second


async def test_a_page_of_a_batch_without_news_is_answered_without_a_body(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    rows.failed()
    where = await begun(http)
    for page in (where, "/queue/batches"):
        tag = (await http.get(page)).headers["ETag"]
        assert (await http.get(page, headers={"If-None-Match": tag})).status_code == 304


async def test_a_login_needs_its_token_to_begin(rows: JobRows) -> None:
    rows.failed()
    form = {"action": "resume", "all": "1", "filter": FAILED}
    async with client(app_of(rows)) as http:
        await http.post("/login", json={"password": BASIC[1]})
        page = (await http.get(PAGE)).text
        assert (await http.post(BEGIN, data=form)).status_code == 403
        (csrf, *others) = set(re.findall(r'name="csrf_token" value="([^"]+)"', page))
        assert not others
        assert (await http.post(BEGIN, data={**form, "csrf_token": csrf})).status_code == 303

"""``/api/schedules`` and the page of schedules: made, listed, changed, begun, made up for and removed."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from maestro.domain.jobs.job import JobEnding, JobStatus
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent

API, PAGE = "/api/schedules", "/schedules"
FORM = {
    "kind": "cron",
    "agent": "ada",
    "name": "morning",
    "schedule": "0 9 * * 1-5",
    "timezone": "Europe/Amsterdam",
    "jitter_seconds": "0",
    "prompt": "Tell the <b>news</b>.",
    "platform": "web",
    "account": "default",
    "channel": "news",
}


def new(**changes: Any) -> dict[str, Any]:
    """Return what makes a cron."""
    return {
        "kind": "cron",
        "agent": "ada",
        "name": "morning",
        "schedule": "0 9 * * 1-5",
        "timezone": "Europe/Amsterdam",
        "prompt": "Tell the news.",
        "platform": "web",
        "channel": "news",
        **changes,
    }


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def made(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """Make a schedule."""
    answer = await http.post(API, json=new(**changes))
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def audit(rows: JobRows, count: int) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [(entry.actor, entry.action, entry.subject) for entry in tx.system.audit.list_latest_entries(count)]


def end(rows: JobRows, job_id: str) -> None:
    with rows.store.begin() as tx:
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.COMPLETED))


# The API


async def test_a_cron_is_made_and_shows_when_it_comes(rows: JobRows, http: httpx.AsyncClient) -> None:
    cron = await made(http)
    assert (cron["ref"], cron["kind"], cron["state"], cron["reason"]) == ("cron-1", "cron", "active", "")
    assert (cron["when"], cron["timezone"]) == ("at 09:00 on working days", "Europe/Amsterdam")
    assert cron["nextRun"] == cron["nextRuns"][0]
    assert len(cron["nextRuns"]) == 5
    assert all("T09:00:00+0" in time for time in cron["nextRuns"])
    assert (cron["lastRun"], cron["runs"], cron["skipped"], cron["failures"]) == (None, 0, 0, 0)
    assert (await http.get(f"{API}/cron-1")).json() == cron
    assert (await http.get(API)).json() == {"items": [cron], "next": None}
    assert audit(rows, 1) == [("operator", "cron.create", "cron-1")]


async def test_a_heartbeat_may_have_a_script_in_the_place_of_a_prompt(http: httpx.AsyncClient) -> None:
    script = {"url": "https://example.com/rate.json", "template": "{{rate}}"}
    heartbeat = await made(http, kind="heartbeat", schedule="every 1h", prompt="", script=script, jitterSeconds=60)
    assert (heartbeat["ref"], heartbeat["when"], heartbeat["jitterSeconds"]) == ("heartbeat-1", "every hour", 60)
    assert heartbeat["script"]["url"] == script["url"]
    without = await http.patch(f"{API}/heartbeat-1", json={"script": None})
    assert (without.status_code, without.json()["message"]) == (
        400,
        "prompt: is missing; write what the agent is to do",
    )
    changed = await http.patch(f"{API}/heartbeat-1", json={"script": None, "prompt": "Look."})
    assert (changed.json()["script"], changed.json()["prompt"]) == (None, "Look.")


async def test_schedules_are_listed_in_pages_and_by_what_they_are(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    for name, kind, agent in (("a", "cron", "ada"), ("b", "heartbeat", "bob"), ("c", "cron", "bob")):
        await made(http, name=name, kind=kind, agent=agent, enabled=name != "c")

    async def refs(**query: Any) -> list[str]:
        return [one["ref"] for one in (await http.get(API, params=query)).json()["items"]]

    assert await refs() == ["heartbeat-1", "cron-1", "cron-2"]
    first = (await http.get(API, params={"limit": 2})).json()
    assert first["next"] == "cron-1"
    assert await refs(cursor="cron-1") == ["cron-2"]
    assert await refs(cursor="heartbeat-1", limit=1) == ["cron-1"]
    assert await refs(kind="cron") == ["cron-1", "cron-2"]
    assert await refs(agent="bob") == ["heartbeat-1", "cron-2"]
    assert await refs(state="paused") == ["cron-2"]
    assert await refs(state="active", kind="cron") == ["cron-1"]
    await http.patch("/api/agents/bob", json={"status": "archived"})
    assert await refs(state="agent_paused") == ["heartbeat-1"]
    bobs = (await http.get(f"{API}/heartbeat-1")).json()
    assert (bobs["reason"], bobs["nextRuns"]) == ("the agent bob is archived", [])


async def test_a_run_begins_now_and_no_other_while_it_is_open(rows: JobRows, http: httpx.AsyncClient) -> None:
    await made(http, enabled=False)
    begun = await http.post(f"{API}/cron-1/trigger")
    assert begun.status_code == 202
    job_id = begun.json()["jobId"]
    (job,) = (await http.get("/api/jobs", params={"schedule": "cron-1"})).json()["items"]
    assert (job["id"], job["kind"], job["schedule"], job["slot"], job["priority"]) == (
        job_id,
        "cron",
        "cron-1",
        None,
        10,
    )
    assert job["excerpt"] == "Tell the news."
    twice = await http.post(f"{API}/cron-1/trigger")
    assert (twice.status_code, twice.json()["error"]) == (409, "Conflict")
    assert job_id in twice.json()["message"]
    shown = (await http.get(f"{API}/cron-1")).json()
    assert (shown["runs"], shown["lastRun"]["jobId"], shown["lastRun"]["status"]) == (1, job_id, "pending")
    end(rows, job_id)
    assert (await http.post(f"{API}/cron-1/trigger")).status_code == 202
    assert audit(rows, 1) == [("operator", "cron.trigger", "cron-1")]
    await http.patch("/api/agents/ada", json={"status": "paused"})
    assert "make it active first" in (await http.post(f"{API}/cron-1/trigger")).json()["message"]


async def test_what_passed_is_made_up_for_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    await made(http, kind="heartbeat", schedule="every 1h")
    with rows.store.view() as tx:
        now = tx.now
    ago = {"from": (now - timedelta(hours=3, minutes=30)).isoformat(), "to": now.isoformat()}
    told = await http.post(f"{API}/heartbeat-1/backfill", json={**ago, "preview": True})
    assert (told.status_code, told.json()["count"], told.json()["preview"]) == (200, 4, True)
    assert (await http.get("/api/jobs")).json()["items"] == []
    begun = await http.post(f"{API}/heartbeat-1/backfill", json=ago)
    assert (begun.status_code, begun.json()["times"]) == (202, told.json()["times"])
    jobs = (await http.get("/api/jobs", params={"schedule": "heartbeat-1"})).json()["items"]
    assert {job["id"] for job in jobs} == {time["jobId"] for time in told.json()["times"]}
    assert {job["slot"] for job in jobs} == {time["time"] for time in told.json()["times"]}
    with rows.store.view() as tx:
        assert {tx.jobs.get(job["id"]).lane for job in jobs} == {"schedule:heartbeat-1"}
    assert (await http.post(f"{API}/heartbeat-1/trigger")).status_code == 409
    for job in jobs:
        end(rows, job["id"])
    again = (await http.post(f"{API}/heartbeat-1/backfill", json=ago)).json()
    assert (again["count"], {time["ran"] for time in again["times"]}) == (0, {True})


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "to: must not be earlier than `from`"),
        ({"from": "2026-01-02T00:00:00Z", "to": "2999-01-01T00:00:00Z"}, "must not be in the future"),
        ({"from": "2001-01-02T00:00:00Z", "to": "2002-01-01T00:00:00Z"}, "more than 100 times"),
        ({"from": "2001-01-02T00:00:00", "to": "2002-01-01T00:00:00Z"}, "body from"),
        ({"to": "2002-01-01T00:00:00Z"}, "body from"),
    ],
)
async def test_what_cannot_be_made_up_for_is_refused(
    http: httpx.AsyncClient, wish: dict[str, str], problem: str
) -> None:
    await made(http)
    refused = await http.post(f"{API}/cron-1/backfill", json=wish)
    assert refused.status_code == 400
    assert problem in refused.json()["message"]


async def test_a_schedule_is_changed_paused_resumed_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    await made(http)
    await made(http, name="evening")
    changed = (await http.patch(f"{API}/cron-1", json={"schedule": "every 2h", "thread": "t-1"})).json()
    assert (changed["when"], changed["thread"], changed["timezone"]) == ("every 2 hours", "t-1", "Europe/Amsterdam")
    paused = (await http.patch(f"{API}/cron-1", json={"enabled": False})).json()
    assert (paused["state"], paused["reason"], paused["nextRun"]) == ("paused", "an operator paused the schedule", None)
    assert (await http.patch(f"{API}/cron-1", json={"enabled": True})).json()["state"] == "active"
    taken = await http.patch(f"{API}/cron-1", json={"name": "evening"})
    assert (taken.status_code, taken.json()["error"]) == (409, "Conflict")
    assert (await http.delete(f"{API}/cron-1")).status_code == 204
    assert (await http.get(f"{API}/cron-1")).status_code == 404
    assert [action for _, action, _ in audit(rows, 2)] == ["cron.remove", "cron.change"]
    assert (await made(http))["ref"] == "cron-3"


@pytest.mark.parametrize("ref", ["cron-2", "cron-x", "cron", "mouse-1", "cron-1²", "cron-" + "9" * 40])
async def test_what_is_not_there_is_not_found(http: httpx.AsyncClient, ref: str) -> None:
    await made(http)
    assert (await http.get(f"{API}/{ref}")).status_code == 404
    assert (await http.post(f"{API}/{ref}/trigger")).status_code == 404


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({"kind": "message"}, 400, "body kind"),
        ({"prompt": ""}, 400, "prompt: is missing"),
        ({"script": {"url": "https://example.com", "template": "x"}}, 400, "only a heartbeat can have a script"),
        ({"jitterSeconds": 3601}, 400, "the jitter must be from 0 to 3600"),
        ({"schedule": "every 1m", "jitterSeconds": 30}, 400, "less than half of the interval"),
        ({"timezone": "Europe/Amsterdm"}, 400, "did you mean Europe/Amsterdam"),
        ({"channel": "two words"}, 400, "body channel"),
        ({"agent": "nobody"}, 404, "there is no agent 'nobody'"),
        ({"colour": "red"}, 400, "body colour"),
    ],
)
async def test_what_breaks_a_rule_is_refused(
    http: httpx.AsyncClient, changes: dict[str, Any], status: int, problem: str
) -> None:
    refused = await http.post(API, json=new(**changes))
    assert (refused.status_code, problem in refused.json()["message"]) == (status, True), refused.text


async def test_the_next_five_times_are_told_of_what_nobody_has_made(http: httpx.AsyncClient) -> None:
    wish = {"schedule": "0 9 * * *", "timezone": "Asia/Kolkata"}
    told = (await http.post(f"{API}/preview", json=wish)).json()
    assert (told["when"], len(told["nextRuns"])) == ("at 09:00 every day", 5)
    assert all(time.endswith("T09:00:00+05:30") for time in told["nextRuns"])
    assert len((await http.post(f"{API}/preview", json={"schedule": "in 20m"})).json()["nextRuns"]) == 1
    assert (await http.get(API)).json()["items"] == []


# The page


async def test_the_form_plans_something_and_the_list_shows_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "Nothing is planned yet." in (await http.get(PAGE)).text
    planned = await http.post(PAGE, data=FORM)
    assert (planned.status_code, planned.headers["Location"]) == (303, PAGE)
    page = (await http.get(PAGE)).text
    assert "at 09:00 on working days<small>Europe/Amsterdam</small>" in page
    assert "Tell the &lt;b&gt;news&lt;/b&gt;." in page
    assert audit(rows, 1) == [("operator", "cron.create", "cron-1")]


async def test_the_next_five_times_are_shown_without_a_script_and_with_one(http: httpx.AsyncClient) -> None:
    page = (await http.post(f"{PAGE}/preview", data={**FORM, "channel": ""})).text
    assert page.count("09:00 CE") == 5
    assert 'value="0 9 * * 1-5"' in page
    timing = {name: FORM[name] for name in ("schedule", "timezone", "jitter_seconds")}
    part = (await http.get(f"{PAGE}/times", params=timing)).text
    assert part.count("09:00 CE") == 5
    assert "<html" not in part
    wrong = await http.get(f"{PAGE}/times", params={**timing, "schedule": "<b>"})
    assert (wrong.status_code, "<b>" in wrong.text) == (200, False)
    assert "write it as every 15m" in wrong.text
    assert (await http.get(API)).json()["items"] == []


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({"schedule": "<b>"}, 400, "write it as every 15m"),
        ({"kind": "heartbeat", "script": "{"}, 400, "script: expected JSON"),
        ({"kind": "heartbeat", "script": "{}"}, 400, "script.url: is missing"),
        ({"jitter_seconds": "soon"}, 400, "jitterSeconds:"),
        ({"prompt": ""}, 400, "prompt: is missing"),
        ({"agent": "nobody"}, 404, "there is no agent"),
    ],
)
async def test_a_mistake_is_said_above_what_was_typed(
    http: httpx.AsyncClient, changes: dict[str, str], status: int, problem: str
) -> None:
    answer = await http.post(PAGE, data={**FORM, "channel": "my-channel", **changes})
    assert answer.status_code == status
    assert problem in answer.text
    assert 'value="my-channel"' in answer.text
    assert "<b>" not in answer.text


async def test_a_schedule_is_edited_on_the_page(http: httpx.AsyncClient) -> None:
    script = {"url": "https://example.com/rate", "template": "{{rate}}"}
    before = await made(http, kind="heartbeat", prompt="", script=script, thread="t", jitterSeconds=5)
    page = (await http.get(PAGE, params={"edit": "heartbeat-1"})).text
    assert "https://example.com/rate" in page
    typed = {**FORM, "ref": "heartbeat-1", "kind": "heartbeat", "schedule": "0 9 * * 1-5", "channel": "elsewhere"}
    saved = await http.post(f"{PAGE}/change", data={**typed, "script": ""})
    assert (saved.status_code, saved.headers["Location"]) == (303, PAGE)
    after = (await http.get(f"{API}/heartbeat-1")).json()
    assert (after["channel"], after["script"], after["thread"], after["jitterSeconds"]) == ("elsewhere", None, "", 0)
    assert after["nextRuns"] == before["nextRuns"]
    wrong = await http.post(f"{PAGE}/change", data={**typed, "schedule": "never"})
    assert wrong.status_code == 400
    assert "Change heartbeat-1" in wrong.text
    assert (await http.get(PAGE, params={"edit": "heartbeat-2"})).status_code == 404


async def test_buttons_pause_resume_run_and_remove(http: httpx.AsyncClient) -> None:
    await http.post(PAGE, data=FORM)
    for action, state in (("pause", "paused"), ("resume", "active")):
        answer = await http.post(f"{PAGE}/{action}", data={"ref": "cron-1"})
        assert answer.status_code == 303
        assert (await http.get(f"{API}/cron-1")).json()["state"] == state
    assert (await http.post(f"{PAGE}/run", data={"ref": "cron-1"})).status_code == 303
    job_id = (await http.get(f"{API}/cron-1")).json()["lastRun"]["jobId"]
    assert f'<a href="/queue/{job_id}">pending</a>' in (await http.get(PAGE)).text
    twice = await http.post(f"{PAGE}/run", data={"ref": "cron-1"})
    assert (twice.status_code, job_id in twice.text) == (409, True)
    assert (await http.post(f"{PAGE}/remove", data={"ref": "cron-1"})).status_code == 303
    assert (await http.post(f"{PAGE}/remove", data={"ref": "cron-1"})).status_code == 404


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00Z"])
async def test_times_from_before_there_were_any_are_refused(http: httpx.AsyncClient, start: str) -> None:
    ref = (await made(http, timezone="America/Los_Angeles"))["ref"]
    wish = {"from": start, "to": "2020-01-01T00:00:00Z", "preview": True}
    answer = await http.post(f"{API}/{ref}/backfill", json=wish)
    assert answer.status_code == 400
    assert "from: must be after the year 1970" in answer.text


async def test_a_script_of_nothing_but_brackets_is_no_script(http: httpx.AsyncClient) -> None:
    answer = await http.post(PAGE, data={**FORM, "kind": "heartbeat", "script": "[" * 5000})
    assert answer.status_code == 400
    assert "script: expected JSON" in answer.text


async def test_missed_times_are_told_before_they_are_made_up_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    await made(http, schedule="every 1h", timezone="UTC")
    rows.clock.go(hours=5)
    stretch = {"ref": "cron-1", "from": "2026-11-20 08:30", "to": "2026-11-20T11:30"}
    asked = (await http.get(f"{PAGE}/backfill", params={"ref": "cron-1"})).text
    assert ('name="from"' in asked, "would start" in asked) == (True, False)
    told = (await http.get(f"{PAGE}/backfill", params=stretch)).text
    assert ("3 runs would start" in told, "Fri 2026-11-20 09:00 UTC" in told) == (True, True)
    assert (await http.get(f"{API}/cron-1")).json()["lastRun"] is None, "nothing began"
    led = await http.post(f"{PAGE}/backfill", data=stretch)
    assert (led.status_code, led.headers["Location"]) == (303, f"{PAGE}?done=backfilled")
    assert "one after the other" in (await http.get(led.headers["Location"])).text
    assert audit(rows, 1) == [("operator", "cron.backfill", "cron-1")]
    assert "No missed runs" in (await http.get(f"{PAGE}/backfill", params=stretch)).text


@pytest.mark.parametrize(
    ("stretch", "status", "problem"),
    [
        ({"from": "banana", "to": "2026-11-20"}, 400, "from: "),
        ({"from": "2026-11-20 08:00", "to": "2999-01-01"}, 400, "to: must not be in the future"),
        ({"from": "2026-11-20 08:00", "to": "2026-11-19"}, 400, "to: must not be earlier than `from`"),
        ({"ref": "cron-9", "from": "2026-11-19", "to": "2026-11-20"}, 404, "cron-9"),
    ],
)
async def test_a_stretch_that_cannot_be_is_said_on_the_page(
    http: httpx.AsyncClient, stretch: dict[str, str], status: int, problem: str
) -> None:
    await made(http)
    wanted = {"ref": "cron-1", **stretch}
    for answer in (await http.get(f"{PAGE}/backfill", params=wanted), await http.post(f"{PAGE}/backfill", data=wanted)):
        assert (answer.status_code, problem in answer.text, "<h1>" in answer.text) == (status, True, True)


async def test_the_list_of_the_page_is_filtered_and_paged(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(30):
        await made(http, name=f"plan-{number}", schedule="every 1h")
    await made(http, kind="heartbeat", name="beat")
    page = (await http.get(PAGE)).text
    (following,) = re.findall(r'href="([^"]+)">Next page', page)
    refs = re.findall(r'<tbody id="([a-z0-9-]+)"', page + (await http.get(following)).text)
    assert refs == ["heartbeat-1", *(f"cron-{number + 1}" for number in range(30))]
    only = (await http.get(PAGE, params={"kind": "heartbeat", "agent": "ada", "state": "active"})).text
    assert re.findall(r'<tbody id="([a-z0-9-]+)"', only) == ["heartbeat-1"]
    assert "Nothing that is planned fits." in (await http.get(PAGE, params={"state": "paused"})).text
    assert (await http.get(PAGE, params={"kind": "banana"})).status_code == 400

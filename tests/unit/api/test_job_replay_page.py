"""The pages before a job is replayed or cancelled: they tell first, then do exactly that, and say why not."""

import re
from collections.abc import AsyncIterator
from html import unescape

import httpx
import pytest

from maestro.domain.jobs.job import Job, JobEdits, JobKind, JobStatus, StepRef, job_edits
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent

NASTY = "<script>alert('x')</script>\"'><img src=x>"


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def fields(page: str) -> dict[str, str]:
    """Return what the form that confirms would send."""
    [form] = re.findall(r'<form class="act".*?</form>', page, re.DOTALL)
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found if name != "csrf_token"}


def job(rows: JobRows, job_id: str) -> Job:
    with rows.store.view() as tx:
        return tx.jobs.get(job_id)


def led_to(answer: httpx.Response) -> str:
    """Return the job whose page a form led to."""
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"].removeprefix("/queue/")


def answered(rows: JobRows) -> str:
    """Return a job that failed after its answer was paid for."""
    job_id = rows.add()
    rows.worked(job_id)
    return rows.end(job_id, JobStatus.FAILED, "SendFailed", "the platform is down")


async def test_a_resume_tells_where_it_goes_on_and_leads_to_the_job(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    asked = await http.get(f"/queue/{job_id}/replay", params={"mode": "resume"})
    assert "Resume this job?" in asked.text
    assert "Choose the agent" in asked.text
    assert "1 model call, perhaps more" in asked.text
    assert job(rows, job_id).status is JobStatus.FAILED, "a question changes nothing"
    assert led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked.text))) == job_id
    assert (job(rows, job_id).status, job(rows, job_id).run) == (JobStatus.PENDING, 2)
    with rows.store.view() as tx:
        assert [entry.action for entry in tx.system.audit.list_latest_entries(1)] == ["job.resume"]


async def test_a_restart_tells_what_is_sent_again_and_leads_to_the_new_job(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    job_id = answered(rows)
    asked = (await http.get(f"/queue/{job_id}/replay?mode=restart")).text
    assert "From the beginning, as a new job" in asked
    assert "1 answered call, $0.0025" in asked
    assert "again" in asked
    new = led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked)))
    assert job(rows, new).restarted_from == job_id
    assert not job(rows, new).what_if


async def test_edits_are_shown_before_they_count(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    job_id = rows.failed("what is\nthe weather?")
    form = (await http.get(f"/queue/{job_id}/edit?mode=restart")).text
    assert re.search(r'<textarea id="prompt"[^>]*>\nwhat is\nthe weather\?</textarea>', form)
    typed = {"mode": "restart", "edited": "true", "agent": "bob", "model": " gpt-9 ", "prompt": f"two\r\n{NASTY}"}
    asked = await http.post(f"/queue/{job_id}/replay/preview", data=typed)
    assert asked.status_code == 200
    assert NASTY not in asked.text
    for said in ("bob", "gpt-9", "&lt;script&gt;"):
        assert said in asked.text
    new = led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked.text)))
    assert job_edits(job(rows, new)) == JobEdits(agent="bob", model="gpt-9", prompt=f"two\n{NASTY}")
    shown = (await http.get(f"/queue/{new}")).text
    assert "agent bob, model gpt-9, another prompt" in shown
    assert "Prompt set by an operator" in shown


async def test_a_prompt_that_nobody_changed_is_no_edit(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed("what is\nthe weather?")
    typed = {"mode": "restart", "edited": "true", "agent": "", "model": "", "prompt": "what is\r\nthe weather?"}
    asked = await http.post(f"/queue/{job_id}/replay/preview", data=typed)
    assert "<dt>Edits<" not in asked.text
    new = led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked.text)))
    assert job(rows, new).edits == ""


async def test_a_restart_keeps_the_edits_and_the_form_begins_with_them(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed("the first text")
    typed = {"mode": "restart", "edited": "true", "prompt": "the second text"}
    second = led_to(await http.post(f"/queue/{job_id}/replay", data=typed))
    rows.end(second, JobStatus.FAILED)
    assert "the second text" in (await http.get(f"/queue/{second}/replay?mode=restart")).text
    assert "\nthe second text</textarea>" in (await http.get(f"/queue/{second}/edit?mode=restart")).text
    third = led_to(await http.post(f"/queue/{second}/replay", data={"mode": "restart"}))
    assert job_edits(job(rows, third)).prompt == "the second text"
    rows.end(third, JobStatus.FAILED)
    back = {"mode": "restart", "edited": "true", "prompt": "the first text"}
    asked = await http.post(f"/queue/{third}/replay/preview", data=back)
    fourth = led_to(await http.post(f"/queue/{third}/replay", data=fields(asked.text)))
    assert job(rows, fourth).edits == "", "what was asked the first time is asked again"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"agent": "nobody-such"}, "there is no agent nobody-such"),
        ({"agent": NASTY}, "agent:"),
        ({"model": "two words\nand a line"}, "model:"),
        ({"prompt": "x" * 300_001}, "prompt: must have at most 300000 characters"),
    ],
)
async def test_what_does_not_fit_is_said_above_the_form(
    rows: JobRows, http: httpx.AsyncClient, typed: dict[str, str], said: str
) -> None:
    job_id = rows.failed()
    for path in ("replay/preview", "replay"):
        refused = await http.post(f"/queue/{job_id}/{path}", data={"mode": "restart", "edited": "true", **typed})
        assert refused.status_code == 400
        assert said in refused.text
        assert '<form class="fields" id="edits"' in refused.text
        assert "<script>alert" not in refused.text
    assert job(rows, job_id).status is JobStatus.FAILED


async def test_a_conflict_is_told_before_and_after_the_question(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    asked = (await http.get(f"/queue/{job_id}/replay?mode=restart")).text
    newer = led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked)))
    late = await http.post(f"/queue/{job_id}/replay", data=fields(asked))
    assert late.status_code == 409
    why = f"is answered by job {newer} now, which is pending"
    assert why in late.text
    told = await http.get(f"/queue/{job_id}/replay?mode=resume")
    assert told.status_code == 200
    assert why in told.text
    assert '<form class="act"' not in told.text, "what cannot be is not offered"


async def test_a_what_if_is_asked_of_what_is_done_and_changes_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.end(rows.add(), JobStatus.COMPLETED)
    asked = (await http.get(f"/queue/{job_id}/replay?mode=what-if")).text
    assert "Nothing is sent, remembered or acted on" in asked
    trial = led_to(await http.post(f"/queue/{job_id}/replay", data=fields(asked)))
    assert (job(rows, trial).what_if, job(rows, trial).restarted_from) == (True, job_id)
    assert job(rows, job_id).status is JobStatus.COMPLETED


async def test_a_script_has_nothing_to_edit(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.end(rows.add(kind=JobKind.HEARTBEAT), JobStatus.FAILED)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, schedule="heartbeat-1")
    page = (await http.get(f"/queue/{job_id}")).text
    assert "mode=restart" in page
    assert "/edit?" not in page


async def test_a_cancellation_is_asked_for_and_done(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, started_at=tx.now)
        tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="model-1"), "call_model", 1)
    asked = (await http.get(f"/queue/{job_id}/cancel")).text
    assert "Ask the model, call 1" in asked
    assert not job(rows, job_id).stop_requested
    assert led_to(await http.post(f"/queue/{job_id}/cancel", data=fields(asked))) == job_id
    assert job(rows, job_id).stop_requested
    assert "A stop was requested" in (await http.get(f"/queue/{job_id}")).text


async def test_what_has_ended_cannot_be_cancelled(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    assert "so it cannot be cancelled" in (await http.get(f"/queue/{job_id}/cancel")).text
    refused = await http.post(f"/queue/{job_id}/cancel")
    assert refused.status_code == 409
    assert 'role="alert"' in refused.text


async def test_forms_about_a_job_that_is_gone_say_so(http: httpx.AsyncClient) -> None:
    for path, data in (("replay", {"mode": "resume"}), ("replay/preview", {"mode": "restart"}), ("cancel", {})):
        gone = await http.post(f"/queue/nope/{path}", data=data)
        assert gone.status_code == 404, path
        assert "job nope does not exist" in gone.text

"""Replays of one job over the API: previews, edits, what-ifs."""

from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.jobs.job import JobStatus
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def test_a_preview_tells_what_would_be_done_and_changes_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed, running = rows.failed(), rows.add()
    for mode, step in (("resume", "route"), ("restart", "start"), ("what-if", "start")):
        found = (await http.post(f"/api/jobs/{failed}/replay", json={"mode": mode, "preview": True})).json()
        assert (found["mode"], found["possible"], found["step"], found["modelCalls"]) == (mode, True, step, 1)
    found = (await http.post(f"/api/jobs/{running}/replay", json={"mode": "resume", "preview": True})).json()
    assert (found["possible"], "only an ended job" in found["problem"]) == (False, True)
    assert [job["id"] for job in (await http.get("/api/jobs")).json()["items"]] == [running, failed]
    with rows.store.view() as tx:
        assert tx.system.audit.list_latest_entries(5) == []


async def test_edits_are_checked_kept_and_shown(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    edits = {"agent": "ada", "model": "gpt-4o", "prompt": "In German, please."}
    asked = {"mode": "restart", "edits": edits}
    again = (await http.post(f"/api/jobs/{job_id}/replay", json=asked)).json()["id"]
    job = (await http.get(f"/api/jobs/{again}")).json()
    assert (job["edits"], job["whatIf"], job["excerpt"]) == (edits, False, "hello")
    shown = (await http.post(f"/api/jobs/{job_id}/replay", json={**asked, "mode": "what-if"})).json()["id"]
    assert (await http.get(f"/api/jobs/{shown}")).json()["whatIf"] is True
    job = (await http.get(f"/api/jobs/{job_id}")).json()
    assert (job["edits"], job["restartedBy"], job["whatIfs"]) == (None, [again], [shown])


@pytest.mark.parametrize(
    ("mode", "edits", "word"),
    [
        ("resume", {"model": "gpt-4o"}, "edits need the mode restart or what-if"),
        ("restart", {"agent": "nobody"}, "there is no agent nobody"),
        ("restart", {"model": ""}, "the name of a model without blanks"),
        ("what-if", {"prompt": "  "}, "expected a text"),
        ("what-if", {"color": "red"}, "color"),
    ],
)
async def test_edits_that_do_not_fit_say_how_to_mend_them(
    rows: JobRows, http: httpx.AsyncClient, mode: str, edits: dict[str, str], word: str
) -> None:
    for preview in (True, False):
        body = {"mode": mode, "edits": edits, "preview": preview}
        answer = await http.post(f"/api/jobs/{rows.failed()}/replay", json=body)
        assert answer.status_code == 400
        assert word in answer.json()["message"]


@pytest.mark.parametrize("mode", ["restart", "what-if"])
async def test_an_agent_that_was_chosen_before_and_is_gone_is_told_before(
    rows: JobRows, http: httpx.AsyncClient, mode: str
) -> None:
    add_agent(rows, "bob")
    wish = {"mode": "restart", "edits": {"agent": "bob"}}
    edited = (await http.post(f"/api/jobs/{rows.failed()}/replay", json=wish)).json()["id"]
    rows.end(edited, JobStatus.FAILED)
    assert (await http.patch("/api/agents/bob", json={"status": "paused"})).is_success
    for preview in (True, False):
        answer = await http.post(f"/api/jobs/{edited}/replay", json={"mode": mode, "preview": preview})
        assert (answer.status_code, answer.json()["error"]) == (400, "InvalidEdit")
        assert "bob is paused" in answer.json()["message"]
    form = await http.get(f"/queue/{edited}/replay?mode={mode}")
    assert form.status_code == 400
    assert '<option value="bob" selected>' in form.text
    for preview in (True, False):
        again = {"mode": mode, "edits": {}, "preview": preview}
        assert (await http.post(f"/api/jobs/{edited}/replay", json=again)).is_success, "by whom it is routed to"

"""Many jobs at once over the API: counts, groups of failures, dry runs, batches with their progress."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from maestro.domain.jobs.job import JobStatus
from temporal.replays import BatchWork
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest_asyncio.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def work(rows: JobRows) -> None:
    """Let every job of every batch have its turn that may have it now."""

    async def interrupt(_: str) -> None: ...

    while await BatchWork(rows.store, interrupt, wake=lambda: None).process_due_items():
        pass


async def get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(f"/api/jobs/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_counts_are_by_status(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed(), rows.failed(), rows.add(), rows.add(platform="slack")
    counts = await get(http, "counts?status=failed")
    assert {status: count for status, count in counts.items() if count} == {"total": 4, "failed": 2, "pending": 2}
    assert (await get(http, "counts?platform=slack"))["total"] == 1


async def test_failures_are_grouped(rows: JobRows, http: httpx.AsyncClient) -> None:
    for seconds in range(3):
        rows.failed(reason=f"no answer within {seconds} s")
    page = await get(http, "errors?agent=ada")
    (group,) = page["items"]
    assert (group["error"], group["reason"], group["count"]) == ("ProviderDown", "no answer within * s", 3)
    assert group["agents"] == ["ada"]
    same = await http.get("/api/jobs", params={"error": group["error"], "reason": group["reason"]})
    assert len(same.json()["items"]) == 3
    assert (await get(http, "errors?agent=bob"))["items"] == []


async def test_a_dry_run_tells_and_a_batch_does(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed = [rows.failed() for _ in range(2)]
    pending = rows.add()
    wish = {"filter": {}, "mode": "resume"}
    told = await http.post("/api/jobs/replay", json={**wish, "dryRun": True})
    assert told.status_code == 200
    assert (told.json()["matching"], told.json()["possible"], told.json()["modelCalls"]) == (3, 2, 2)
    assert (told.json()["costUsd"], told.json()["unknownCost"]) == (None, 2)
    assert told.json()["refused"][0]["example"] == pending
    assert (await get(http, "batches"))["items"] == []

    more = await http.post("/api/jobs/replay", json={**wish, "expected": 2})
    assert (more.status_code, more.json()["error"]) == (409, "Conflict")
    begun = await http.post("/api/jobs/replay", json={**wish, "expected": 3})
    assert begun.status_code == 202
    batch_id = begun.json()["id"]
    assert (begun.json()["waiting"], begun.json()["refused"], begun.json()["endedAt"]) == (2, 1, None)
    await work(rows)
    rows.end(failed[0], JobStatus.COMPLETED)
    batch = await get(http, f"batches/{batch_id}")
    assert (batch["begun"], batch["completed"], batch["open"], batch["waiting"]) == (2, 1, 1, 0)
    assert batch["endedAt"] is not None
    assert batch["filter"]["status"] == []
    assert (await get(http, "batches"))["items"] == [batch]
    assert {job["id"] for job in (await http.get(f"/api/jobs?batch={batch_id}")).json()["items"]} == set(failed)


async def test_the_jobs_of_a_batch_are_listed_in_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed = [rows.failed() for _ in range(3)]
    begun = await http.post("/api/jobs/replay", json={"ids": [*failed, "nobody"], "mode": "restart"})
    path = f"batches/{begun.json()['id']}/items"
    first = await get(http, f"{path}?limit=3")
    rest = await get(http, f"{path}?limit=3&cursor={first['next']}")
    assert [item["jobId"] for item in first["items"] + rest["items"]] == [*failed, "nobody"]
    assert rest["next"] is None
    (refused,) = (await get(http, f"{path}?state=refused&state=skipped"))["items"]
    assert refused["problem"] == "job nobody does not exist"
    answer = await http.get("/api/jobs/batches/unknown/items")
    assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")


async def test_batches_are_listed_in_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    made = [(await http.post("/api/jobs/replay", json={"filter": {}, "mode": "resume"})).json()["id"] for _ in range(3)]
    first = await get(http, "batches?limit=2")
    rest = await get(http, f"batches?limit=2&cursor={first['next']}")
    assert [batch["id"] for batch in first["items"] + rest["items"]] == sorted(made, reverse=True)
    assert rest["next"] is None


async def test_a_batch_is_stopped(rows: JobRows, http: httpx.AsyncClient) -> None:
    for _ in range(4):
        rows.failed()
    batch_id = (await http.post("/api/jobs/replay", json={"filter": {}, "mode": "resume"})).json()["id"]
    await work(rows)
    stopped = (await http.post(f"/api/jobs/batches/{batch_id}/stop")).json()
    assert (stopped["stopped"], stopped["begun"], stopped["skipped"]) == (True, 2, 2)
    assert (await http.post(f"/api/jobs/batches/{batch_id}/stop")).status_code == 409
    assert (await http.post("/api/jobs/batches/unknown/stop")).status_code == 404


async def test_many_are_cancelled(rows: JobRows, http: httpx.AsyncClient) -> None:
    pending, failed = rows.add(), rows.failed()
    told = (await http.post("/api/jobs/cancel", json={"filter": {}, "dryRun": True})).json()
    assert (told["action"], told["matching"], told["possible"], told["modelCalls"]) == ("cancel", 2, 1, 0)
    assert (await http.post("/api/jobs/cancel", json={"filter": {}})).status_code == 202
    await work(rows)
    assert (await get(http, pending))["status"] == "cancelled"
    assert (await get(http, failed))["status"] == "failed"


async def test_restarts_take_edits(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed()
    wish = {"filter": {"status": ["failed"]}, "mode": "restart"}
    wrong = await http.post("/api/jobs/replay", json={**wish, "edits": {"agent": "nobody"}})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "InvalidEdit")
    begun = await http.post("/api/jobs/replay", json={**wish, "edits": {"prompt": "say it in French"}})
    assert begun.json()["edits"]["prompt"] == "say it in French"
    await work(rows)
    (item,) = (await get(http, f"batches/{begun.json()['id']}/items"))["items"]
    assert (await get(http, item["began"]))["edits"]["prompt"] == "say it in French"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "resume"},
        {"mode": "resume", "filter": {}, "ids": ["a"]},
        {"mode": "what-if", "filter": {}},
        {"mode": "resume", "filter": {"stauts": ["failed"]}},
        {"mode": "resume", "filter": {}, "edits": {"model": "m"}},
        {"mode": "resume", "ids": []},
        {"mode": "resume", "filter": {"since": "yesterday"}},
    ],
)
async def test_a_wrong_wish_is_refused_before_anything_is_done(
    rows: JobRows, http: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    rows.failed()
    answer = await http.post("/api/jobs/replay", json=wrong)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest"), answer.text
    assert (await get(http, "batches"))["items"] == []

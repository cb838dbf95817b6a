"""The reconciler while Temporal is away, and where it gives up."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.jobs.job import Job, JobKind, JobStatus
from temporal.reconciler import RECOVERIES, Reconciler
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import JobRows


class Away:
    """A connection whose every question fails; ``asked`` is set by the second."""

    def __init__(self, status: RPCStatusCode) -> None:
        self.asked = asyncio.Event()
        self._status = status
        self._questions = 0

    def get_workflow_handle(self, _: str) -> "Away":
        return self

    async def describe(self) -> None:
        self._questions += 1
        if self._questions == 2:
            self.asked.set()
        raise RPCError("transport error", self._status, b"")


@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL])
async def test_it_goes_on_looking_however_temporal_is_away(tmp_path: Path, status: RPCStatusCode) -> None:
    """A reset connection is UNKNOWN, and used to end the process after ten seconds of them."""
    store = fresh_store(tmp_path / "maestro.db")
    with store.begin() as tx:
        tx.jobs.add(
            Job(id="job", platform="web", account="default", channel="c", status=JobStatus.RUNNING, created_at=tx.now)
        )
    away = Away(status)
    looking = asyncio.create_task(Reconciler(store, lambda: 0.001, lambda: None).run(cast(Client, away)))
    async with asyncio.timeout(10):
        await away.asked.wait()
    assert not looking.done()
    looking.cancel()
    with store.view() as tx:
        assert tx.jobs.read_status("job") is JobStatus.RUNNING
    store.close()


class Failed:
    """A connection by which every workflow has failed."""

    status = WorkflowExecutionStatus.FAILED
    id = run_id = "failed"

    def get_workflow_handle(self, _: str, run_id: str = "") -> "Failed":
        return self

    async def fetch_history(self) -> WorkflowHistory:
        return WorkflowHistory(self.id, [HistoryEvent()])

    async def describe(self) -> "Failed":
        return self


async def test_where_nobody_asked_nobody_hears_that_it_gave_up(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    asked, beat = rows.add("hello"), rows.add(kind=JobKind.HEARTBEAT, platform="cron")
    with rows.store.begin() as tx:
        tx.jobs.update_job(asked, status=JobStatus.RUNNING, recoveries=RECOVERIES)
        tx.jobs.update_job(beat, status=JobStatus.RUNNING, recoveries=RECOVERIES, lane="a lane of its own")
    await Reconciler(rows.store, lambda: 1, lambda: None).reconcile_jobs(cast(Client, Failed()))
    with rows.store.view() as tx:
        assert [tx.jobs.read_status(job_id) for job_id in (asked, beat)] == [JobStatus.FAILED] * 2
        notices = [tx.jobs.read(one.id) for one in tx.jobs.list_claimable_jobs(9, tx.now)]
    assert [notice.kind for notice in notices] == [JobKind.MESSAGE]
    rows.store.close()

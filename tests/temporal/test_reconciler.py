"""The reconciler while Temporal is away."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.jobs.job import Job, JobStatus
from temporal.reconciler import Reconciler
from tests.support.fresh_store import fresh_store


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
        assert tx.jobs.status("job") is JobStatus.RUNNING
    store.close()

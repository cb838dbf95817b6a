"""Jobs: the list, one with its timeline, and what an operator does with it."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.context.views import SeenView, seen_view
from maestro.domain.jobs.cursors import Cursor
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Edits, JobStatus
from maestro.domain.jobs.preview import Preview
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.timeline import CallPage
from maestro.domain.jobs.views import JobDetail, JobPage, call_page, detail, summary
from maestro.domain.values import Value, readable_by
from maestro.store.replays import foreseen
from maestro.store.store import Store

LIMIT = 50
MOST = 200

router = APIRouter(route_class=PasswordRoute, tags=["jobs"], prefix="/api/jobs")


class JobQuery(JobFilter):
    """A filter and a page of its result; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(Cursor.decode)] | None = None

    @property
    def after(self) -> Cursor | None:
        """Return where the page begins."""
        return Cursor.decode(self.cursor) if self.cursor is not None else None


class Replay(Value):
    """How to replay.

    ``resume`` goes on at the failed step and keeps every result, ``restart`` begins from the top as a new job, and
    ``what-if`` only shows what would be answered now. Without ``edits`` what begins anew keeps those of the job; with
    ``{}`` it has none. A ``preview`` only tells what would be done, paid and repeated.
    """

    mode: ReplayMode
    edits: Edits | None = None
    preview: bool = False


class Replayed(Value):
    """The job that runs now: the same one when resumed, a new one when restarted or asked for a what-if."""

    id: str


class Standing(Value):
    """Where a job stands."""

    id: str
    status: JobStatus


@router.get("")
def list_jobs(parts: Parts, query: Annotated[JobQuery, Query()]) -> JobPage:
    """List jobs, newest first; ``status`` and ``kind`` may be given several times."""
    with parts.store.view() as tx:
        found, following = tx.browse.jobs(query, query.after, query.limit)
    return JobPage(items=tuple(map(summary, found)), next=following.encode() if following else None)


@router.get("/{job_id}")
def show_job(parts: Parts, job_id: str) -> JobDetail:
    """Return a job with every attempt at every step, its model calls and what it sent."""
    with parts.store.view() as tx:
        record = tx.browse.job(job_id, parts.budgets().fallback_model)
    return detail(record).linked(parts.temporal_ui_url, parts.namespace)


@router.get("/{job_id}/calls")
def list_calls(parts: Parts, job_id: str) -> CallPage:
    """List every attempt at a job's model calls in the order they were made."""
    with parts.store.view() as tx:
        return call_page(tx.requests.calls(job_id))


@router.get("/{job_id}/calls/{call_id}/prompt")
def show_prompt(parts: Parts, job_id: str, call_id: Number) -> SeenView:
    """Return exactly what the model saw in one call, and what it said; 404 when its conversation was deleted."""
    with parts.store.view() as tx:
        seen = tx.requests.seen(job_id, call_id)
    return seen_view(seen)


@router.post("/{job_id}/replay")
async def replay_job(parts: Parts, job_id: str, replay: Replay) -> Replayed | Preview:
    """Replay an ended job; 409 when its state does not allow it. A preview says that in ``problem`` instead."""
    if replay.preview:
        return await asyncio.to_thread(_foreseen, parts.store, job_id, replay)
    return Replayed(id=await parts.control.replay(job_id, replay.mode, OPERATOR, replay.edits))


@router.post("/{job_id}/cancel")
async def cancel_job(parts: Parts, job_id: str) -> Standing:
    """Stop an open job for good; what runs notices within a second, so the status may still be ``running``."""
    await parts.control.cancel(job_id, OPERATOR)
    return Standing(id=job_id, status=await asyncio.to_thread(_status, parts.store, job_id))


def _foreseen(store: Store, job_id: str, replay: Replay) -> Preview:
    with store.view() as tx:
        return foreseen(tx, job_id, replay.mode, replay.edits)


def _status(store: Store, job_id: str) -> JobStatus:
    with store.view() as tx:
        return tx.jobs.status(job_id)

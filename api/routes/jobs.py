"""REST routes of jobs, of batches of them, and of the questions for which they wait.

See docs/decisions.md: questions.
"""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response, status
from pydantic import Field, model_validator

from api.guards import OPERATOR, PasswordRoute
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Number, Parts
from maestro.domain.context.views import SeenView, seen_view
from maestro.domain.jobs.batch_views import BatchView, BatchWish, Selection, check_edits
from maestro.domain.jobs.batches import BatchAction
from maestro.domain.jobs.cursors import Cursor
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.forecast import Forecast
from maestro.domain.jobs.job import Edits, JobStatus
from maestro.domain.jobs.preview import Preview
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.jobs.timeline import CallPage
from maestro.domain.jobs.views import JobDetail, JobPage, call_page, detail, summary
from maestro.domain.values import Value, readable_by
from maestro.operations.batches import BatchOperations
from maestro.operations.questions import QuestionOperations
from maestro.store.replays import foreseen
from maestro.store.store import Store

BEGUN: dict[int | str, dict[str, Any]] = {
    status.HTTP_200_OK: {"model": Forecast, "description": "What a dry run found"},
    status.HTTP_202_ACCEPTED: {"model": BatchView, "description": "The batch, which goes on by itself"},
}
"""What a request for a batch is answered with."""

LIMIT = 50
MOST = 200

jobs = APIRouter(route_class=PasswordRoute, tags=["jobs"], prefix="/api/jobs")


class BulkReplay(Selection):
    """Which jobs to replay and how; with ``dryRun`` it is only told what that would do.

    ``edits`` go with the mode ``restart``.
    """

    mode: Literal["resume", "restart"]
    edits: Edits | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _fitting(self) -> "BulkReplay":
        check_edits(self.mode, self.edits)
        return self


class BulkCancel(Selection):
    """Which jobs to cancel; with ``dryRun`` it is only told what that would do."""

    dry_run: bool = False


batches = OperationAPIRouter("batches", tag="jobs")
batches.serve("GET", "/counts", BatchOperations.counts, "count_jobs")
batches.serve("GET", "/errors", BatchOperations.errors, "group_errors")


@batches.post("/replay", responses=BEGUN, response_model=None)
def replay_jobs(parts: Parts, wish: BulkReplay, response: Response) -> Forecast | BatchView:
    """Replay many jobs; 409 when it is another number of jobs by now than ``expected``."""
    chosen = wish.model_dump(exclude={"mode", "dry_run"}, exclude_unset=True)
    return _batch(parts, BatchWish(action=BatchAction(wish.mode), **chosen), response, dry_run=wish.dry_run)


@batches.post("/cancel", responses=BEGUN, response_model=None)
def cancel_jobs(parts: Parts, wish: BulkCancel, response: Response) -> Forecast | BatchView:
    """Stop many open jobs for good; 409 when it is another number of jobs by now than ``expected``."""
    chosen = wish.model_dump(exclude={"dry_run"}, exclude_unset=True)
    return _batch(parts, BatchWish(action=BatchAction.CANCEL, **chosen), response, dry_run=wish.dry_run)


batches.serve("GET", "/batches", BatchOperations.list, "list_batches")
batches.serve("GET", "/batches/{batch_id}", BatchOperations.show, "show_batch")
batches.serve("GET", "/batches/{batch_id}/items", BatchOperations.items, "list_items")
batches.serve("POST", "/batches/{batch_id}/stop", BatchOperations.stop, "stop_batch")


def _batch(parts: Parts, wish: BatchWish, response: Response, *, dry_run: bool) -> Forecast | BatchView:
    if dry_run:
        return parts.batches.forecast(wish)
    response.status_code = status.HTTP_202_ACCEPTED
    return parts.batches.begin(wish, OPERATOR)


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


class ReplayReference(Value):
    """The job that runs now: the same one when resumed, a new one when restarted or asked for a what-if."""

    id: str


class JobStatusQuery(Value):
    """Where a job stands."""

    id: str
    status: JobStatus


@jobs.get("")
def list_jobs(parts: Parts, query: Annotated[JobQuery, Query()]) -> JobPage:
    """List jobs, newest first; ``status`` and ``kind`` may be given several times."""
    with parts.store.view() as tx:
        found, following = tx.jobs.lists.jobs(query, query.after, query.limit)
    return JobPage(items=tuple(map(summary, found)), next=following.encode() if following else None)


@jobs.get("/{job_id}")
def show_job(parts: Parts, job_id: str) -> JobDetail:
    """Return a job with every attempt at every step, its model calls and what it sent."""
    with parts.store.view() as tx:
        record = tx.jobs.lists.job(job_id, parts.budgets().fallback_model)
    return detail(record).linked(parts.temporal_ui_url, parts.namespace)


@jobs.get("/{job_id}/calls")
def list_calls(parts: Parts, job_id: str) -> CallPage:
    """List every attempt at a job's model calls in the order they were made."""
    with parts.store.view() as tx:
        return call_page(tx.llm.requests.calls(job_id))


@jobs.get("/{job_id}/calls/{call_id}/prompt")
def show_prompt(parts: Parts, job_id: str, call_id: Number) -> SeenView:
    """Return exactly what the model saw in one call, and what it said; 404 when its conversation was deleted."""
    with parts.store.view() as tx:
        seen = tx.llm.requests.seen(job_id, call_id)
    return seen_view(seen)


@jobs.post("/{job_id}/replay")
async def replay_job(parts: Parts, job_id: str, replay: Replay) -> ReplayReference | Preview:
    """Replay an ended job; 409 when its state does not allow it. A preview says that in ``problem`` instead."""
    if replay.preview:
        return await asyncio.to_thread(_foreseen, parts.store, job_id, replay)
    return ReplayReference(id=await parts.control.replay(job_id, replay.mode, OPERATOR, replay.edits))


@jobs.post("/{job_id}/cancel")
async def cancel_job(parts: Parts, job_id: str) -> JobStatusQuery:
    """Stop an open job for good; what runs notices within a second, so the status may still be ``running``."""
    await parts.control.cancel(job_id, OPERATOR)
    return JobStatusQuery(id=job_id, status=await asyncio.to_thread(_status, parts.store, job_id))


def _foreseen(store: Store, job_id: str, replay: Replay) -> Preview:
    with store.view() as tx:
        return foreseen(tx, job_id, replay.mode, replay.edits)


def _status(store: Store, job_id: str) -> JobStatus:
    with store.view() as tx:
        return tx.jobs.status(job_id)


questions = OperationAPIRouter("questions")
questions.serve("GET", "", QuestionOperations.list, "list_questions")
questions.serve("GET", "/{question_id}", QuestionOperations.show, "show_question")
questions.serve("POST", "/{question_id}/answer", QuestionOperations.answer, "answer_question")

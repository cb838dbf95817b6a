"""REST routes of jobs, of batches of jobs, and of the questions for which jobs wait (docs/decisions.md: questions)."""

import asyncio
from typing import Any, Literal

from fastapi import Response, status
from pydantic import model_validator

from api.guards import OPERATOR, Parts
from api.routes.operation_router import OperationAPIRouter
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import BatchAction, BatchRequest, BatchView, JobSelection, check_edits
from maestro.domain.jobs.job import JobEdits
from maestro.domain.jobs.replay import ReplayMode, ReplayPreview
from maestro.domain.values import Value
from maestro.operations.jobs import BatchOperations, JobOperations, ReplayReference
from maestro.operations.questions import QuestionOperations

BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    status.HTTP_200_OK: {"model": BatchPreview, "description": "The preview of a dry run"},
    status.HTTP_202_ACCEPTED: {"model": BatchView, "description": "The batch, which runs in the background"},
}
"""The OpenAPI responses of a route that begins or previews a batch."""


class BulkReplay(JobSelection):
    """The jobs to replay and the replay mode; with ``dryRun`` the response is a preview, and nothing is changed.

    ``edits`` are allowed only with the mode ``restart``.
    """

    mode: Literal["resume", "restart"]
    edits: JobEdits | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _check_edits(self) -> "BulkReplay":
        check_edits(self.mode, self.edits)
        return self


class BulkCancel(JobSelection):
    """The jobs to cancel; with ``dryRun`` the response is a preview, and nothing is changed."""

    dry_run: bool = False


batches = OperationAPIRouter("batches", tag="jobs")
batches.serve_operation("GET", "/counts", BatchOperations.counts, "count_jobs")
batches.serve_operation("GET", "/errors", BatchOperations.errors, "group_errors")


@batches.post("/replay", responses=BATCH_RESPONSES, response_model=None)
def replay_jobs(parts: Parts, bulk: BulkReplay, response: Response) -> BatchPreview | BatchView:
    """Replay many jobs as a batch; 409 if the number of matching jobs is not ``expected``."""
    selection = bulk.model_dump(exclude={"mode", "dry_run"}, exclude_unset=True)
    return _begin_batch(parts, BatchRequest(action=BatchAction(bulk.mode), **selection), response, dry_run=bulk.dry_run)


@batches.post("/cancel", responses=BATCH_RESPONSES, response_model=None)
def cancel_jobs(parts: Parts, bulk: BulkCancel, response: Response) -> BatchPreview | BatchView:
    """Cancel many open jobs as a batch; 409 if the number of matching jobs is not ``expected``."""
    selection = bulk.model_dump(exclude={"dry_run"}, exclude_unset=True)
    return _begin_batch(parts, BatchRequest(action=BatchAction.CANCEL, **selection), response, dry_run=bulk.dry_run)


batches.serve_operation("GET", "/batches", BatchOperations.list, "list_batches")
batches.serve_operation("GET", "/batches/{batch_id}", BatchOperations.show, "show_batch")
batches.serve_operation("GET", "/batches/{batch_id}/items", BatchOperations.items, "list_items")
batches.serve_operation("POST", "/batches/{batch_id}/stop", BatchOperations.stop, "stop_batch")


def _begin_batch(parts: Parts, request: BatchRequest, response: Response, *, dry_run: bool) -> BatchPreview | BatchView:
    if dry_run:
        return parts.batches.forecast(request)
    response.status_code = status.HTTP_202_ACCEPTED
    return parts.batches.begin(request, OPERATOR)


class Replay(Value):
    """The mode and the edits of a replay.

    ``resume`` continues at the failed step with all results so far. ``restart`` starts from the beginning as a new job.
    ``what-if`` only shows the answer that would be given now. Without ``edits`` a new job takes over the edits of the
    old job; with ``{}`` it has none. With ``preview`` the response is only the steps, the cost and the repeated
    effects.
    """

    mode: ReplayMode
    edits: JobEdits | None = None
    preview: bool = False


jobs = OperationAPIRouter("jobs")
jobs.serve_operation("GET", "", JobOperations.list, "list_jobs")
jobs.serve_operation("GET", "/{job_id}", JobOperations.show, "show_job")
jobs.serve_operation("GET", "/{job_id}/calls", JobOperations.calls, "list_calls")
jobs.serve_operation("GET", "/{job_id}/calls/{call_id}/prompt", JobOperations.prompt, "show_prompt")


@jobs.post("/{job_id}/replay")
async def replay_job(parts: Parts, job_id: str, replay: Replay) -> ReplayReference | ReplayPreview:
    """Replay an ended job; 409 when the job's state does not allow it, a reason that a preview has in ``problem``."""
    if replay.preview:
        return await asyncio.to_thread(parts.jobs.preview, job_id, replay.mode, replay.edits)
    return ReplayReference(id=await parts.jobs.replay(job_id, replay.mode, OPERATOR, replay.edits))


jobs.serve_operation("POST", "/{job_id}/cancel", JobOperations.cancel, "cancel_job")

questions = OperationAPIRouter("questions")
questions.serve_operation("GET", "", QuestionOperations.list, "list_questions")
questions.serve_operation("GET", "/{question_id}", QuestionOperations.show, "show_question")
questions.serve_operation("POST", "/{question_id}/answer", QuestionOperations.answer, "answer_question")

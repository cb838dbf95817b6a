"""The operations that list, show, replay and cancel jobs, one or many (docs/invariants.md: resume)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from ulid import ULID

from maestro.domain.columns import LARGEST
from maestro.domain.context.views import RecordedCallView, recorded_call_view
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.batch_preview import BatchPreview, JobPreview, JobPreviews, build_batch_preview
from maestro.domain.jobs.batches import (
    MOST_JOBS,
    BatchItemPage,
    BatchPage,
    BatchRequest,
    BatchView,
    ItemState,
    ReplayBatch,
    StatusCounts,
    batch_view,
)
from maestro.domain.jobs.filters import ErrorGroupPage, JobFilter, PageCursor, group_failures
from maestro.domain.jobs.job import CANCELLED_BY, NO_EDITS, Job, JobEdits, JobEnding, JobStatus
from maestro.domain.jobs.replay import ReplayMode, ReplayPreview, new_restart, new_what_if
from maestro.domain.jobs.traces import trace_id_text
from maestro.domain.jobs.views import CallPage, JobDetail, JobPage, call_view, job_detail, job_summary
from maestro.domain.values import Value, readable_by
from maestro.operations.inputs import RowId, StoreOperations
from maestro.store.replays import find_chosen_agent, preview_replay, require_replayable, set_chosen_agent
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.store.users.audit import current_origin

LIMIT = 50
WITHOUT_A_WORKFLOW = (JobStatus.PENDING, JobStatus.WAITING)

InterruptWorkflow = Callable[[str], Awaitable[None]]
"""A function that tells the workflow of a stopped job to wait no longer; the argument is the job's id."""


class JobQuery(JobFilter):
    """A filter of jobs and the page of its result to return; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=LIMIT, ge=1, le=200)
    cursor: Annotated[str, readable_by(PageCursor.parse_text)] | None = None


class ReplayReference(Value):
    """The id of the job that runs: the same job for a resume, a new job for a restart or a what-if."""

    id: str


class JobState(Value):
    """The id and the status of a job."""

    id: str
    status: JobStatus


@dataclass(frozen=True)
class JobLinks:
    """Where other systems show a job.

    ``ui_url`` and ``namespace`` are those of Temporal's Web UI; without a URL, jobs have no link to their workflow. If
    traces are exported (``traced``), jobs have the id of their trace, and a link if ``trace_url`` is set.
    """

    ui_url: str = ""
    namespace: str = "default"
    traced: bool = False
    trace_url: str = ""

    def link(self, job: JobDetail) -> JobDetail:
        """Return a job with the link to its workflow, and with its trace."""
        links: dict[str, str] = {}
        if self.ui_url:
            links["temporal_url"] = f"{self.ui_url.rstrip('/')}/namespaces/{self.namespace}/workflows/{job.id}"
        if self.traced:
            links["trace_id"] = trace_id_text(job.id, job.created_at)
        if self.traced and self.trace_url:
            links["trace_url"] = self.trace_url.replace("{traceId}", links["trace_id"])
        return job.model_copy(update=links)


@dataclass(frozen=True)
class JobOperations:
    """The operations on jobs; an unknown id raises ``NotFound``.

    The dispatcher, which starts jobs, finds changed jobs by itself; ``wake`` makes the dispatcher of this process look
    at once. ``interrupt`` notifies a running workflow. ``fallback_model`` returns the model that answers when a budget
    is used up.
    """

    store: Store
    interrupt: InterruptWorkflow
    wake: Callable[[], None] = lambda: None
    links: JobLinks = JobLinks()
    fallback_model: Callable[[], str] = lambda: ""

    def list(self, query: JobQuery) -> JobPage:
        """List jobs, newest first; ``status`` and ``kind`` may be given several times."""
        after = PageCursor.parse_text(query.cursor) if query.cursor is not None else None
        with self.store.view() as tx:
            jobs, following = tx.jobs.lists.list_jobs(query, after, query.limit)
        return JobPage(items=tuple(map(job_summary, jobs)), next=following.encode_text() if following else None)

    def show(self, job_id: str) -> JobDetail:
        """Return a job with every attempt at every step, all model calls and all deliveries."""
        with self.store.view() as tx:
            record = tx.jobs.lists.read_record(job_id, self.fallback_model())
        return self.links.link(job_detail(record))

    def status(self, job_id: str) -> JobStatus:
        """Return the status of a job."""
        with self.store.view() as tx:
            return tx.jobs.read_status(job_id)

    def calls(self, job_id: str) -> CallPage:
        """List the model calls of a job, including every failed attempt, in the order in which they were made."""
        with self.store.view() as tx:
            return CallPage(items=tuple(map(call_view, tx.llm.requests.list_calls(job_id))))

    def prompt(self, job_id: str, call_id: RowId) -> RecordedCallView:
        """Return the exact prompt of a model call and the model's answer; 404 when the conversation was deleted."""
        with self.store.view() as tx:
            return recorded_call_view(tx.llm.requests.get_recorded_call(job_id, call_id))

    def last_prompt(self, job_id: str) -> RecordedCallView:
        """Return the prompt of the job's last answered model call, and the model's answer."""
        with self.store.view() as tx:
            return recorded_call_view(
                tx.llm.requests.get_recorded_call(job_id, tx.llm.requests.find_default_call_id(job_id))
            )

    def preview(self, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> ReplayPreview:
        """Return what a replay would do; ``problem`` says why it is impossible. Raises ``InvalidEdit``."""
        with self.store.view() as tx:
            return preview_replay(tx, job_id, mode, edits)

    async def replay(self, job_id: str, mode: ReplayMode, actor: str, edits: JobEdits | None = None) -> str:
        """Replay an ended job and return the id of the job that runs; without ``edits`` earlier edits still apply.

        Raises ``Conflict`` when the job's state does not allow a replay, and ``InvalidEdit`` for wrong edits.
        """
        running = await asyncio.to_thread(self._replay, job_id, mode, actor, edits)
        self.wake()
        return running

    async def cancel(self, job_id: str, actor: str) -> JobState:
        """Cancel an open job; a running workflow stops within a second, so the status may still be ``running``."""
        if await asyncio.to_thread(self._stop, job_id, actor) not in WITHOUT_A_WORKFLOW:
            await self.interrupt(job_id)
        self.wake()
        return JobState(id=job_id, status=await asyncio.to_thread(self.status, job_id))

    def _replay(self, job_id: str, mode: ReplayMode, actor: str, edits: JobEdits | None) -> str:
        with self.store.begin() as tx:
            return replay_job(tx, job_id, mode, actor, edits)

    def _stop(self, job_id: str, actor: str) -> JobStatus:
        with self.store.begin() as tx:
            return stop_job(tx, job_id, actor)


def replay_job(tx: Transaction, job_id: str, mode: ReplayMode, actor: str, edits: JobEdits | None = None) -> str:
    """Queue an ended job for a replay, and return the id of the job that a dispatcher will run.

    Raises ``NotFound``, ``Conflict`` and ``InvalidEdit``. The caller must wake the dispatcher after the commit.
    """
    job = tx.jobs.get(job_id)
    newest = require_replayable(tx, job, mode, edits)
    if mode is ReplayMode.RESUME:
        tx.system.audit.add_entry(actor, f"job.{mode}", job_id)
        return _resume_job(tx, job)
    if mode is ReplayMode.WHAT_IF:
        new_id = tx.jobs.add(set_chosen_agent(tx, new_what_if(job, f"what-if-{ULID()}", tx.now, edits))).id
    else:
        restart = new_restart(newest, f"{newest.kind}-{ULID()}", tx.now, edits)
        new_id = tx.jobs.add(set_chosen_agent(tx, restart)).id
        if newest.inbox_id is not None and newest.parent_id is None:
            tx.jobs.merged.merge_followers([newest.id], new_id)
    changed = ", ".join(name for name, value in edits or NO_EDITS if value is not None)
    detail = f"as {new_id}" + (f", with another {changed}" if changed else "")
    tx.system.audit.add_entry(actor, f"job.{mode}", job_id, detail)
    return new_id


def stop_job(tx: Transaction, job_id: str, actor: str) -> JobStatus:
    """Request a stop of an open job and return its previous status; a pending or waiting job is cancelled at once.

    Raises ``NotFound``, and ``Conflict`` when the job has ended.
    """
    job = tx.jobs.get(job_id)
    status = job.status
    if status.ended:
        raise Conflict(f"job {job_id} is {status} already; there is nothing to cancel")
    tx.system.audit.add_entry(actor, "job.cancel", job_id)
    tx.jobs.request_stop(job_id)
    reason = f"{CANCELLED_BY}{actor}"
    if status in WITHOUT_A_WORKFLOW:
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.CANCELLED, reason=reason))
    else:
        tx.jobs.update_job(job_id, reason=reason)  # The step that closes the job reads this reason.
    return status


def _resume_job(tx: Transaction, job: Job) -> str:
    if not job.what_if:
        if job.status is JobStatus.COMPLETED:
            tx.deliveries.reports.release_withheld_chunks(job.id)
        tx.deliveries.revive_chunks(job.id)
        # A resumed job sends again, so a channel that was disabled after a refusal is enabled.
        tx.bots.channels.enable(job.address)
        tx.jobs.delegations.restore_withheld(job.id)
    return tx.jobs.reopen_job(job).id


class BatchQuery(Value):
    """The page of batches to return; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=LIMIT, ge=1, le=200)
    cursor: str | None = None


class ItemQuery(Value):
    """A filter of a batch's jobs by state, and the page to return; ``cursor`` is the ``next`` of the previous page."""

    state: tuple[ItemState, ...] = ()
    limit: int = Field(default=LIMIT, ge=1, le=1000)
    cursor: int = Field(default=0, ge=0, le=LARGEST)


class BatchOperations(StoreOperations):
    """The operations on many jobs at once: counts, and batches, which select their jobs when they begin."""

    def counts(self, query: JobFilter) -> StatusCounts:
        """Count the jobs that match a filter, by status; the ``status`` of the filter is ignored."""
        with self._store.view() as tx:
            counts = tx.jobs.counts.count_by_status(query)
        return StatusCounts(total=sum(counts.values()), **{str(status): count for status, count in counts.items()})

    def errors(self, query: JobFilter) -> ErrorGroupPage:
        """Group jobs that match a filter by error, newest first; without ``status``, only failed jobs are grouped."""
        with self._store.view() as tx:
            return group_failures(tx.jobs.counts.group_failures(query))

    def list(self, query: BatchQuery) -> BatchPage:
        """List the batches with their progress, newest first."""
        with self._store.view() as tx:
            rows = tx.jobs.batches.list_newest_batches(query.cursor, query.limit + 1)
            views = [
                batch_view(row, tx.jobs.batches.count_items_by_state(row.id), tx.now) for row in rows[: query.limit]
            ]
        return BatchPage(items=tuple(views), next=views[-1].id if len(rows) > query.limit else None)

    def show(self, batch_id: str) -> BatchView:
        """Return a batch with its progress."""
        with self._store.view() as tx:
            return batch_view(tx.jobs.batches.get(batch_id), tx.jobs.batches.count_items_by_state(batch_id), tx.now)

    def items(self, batch_id: str, query: ItemQuery) -> BatchItemPage:
        """List the results of a batch's jobs, in the order of the batch; ``state`` may be given several times."""
        with self._store.view() as tx:
            tx.jobs.batches.get(batch_id)
            found = tx.jobs.batches.list_items(batch_id, query.state, query.cursor, query.limit + 1)
        more = len(found) > query.limit
        return BatchItemPage(items=tuple(found[: query.limit]), next=found[query.limit - 1].place if more else None)

    def forecast(self, request: BatchRequest) -> BatchPreview:
        """Return what a batch would do, without beginning it; raises ``InvalidEdit`` if it cannot begin."""
        with self._store.view() as tx:
            return build_batch_preview(request.action, _previews(tx, request))

    def begin(self, request: BatchRequest, actor: str) -> BatchView:
        """Begin a batch; raises ``InvalidEdit`` as ``forecast``, and ``Conflict`` if not ``expected`` jobs match."""
        # The selection may take seconds, so it uses a read-only view, which does not block writers.
        with self._store.view() as tx:
            previews = _previews(tx, request)
        if request.expected is not None and request.expected != len(previews):
            matching = "1 job matches" if len(previews) == 1 else f"{len(previews)} jobs match"
            raise Conflict(f"{matching} by now, not {request.expected}. Look at them again, then repeat.")
        with self._store.begin() as tx:
            batch = ReplayBatch(
                id=f"batch-{ULID()}",
                action=request.action,
                edits=request.changes.text,
                wanted=request.filter.model_dump_json(exclude_defaults=True) if request.filter is not None else "",
                actor=actor,
                origin=current_origin(),
                total=len(previews),
                created_at=tx.now,
            )
            tx.jobs.batches.add_batch(batch, previews)
            tx.jobs.batches.end_batch_if_done(batch.id)
            possible = sum(not preview.problem for preview in previews)
            tx.system.audit.add_entry(actor, f"jobs.{request.action}", batch.id, f"{possible} of {len(previews)} jobs")
        return self.show(batch.id)

    def stop(self, batch_id: str, actor: str) -> BatchView:
        """Stop a batch: no further job begins, and begun jobs continue. 409 for a batch that has ended."""
        with self._store.begin() as tx:
            if tx.jobs.batches.get(batch_id).ended_at is not None:
                raise Conflict(f"batch {batch_id} has ended already; there is nothing to stop")
            tx.jobs.batches.skip_waiting_items(batch_id)
            tx.system.audit.add_entry(actor, "batch.stop", batch_id)
        return self.show(batch_id)


def _previews(tx: Transaction, request: BatchRequest) -> Sequence[JobPreview]:
    find_chosen_agent(tx, request.changes)
    agents = {agent.slug: agent.id for agent in tx.agents.list_active_agents()}
    previews = JobPreviews(request.action, tx.jobs.candidates.read_average_costs(), request.changes, agents)
    found = tx.jobs.candidates.read_jobs(_selected_ids(tx, request))
    return [
        previews.preview_job(job) if job is not None else JobPreview(job_id, "", f"job {job_id} does not exist")
        for job_id, job in found
    ]


def _selected_ids(tx: Transaction, request: BatchRequest) -> Sequence[str]:
    if request.filter is None:
        return tuple(dict.fromkeys(request.ids or ()))
    ids = tx.jobs.candidates.list_matching_ids(request.filter, MOST_JOBS + 1)
    if len(ids) > MOST_JOBS:
        raise InvalidEdit(f"more than {MOST_JOBS:,} jobs match; narrow the filter, for example with since and until")
    return ids

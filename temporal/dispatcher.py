"""The dispatcher: claims jobs, starts their workflows, and ends the waits of stopped jobs.

See docs/architecture.md: processes and queues; docs/invariants.md: lanes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from maestro.domain.cluster import Leases
from maestro.domain.jobs.job import Job, JobRef, is_background, job_details
from maestro.domain.messages import Address
from maestro.domain.precedence import ClaimOrder
from maestro.store.cache import StoreState
from maestro.store.jobs.claims import CLAIM_LAPSES, ClaimedJob
from maestro.store.store import Store
from temporal.attempts import LoadGauge
from workflows.definitions import BackgroundWorkflow, DelegationWorkflow, MessageWorkflow, WhatIfWorkflow
from workflows.steps import search_attributes, temporal_priority

START_TIMEOUT = 5.0

STILL_CLOSING = "the job's previous run is still closing"
"""Why a resumed job does not start yet: its failed workflow is still closing. A later check starts the job."""

TASK_TIMEOUT = timedelta(seconds=5)
"""The timeout of a workflow task on an idle machine, after which a dead process's local step is repeated elsewhere."""
LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Queues:
    """The names of the task queues; an empty name stands for the main queue.

    Workflows and local steps use ``main``, and model calls use ``llm``. Each connector has its own queue, whose name
    begins with ``connectors``. Only the process that runs the connector polls that queue. Tool calls use ``tools``,
    polled where the folders of conversations are; if it is empty, ``llm``.
    """

    main: str
    llm: str = ""
    connectors: str = ""
    tools: str = ""

    def connector_queue(self, platform: str, account: str) -> str:
        """Return the name of a connector's task queue; empty when connectors use the main queue."""
        return f"{self.connectors}-{platform}-{account}" if self.connectors else ""


@dataclass(frozen=True)
class RunSettings:
    """Settings for starting jobs: task queues, seconds between checks (``look``), and most background jobs at a time.

    ``defaults`` is the workflow payload to which the values of each job are added.
    """

    queues: Queues
    look: float
    background: int
    defaults: JobRef
    codec_key: str = ""
    """The id of the key that encrypts new payloads; schedules are sent again when it changes."""

    def build_job_ref(self, address: Address, **own: Any) -> JobRef:
        """Return the workflow payload for a job at an address; values in ``own`` replace those of the settings."""
        connector_queue = self.queues.connector_queue(address.platform, address.account)
        queues = self.queues
        values = {"llm_queue": queues.llm, "connector_queue": connector_queue, "tools_queue": queues.tools}
        return self.defaults.model_copy(update=values | own)


@dataclass(frozen=True)
class DispatcherView:
    """The work for a dispatcher: jobs to start, and waiting jobs that a user stopped.

    ``stopped`` is None if the stopped jobs were not read. ``crowded`` says that a job waits only because too many jobs
    run.
    """

    claimed: Sequence[ClaimedJob] = ()
    stopped: frozenset[str] | None = None
    crowded: bool = False


class Dispatcher:
    """A dispatcher: starts the jobs that the intake hands over, and claims other jobs when the store changes."""

    def __init__(
        self, store: Store, settings: Callable[[], RunSettings], report: Callable[[str], None], leases: Leases
    ) -> None:
        """``leases`` tells which other dispatchers live; the claims of all others are released at the start."""
        self._store = store
        self._leases = leases
        self._settings = settings
        self._report = report
        self._woken = asyncio.Event()
        self._paused = False
        self._client: Client | None = None
        self._well = True
        self._seen = 0
        self._has_new = self._left_behind = True
        self._order = ClaimOrder(owner=leases.owner)
        self._interrupted: set[str] = set()
        self._reported: set[str] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._load = LoadGauge()
        self.may_run_here: Callable[[], bool] = lambda: True
        """Tells whether the worker of this process may have the first task of a new workflow without being asked."""

    @property
    def owner(self) -> str:
        """The process of this dispatcher, as its claims name it."""
        return self._leases.owner

    @property
    def ready(self) -> bool:
        """Whether a job that is claimed now is started at once; any thread may read this."""
        return self._client is not None and self._well and not self._paused

    def start(self, claimed: ClaimedJob) -> None:
        """Start a claimed job after the claim was committed; any thread may call this."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_soon, claimed)

    def check_soon(self) -> None:
        """Let the dispatcher check for new jobs at once; any thread may call this."""
        if not self._loop.is_closed():
            self._has_new = self._left_behind = True
            self._loop.call_soon_threadsafe(self._woken.set)

    def check_after_release(self) -> None:
        """Check for jobs soon if one may wait for the lane or slot that was just freed; any thread may call this."""
        if self._left_behind:
            self.check_soon()
        else:
            self._store.changes.request_check()

    def pause_claims(self) -> None:
        """Start no more jobs in this process; pending jobs wait for the next start of Maestro."""
        self._paused = True
        self._woken.set()

    async def run(self, client: Client) -> None:
        """Start jobs until cancelled; while Temporal is away, jobs wait in the store in their order."""
        await asyncio.to_thread(self._release_claims_of_ended)
        self._client = client
        try:
            with self._store.changes.subscribe(self._has_work, lambda: self._settings().look, self._woken):
                await self._claim_until_cancelled(client)
        finally:
            for starting in self._starting:
                starting.cancel()

    def _release_claims_of_ended(self) -> None:
        """Release the claims of processes that ended, so that their jobs start now and not when the claims lapse.

        The claims of other processes are about to start: a release would start many jobs twice at each restart.
        """
        owners = self._store.read(lambda tx: tx.jobs.list_claim_owners())
        gone = self._leases.find_gone(owners) if owners else ()
        if gone:
            self._store.write(lambda tx: tx.jobs.release_claims_of(gone))

    async def _claim_until_cancelled(self, client: Client) -> None:
        pause = self._settings().look
        while not self._paused:
            has_new, self._has_new = self._has_new, False
            state = self._store.changes.state
            self._seen = state.number if state is not None else 0
            view = await asyncio.to_thread(self._find_work, state, has_new)
            if view.stopped is not None:
                # A stopped job that is inside a step notices the stop there (docs/decisions.md: control words).
                new, self._interrupted = view.stopped - self._interrupted, set(view.stopped)
                await asyncio.gather(*(self._cancel_workflow(client, job_id) for job_id in new))
            if not view.claimed:
                await self._wait_for_work(self._settings().look if view.crowded else None)
                continue
            self._well = await self._start_workflows(client, view.claimed)
            if not self._well:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = self._settings().look
            if not self._left_behind:
                await self._wait_for_work(None)

    async def _wait_for_work(self, seconds: float | None) -> None:
        """Wait for a notification for at most ``seconds``, because capacity may become free without a notification."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def _has_work(self, state: StoreState) -> bool:
        """Return whether the store has work; stopped jobs count each time, so that a failed cancellation is retried."""
        if state.number == self._seen:
            return state.stopping
        self._left_behind = self._left_behind or state.unclaimed
        if not state.stopping:
            self._interrupted.clear()
        return state.stopping or state.unclaimed or state.due

    def _start_soon(self, claimed: ClaimedJob) -> None:
        task = asyncio.create_task(self._start_at_once(claimed))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_at_once(self, claimed: ClaimedJob) -> None:
        """Start the job of a message that was just committed; if that fails, the next check starts the job."""
        if self._client is None or self._paused:
            return await asyncio.to_thread(self._store.write, lambda tx: tx.jobs.release_claims([claimed.id]))
        self._well = await self._start_workflows(self._client, [claimed])
        if not self._well:
            self._woken.set()
        return None

    async def _cancel_workflow(self, client: Client, job_id: str) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await client.get_workflow_handle(job_id).cancel()
        except (RPCError, TimeoutError):
            self._interrupted.discard(job_id)  # The next check of the store retries the cancellation.

    async def _start_workflows(self, client: Client, jobs: Sequence[ClaimedJob]) -> bool:
        """Start the jobs; return False when none could be started, so that the dispatcher waits before the next check.

        A job that could not be started keeps its claim, and is retried when the claim expires.
        """
        problems = await asyncio.gather(*(self._start_workflow(client, job) for job in jobs))
        refused = {job.id: problem for job, problem in zip(jobs, problems, strict=True) if problem}
        reasons = set(refused.values()) - {STILL_CLOSING}
        for reason in reasons - self._reported:  # Repeated lines would hide the fix that each reason names.
            self._report(f"Temporal does not start {len(refused)} job(s), which wait in the store: {reason}")
        self._reported = reasons
        none_started = len(refused) == len(jobs)
        closing = [job_id for job_id, problem in refused.items() if problem is STILL_CLOSING]
        unused = list(refused) if none_started else closing
        if unused:
            await asyncio.to_thread(self._store.write, lambda tx: tx.jobs.release_claims(unused))
        if len(closing) == len(jobs):  # Temporal works: these jobs only wait for the end of their previous workflows
            await asyncio.sleep(self._settings().look)
            return True
        return not none_started

    async def _start_workflow(self, client: Client, claimed: ClaimedJob) -> str | None:
        """Start the workflow of a job; return why that failed, None after a success."""
        job, settings = claimed.job, self._settings()
        summary = f"{'what if: ' if job.what_if else ''}{job.kind} on {job.platform}, channel {job.channel}"
        try:
            # Starting a workflow twice is harmless, because finished steps are not repeated.
            async with asyncio.timeout(START_TIMEOUT):
                await client.start_workflow(
                    workflow_of_job(job),
                    settings.build_job_ref(
                        job.address,
                        job_id=job.id,
                        run=job.run,
                        heartbeat_seconds=self._load.lengthen_timeout(
                            timedelta(seconds=settings.defaults.heartbeat_seconds)
                        ).total_seconds(),
                    ),
                    id=job.id,
                    task_queue=settings.queues.main,
                    task_timeout=self._load.lengthen_timeout(TASK_TIMEOUT),
                    # Temporal's reply then contains the first task, for the worker of this process.
                    request_eager_start=self.may_run_here(),
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    static_summary=summary[:200],
                    static_details=f"{job_details(job.id, settings.defaults.dashboard)} Run {job.run}.",
                    search_attributes=search_attributes(job.platform, job.kind, job.channel),
                    priority=temporal_priority(claimed.precedence, fair=settings.defaults.fair),
                )
        except WorkflowAlreadyStartedError:
            # A scheduled workflow that left its job to the dispatcher a moment ago may still be closing.
            return STILL_CLOSING if job.run > 1 or job.slot is not None else None
        except TimeoutError:
            return f"Temporal did not answer within {START_TIMEOUT:g} s"
        except RPCError as error:
            return f"{error.status.name}: {error.message}"
        return None

    def _find_work(self, state: StoreState | None, has_new: bool) -> DispatcherView:
        """Return the jobs to start and the stopped jobs; the store is written only if there is a job to claim."""
        stopped, stopping = None, state is not None and state.stopping
        if stopping or not has_new:
            with self._store.view() as tx:
                stopped = frozenset(tx.jobs.list_stopped_without_step()) if stopping else None
                limit = self._settings().background
                if not (has_new or tx.jobs.has_due() or tx.jobs.has_claimable(tx.now - CLAIM_LAPSES, limit)):
                    return DispatcherView(stopped=stopped)
        claimed = self._claim_jobs()
        return DispatcherView(claimed, stopped, crowded=not claimed and (self._left_behind or not has_new))

    def _claim_jobs(self) -> Sequence[ClaimedJob]:
        """Claim jobs to start.

        Before that, jobs whose wait has ended become pending again: they precede the later jobs of their lane.
        """
        self._left_behind = False  # Reset before the read, so that a job added during the read sets the flag again.
        with self._store.begin(claims=True) as tx:
            tx.jobs.resume_due()
            settings = self._settings()
            self._order.background, self._order.fair = settings.background, settings.defaults.fair
            claimed = tx.jobs.claim_jobs(50, tx.now - CLAIM_LAPSES, self._order)
            if tx.jobs.has_unclaimed():
                self._left_behind = True
        return claimed


def workflow_of_job(job: Job) -> Callable[..., Coroutine[Any, Any, str]]:
    if job.what_if:
        return WhatIfWorkflow.run
    if job.parent_id is not None:
        return DelegationWorkflow.run
    return BackgroundWorkflow.run if is_background(job) else MessageWorkflow.run

"""Queries for delegated tasks: jobs whose parent is the job that delegated them.

See docs/decisions.md: delegation.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import and_, bindparam, update
from sqlalchemy.orm import aliased
from sqlmodel import col, select
from ulid import ULID

from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus, is_background
from maestro.domain.messages import Address, InboxRow
from maestro.domain.precedence import Priority
from maestro.store.engine.repository import Repository
from maestro.store.jobs.jobs import Jobs

WITHHELD = "not begun: the message that led to this task was not sent"
STOPPED = "stopped before it began"


class Delegations(Repository):
    """Queries for delegated tasks, and for the jobs that delegated them.

    A job with a parent but without a task is a *continuation*: its agent continues the parent with the tasks' results.
    A job's *chain* is the job itself, the tasks whose results it waits for, and its continuations.
    """

    _also_changes = ("Jobs",)

    _LED_TO = aliased(Job)
    # In a merged job, the stop request comes from a newer message, not from a user.
    _STANDING = select(
        Job.parent_id,
        and_(col(Job.stop_requested), col(Job.merged_into).is_(None)),
        select(_LED_TO.id).where(col(_LED_TO.parent_id) == Job.id, col(_LED_TO.status) == JobStatus.PENDING).exists(),
    ).where(Job.id == bindparam("of_job"))

    def settle_end(self, job_id: str, status: JobStatus) -> None:
        """Begin or withhold the tasks of an ended job, and resume a delegator that waits for the job.

        Tasks begin after the answer that delegated them is sent. The workflow of the job starts them; if it dies, the
        dispatcher does so after the claim has lapsed. Only the dispatcher starts background tasks, because it knows how
        many may run. Tasks are withheld when the answer was not sent, or when ``/stop`` came during the send.
        """
        parent_id, stopped, gave = self._run_statement(self._STANDING, of_job=job_id).one()
        children = (col(Job.parent_id) == job_id, col(Job.status) == JobStatus.PENDING)
        if gave and status is JobStatus.COMPLETED and not stopped:
            # The ended job's workflow starts the claimed tasks; the dispatcher starts background tasks.
            tasks = (*children, col(Job.task) != "", col(Job.priority) <= Priority.MESSAGE)
            self._run_statement(update(Job).where(*tasks).values(claimed_at=self._now))
        elif gave:
            withheld = {"status": JobStatus.CANCELLED, "reason": STOPPED if stopped else WITHHELD}
            self._run_statement(update(Job).where(*children).values(**withheld, completed_at=self._now))
        delegator = self.find_delegator(self._reload_job(job_id)) if parent_id is not None else None
        # A delegator continues when all results are complete. A continuation that has not begun reads new results.
        if delegator is not None and not any(
            (not child.task and child.status is JobStatus.PENDING and child.started_at is None)
            or (child.hears and self._is_open(child))
            for child in self.list_children(delegator.id)
        ):
            self._add_continuation(delegator)

    def restore_withheld(self, job_id: str) -> None:
        """Make withheld tasks pending again, because the failed or stopped job that delegated them resumes."""
        withheld = update(Job).where(
            col(Job.parent_id) == job_id,
            col(Job.status) == JobStatus.CANCELLED,
            col(Job.reason).in_((WITHHELD, STOPPED)),
        )
        again = {"status": JobStatus.PENDING, "reason": "", "completed_at": None, "claimed_at": None}
        self._run_statement(withheld.values(**again, stop_requested=False))

    def stop_reporting_results(self, jobs: Sequence[Job]) -> None:
        """Let these jobs report their results to no delegator, for example after a ``/stop``."""
        self._run_statement(
            update(Job).where(col(Job.id).in_([self._find_original_job(job).id for job in jobs])).values(hears=False)
        )

    def read_lineage(self, job: Job) -> list[Job]:
        """Return a job and its ancestors, the job first, then its parent, and so on."""
        jobs = [job]
        while jobs[-1].parent_id is not None:
            jobs.append(self._reload_job(jobs[-1].parent_id))
        return jobs

    def list_children(self, job_id: str) -> Sequence[Job]:
        """Return the child jobs of a job, oldest first."""
        return self._session.exec(
            select(Job).where(Job.parent_id == job_id).order_by(col(Job.created_at), col(Job.turn)),
            execution_options=_AFRESH,
        ).all()

    def list_descendants(self, job_ids: Iterable[str]) -> list[Job]:
        """Return the child jobs of these jobs, the children's children, and so on."""
        children = [job for job_id in job_ids for job in self.list_children(job_id)]
        return [*children, *self.list_descendants([job.id for job in children])] if children else []

    def find_newest_job(self, job: Job) -> Job:
        """Return the job that now replaces a job: its newest restart, or the job into which it was merged."""
        if job.merged_into is not None:
            return self.find_newest_job(self._reload_job(job.merged_into))
        restarts = select(Job).where(Job.restarted_from == job.id, col(Job.what_if).is_(False))
        restarts = restarts.order_by(col(Job.created_at).desc())
        again = self._find_first(restarts)
        return self.find_newest_job(again) if again is not None else job

    def list_results(self, job_id: str) -> Sequence[tuple[Job, Job]]:
        """Return the tasks that a job delegated and waited for, each with the job that has the task's result.

        If a task was restarted, only its restart is returned.
        """
        tasks = [task for task in self.list_children(job_id) if task.hears]
        restarted = {task.restarted_from for task in tasks}
        return [(task, self._find_result_job(task)) for task in tasks if task.id not in restarted]

    def find_lane(self, job: Job) -> str | None:
        """Return the lane of the user's message that led to a task; the task itself has no lane."""
        return self.read_lineage(job)[-1].lane

    def find_delegator(self, job: Job) -> Job | None:
        """Return the job to which a job reports its answer, or None if the answer goes to the channel."""
        origin = self._find_original_job(job)
        return self._reload_job(origin.parent_id) if origin.hears and origin.parent_id is not None else None

    def find_background_origin(self, job: Job) -> Job | None:
        """Return the background job from which a job descends; None if a user or a job waits for its answer."""
        began = self.read_lineage(job)[-1]
        return began if is_background(began) and self.find_delegator(job) is None else None

    def list_open_tasks(self, address: Address, user_id: str | None) -> Sequence[Job]:
        """Return open jobs that descend from tasks delegated at an address (by a user, if given), oldest first."""
        here = (Job.platform == address.platform, Job.account == address.account, Job.channel == address.channel)
        # A job without a parent is no task, but a notice about a task.
        open_jobs = select(Job).where(
            *here, Job.thread == address.thread, col(Job.parent_id).is_not(None), col(Job.status).in_(OPEN)
        )
        if user_id is not None:
            open_jobs = open_jobs.join(InboxRow, col(InboxRow.id) == Job.inbox_id).where(InboxRow.user_id == user_id)
        return self._find_all(open_jobs.order_by(col(Job.turn)))

    def _add_continuation(self, delegator: Job) -> None:
        """Add the job in which a delegator continues, at the delegator's position, so that it is next in the lane.

        See docs/invariants.md: lanes.
        """
        turn = delegator.turn
        job = Jobs(self._link, self._now).add(
            Job(
                id=f"{JobKind.DELEGATION}-{ULID()}",
                kind=JobKind.DELEGATION,
                priority=delegator.priority,
                lane=delegator.lane,
                inbox_id=delegator.inbox_id,
                agent_id=delegator.agent_id,
                client_id=delegator.client_id,
                conversation_id=delegator.conversation_id,
                parent_id=delegator.id,
                depth=delegator.depth + 1,
                created_at=self._now,
                **delegator.address.model_dump(),
            )
        )
        job.turn = turn

    def _find_original_job(self, job: Job) -> Job:
        """Return the job that a continuation continues; for any other job, the job itself."""
        while job.parent_id is not None and not job.task:
            job = self._reload_job(job.parent_id)
        return job

    def _is_open(self, job: Job) -> bool:
        return job.status in OPEN or any(
            self._is_open(child) for child in self.list_children(job.id) if child.hears or not child.task
        )

    def _find_result_job(self, job: Job) -> Job:
        """Return the job that has the result of a chain: its last continuation, or the first job.

        Continuations with an answer are preferred. The first job's answer only announces the delegation, so it is the
        result only if there is no continuation.
        """
        continuations = [child for child in self.list_children(job.id) if not child.task]
        answered = [child for child in continuations if child.has_answer]
        last = (answered or continuations or [job])[-1]
        return last if last is job else self._find_result_job(last)

    def _reload_job(self, job_id: str) -> Job:
        return self._session.exec(select(Job).where(Job.id == job_id), execution_options=_AFRESH).one()


_AFRESH = {"populate_existing": True}
"""Options that reload rows, because statements may have changed them after the session loaded them."""

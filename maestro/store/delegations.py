"""Tasks that agents gave to other agents: jobs that hang on the job whose answer gave them (decision 13)."""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select, update
from ulid import ULID

from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import OPEN, Job, JobKind, JobStatus
from maestro.domain.messages import Address
from maestro.store.jobs import Jobs
from maestro.store.repository import Repository

WITHHELD = "not begun: the message that led to this task was not sent"


class Delegations(Repository):
    """Delegation jobs and their delegators.

    A job's *chain* is the job itself, the tasks whose results it waits to hear, and the jobs in which its agent goes
    on with those results: a job with a parent and no task is such a *continuation* of its parent.
    """

    _UNBEGUN = (col(Job.parent_id) == bindparam("of_parent"), col(Job.status) == JobStatus.PENDING)
    _HAND_OVER = update(Job).where(*_UNBEGUN).values(claimed_at=bindparam("at"))
    _WITHHOLD = (
        update(Job).where(*_UNBEGUN).values(status=JobStatus.CANCELLED, reason=WITHHELD, completed_at=bindparam("at"))
    )
    _PARENT = select(Job.parent_id).where(col(Job.id) == bindparam("of_job"))

    def closed(self, job_id: str, status: JobStatus) -> None:
        """Do what the end of a job means for the tasks it gave, and for who waits to hear of it.

        Tasks begin when the answer that gave them is out: its workflow starts them, and if that dies the dispatcher
        does, once the claim has lapsed. Without that answer they do not begin.
        """
        self._run(self._HAND_OVER if status is JobStatus.COMPLETED else self._WITHHOLD, of_parent=job_id, at=self._now)
        if self._run(self._PARENT, of_job=job_id).scalar() is not None:
            self._report(self._fresh(job_id))

    def reopened(self, job_id: str) -> None:
        """Let tasks begin after all that were withheld because the job had failed, now that it is resumed."""
        withheld = update(Job).where(
            col(Job.parent_id) == job_id, col(Job.status) == JobStatus.CANCELLED, col(Job.reason) == WITHHELD
        )
        self._run(withheld.values(status=JobStatus.PENDING, reason="", completed_at=None, claimed_at=None))

    def lineage(self, job: Job) -> list[Job]:
        """Return a job and those above it, nearest first."""
        found = [job]
        while found[-1].parent_id is not None:
            found.append(self._fresh(found[-1].parent_id))
        return found

    def of(self, job_id: str) -> Sequence[Job]:
        """Return the jobs that hang on this one, in the order they were made."""
        return self._session.exec(
            select(Job).where(Job.parent_id == job_id).order_by(col(Job.turn)), execution_options=_AFRESH
        ).all()

    def heard(self, job_id: str) -> Sequence[tuple[Job, Job]]:
        """Return the tasks whose results a job wanted to hear, each with the job that has its result."""
        return [(task, self._last(task)) for task in self.of(job_id) if task.hears]

    def lane_of(self, job: Job) -> str | None:
        """Return the lane in which a job's task began, where its person says things; the job itself holds none."""
        return self.lineage(job)[-1].lane

    def answers_to(self, job: Job) -> Job | None:
        """Return the delegator that hears what this job says, None when everybody in the channel does."""
        origin = self._origin(job)
        return self._fresh(origin.parent_id) if origin.hears and origin.parent_id is not None else None

    def open_in(self, address: Address, user_id: str | None) -> Sequence[Job]:
        """Return the open jobs that came of tasks given here, oldest first; only this user's, if one is given."""
        here = (Job.platform == address.platform, Job.account == address.account, Job.channel == address.channel)
        found = select(Job).where(
            *here, Job.thread == address.thread, Job.kind == JobKind.DELEGATION, col(Job.status).in_(OPEN)
        )
        if user_id is not None:
            found = found.join(InboxRow, col(InboxRow.id) == Job.inbox_id).where(InboxRow.user_id == user_id)
        return self._session.exec(found.order_by(col(Job.turn))).all()

    def _report(self, job: Job) -> None:
        """Let the delegator go on when everything it waits to hear has ended, unless a person stopped it."""
        delegator = self.answers_to(job)
        if delegator is None or job.stop_requested:
            return
        waited_for = [task for task in self.of(delegator.id) if task.hears]
        if not any(map(self._goes_on, waited_for)):
            self._continue(delegator)

    def _continue(self, delegator: Job) -> None:
        """Make the job in which the delegator goes on, in its old turn: it is next in its lane (invariant 7)."""
        turn = delegator.turn
        job = Jobs(self._session, self._now).add(
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

    def _origin(self, job: Job) -> Job:
        """Return the job of which this one is the continuation, or itself."""
        while job.parent_id is not None and not job.task:
            job = self._fresh(job.parent_id)
        return job

    def _goes_on(self, job: Job) -> bool:
        """Say whether something in the chain of this job is still to come."""
        return job.status in OPEN or any(self._goes_on(other) for other in self.of(job.id) if _is_in_chain(other))

    def _last(self, job: Job) -> Job:
        """Return the newest job of a chain that says something for this one: its last continuation, or itself."""
        continuations = [other for other in self.of(job.id) if not other.task and other.answer_id is not None]
        return self._last(continuations[-1]) if continuations else job

    def _fresh(self, job_id: str) -> Job:
        return self._session.exec(select(Job).where(Job.id == job_id), execution_options=_AFRESH).one()


_AFRESH = {"populate_existing": True}
"""Rows were changed past the objects that the session may have loaded before."""


def _is_in_chain(job: Job) -> bool:
    return job.hears or not job.task

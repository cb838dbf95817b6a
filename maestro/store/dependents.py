"""The rows that hang on an open job: one statement says which of them its end, or its delivery, has to settle."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, or_, select
from sqlalchemy.orm import Mapped, aliased
from sqlmodel import col

from maestro.domain.deliveries import UNSENT, Delivery, DeliveryState, OutboundLane, Purpose
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job, JobStatus, JobStep, StepState
from maestro.domain.llm.budgets import Reservation
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.questions.question import Question, QuestionStatus
from maestro.store.deliveries import AT_THE_END
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository
from maestro.store.steps import recorded_attempt


@dataclass(frozen=True, slots=True)
class DependentRows:
    """Which kinds of rows there are of a job.

    ``calls`` are model calls under way or money reserved for them, ``chunks`` those without a receipt, ``tasks`` those
    of other agents that have not begun; ``delegated`` says that the job is itself such a task, or continues one.
    """

    questions: bool = False
    calls: bool = False
    chunks: bool = False
    lanes: bool = False
    tasks: bool = False
    delegated: bool = False
    scheduled: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """How a delivery and its job stand after one of its chunks.

    ``overtaken`` says that a newer attempt at the step of the running code has begun. Of the delivery's ``chunks``,
    ``unsent`` says whether one after this has no receipt yet, ``failed`` whether one did not reach its receiver.
    ``waiting`` says whether another job waits in the job's lane, ``dependents`` what its end would have to settle.
    """

    dependents: DependentRows
    status: JobStatus
    stop_requested: bool
    overtaken: bool
    chunks: int
    unsent: bool
    failed: bool
    waiting: bool


def _has(column: Mapped[Any], *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(column).where(column == Job.id, *conditions).exists()


class Dependents(Repository):
    """Reads only."""

    _TASK = aliased(Job)
    _ROWS: tuple[ColumnElement[bool], ...] = (
        _has(col(Question.job_id), col(Question.status) == QuestionStatus.OPEN),
        or_(
            _has(col(LLMCall.job_id), col(LLMCall.state) == CallState.SENT),
            _has(col(Reservation.job_id)),
        ),
        _has(col(Delivery.job_id), one_of(col(Delivery.state), AT_THE_END)),
        _has(col(OutboundLane.job_id)),
        _has(col(_TASK.parent_id), col(_TASK.status) == JobStatus.PENDING),
        col(Job.parent_id).is_not(None),
        col(Job.schedule).is_not(None),
    )
    _OF_JOB = Prepared(select(*_ROWS).where(col(Job.id) == bindparam("job_id")))
    _OWN_STATE = (
        select(col(JobStep.state))
        .where(
            col(JobStep.job_id) == Job.id,
            col(JobStep.step) == bindparam("own_step"),
            col(JobStep.attempt) == bindparam("own_attempt"),
        )
        .scalar_subquery()
    )
    _DONE, _BEHIND = aliased(Delivery), aliased(Job)
    _OF_PURPOSE = col(Delivery.purpose) == bindparam("its_purpose")
    _AFTER = col(Delivery.seq) > select(col(_DONE.seq)).where(col(_DONE.id) == bindparam("chunk")).scalar_subquery()
    _PROGRESS = Prepared(
        select(
            *_ROWS,
            col(Job.status),
            col(Job.stop_requested),
            _OWN_STATE,
            select(func.count(col(Delivery.id))).where(col(Delivery.job_id) == Job.id, _OF_PURPOSE).scalar_subquery(),
            _has(col(Delivery.job_id), _OF_PURPOSE, one_of(col(Delivery.state), UNSENT), _AFTER),
            _has(col(Delivery.job_id), _OF_PURPOSE, col(Delivery.state) == DeliveryState.FAILED),
            select(col(_BEHIND.id))
            .where(col(_BEHIND.lane) == col(Job.lane), col(_BEHIND.status) == JobStatus.PENDING)
            .exists(),
        ).where(col(Job.id) == bindparam("job_id"))
    )

    def of(self, job_id: str) -> DependentRows:
        """Return what there is of a job; nothing of one that does not exist."""
        row = self._row(self._OF_JOB, job_id=job_id)
        return DependentRows(*row) if row is not None else DependentRows()

    def progress(self, job_id: str, purpose: Purpose, chunk_id: int) -> DeliveryProgress:
        """Return how a delivery stands after this chunk of it; raises ``NotFound`` for a job that does not exist."""
        own = recorded_attempt()
        attempt = {"own_step": own and own.ref.step, "own_attempt": own and own.number}
        row = self._row(self._PROGRESS, job_id=job_id, its_purpose=purpose, chunk=chunk_id, **attempt)
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        rows = DependentRows(*row[: len(self._ROWS)])
        status, stop_requested, own_state, *rest = row[len(self._ROWS) :]
        overtaken = own is not None and own_state is not StepState.RUNNING
        return DeliveryProgress(rows, status, stop_requested, overtaken, *rest)

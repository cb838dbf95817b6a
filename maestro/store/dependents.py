"""The rows that hang on an open job: one look says which of them its end has to settle."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, or_, select
from sqlalchemy.orm import Mapped, aliased
from sqlmodel import col

from maestro.domain.deliveries import Delivery, OutboundLane
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.llm.budgets import Reservation
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.questions.question import Question, QuestionStatus
from maestro.store.deliveries import AT_THE_END
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository


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


def _has(column: Mapped[Any], *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(column).where(column == Job.id, *conditions).exists()


class Dependents(Repository):
    """Reads only."""

    _TASK = aliased(Job)
    _OF_JOB = Prepared(
        select(
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
        ).where(col(Job.id) == bindparam("job_id"))
    )

    def of(self, job_id: str) -> DependentRows:
        """Return what there is of a job; nothing of one that does not exist."""
        row = self._row(self._OF_JOB, job_id=job_id)
        return DependentRows(*row) if row is not None else DependentRows()

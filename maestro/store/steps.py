"""The journal of steps: what each job did, attempt by attempt (design invariant 3)."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel
from sqlalchemy import ColumnElement, func
from sqlmodel import col, select, update

from maestro.domain.errors import StepTaken
from maestro.domain.jobs import JobStep, StepRef, StepState
from maestro.store.repository import Repository

Result = TypeVar("Result", bound=BaseModel)


class Steps(Repository):
    """Every attempt at every step; a finished step has exactly one row that is done."""

    def result(self, ref: StepRef) -> str | None:
        """Return the JSON of what a finished step returned, or None if it has not finished."""
        return self._session.exec(
            select(JobStep.result).where(
                JobStep.job_id == ref.job_id, JobStep.step == ref.step, JobStep.state == StepState.DONE
            )
        ).first()

    def start(self, ref: StepRef, activity: str, run: int) -> int:
        """Note that an attempt begins and return its number; one left running before it was cut off by a crash."""
        self._interrupt(col(JobStep.job_id) == ref.job_id, col(JobStep.step) == ref.step)
        last = self._session.exec(
            select(func.max(JobStep.attempt)).where(JobStep.job_id == ref.job_id, JobStep.step == ref.step)
        ).one()
        attempt = (last or 0) + 1
        self._session.add(
            JobStep(
                job_id=ref.job_id,
                step=ref.step,
                activity=activity,
                run=run,
                attempt=attempt,
                state=StepState.RUNNING,
                started_at=self._now,
            )
        )
        return attempt

    def count(self, ref: StepRef, run: int, state: StepState) -> int:
        """Count the attempts of this run that ended in the given state."""
        return self._session.exec(
            select(func.count())
            .select_from(JobStep)
            .where(JobStep.job_id == ref.job_id, JobStep.step == ref.step, JobStep.run == run, JobStep.state == state)
        ).one()

    def done(self, ref: StepRef, result: Result) -> Result:
        """Finish the step in the transaction of its effect and return what it returns.

        Raises ``StepTaken`` when another attempt was faster, so that this one's effects are rolled back.
        """
        if not self._close(ref, state=StepState.DONE, result=result.model_dump_json()):
            raise StepTaken(f"another attempt of step {ref.step} of job {ref.job_id} finished first")
        return result

    def failed(self, ref: StepRef, error: str, detail: str) -> None:
        """Note that the attempt ended with an error; ``detail`` is for operators.

        An attempt that was refused before it began, as after a stop, has no row and leaves none.
        """
        self._close(ref, state=StepState.FAILED, error=error, detail=detail)

    def interrupt_others(self, ref: StepRef) -> None:
        """Mark what another step of this job left running: nothing it still does may count."""
        self._interrupt(col(JobStep.job_id) == ref.job_id, col(JobStep.step) != ref.step)

    def interrupt_all(self, job_id: str) -> None:
        """Mark every running step of a job as interrupted."""
        self._interrupt(col(JobStep.job_id) == job_id)

    def of(self, job_id: str) -> Sequence[JobStep]:
        """Return the journal of a job in the order it was written."""
        return self._session.exec(select(JobStep).where(JobStep.job_id == job_id).order_by(col(JobStep.id))).all()

    def _interrupt(self, *which: ColumnElement[bool]) -> None:
        self._session.exec(
            update(JobStep)
            .where(*which, col(JobStep.state) == StepState.RUNNING)
            .values(state=StepState.INTERRUPTED, finished_at=self._now)
        )

    def _close(self, ref: StepRef, **values: str) -> bool:
        closed = self._session.exec(
            update(JobStep)
            .where(
                col(JobStep.job_id) == ref.job_id,
                col(JobStep.step) == ref.step,
                col(JobStep.state) == StepState.RUNNING,
            )
            .values(finished_at=self._now, **values)
        )
        return closed.rowcount > 0

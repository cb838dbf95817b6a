"""The journal of steps: what each job did, attempt by attempt (design invariant 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from sqlalchemy import bindparam, func, insert
from sqlmodel import col, select, update

from maestro.domain.errors import StepTaken
from maestro.domain.jobs.job import JobStep, StepRef, StepState, Wait
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository

Result = TypeVar("Result", bound=BaseModel)

CUT_OFF = (StepState.RUNNING, StepState.INTERRUPTED)
"""How an attempt looks whose process died: marked already, or not yet."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a step, in one run of its job."""

    number: int
    run: int
    state: StepState
    result: str


@dataclass(frozen=True)
class Past:
    """The attempts at a step so far, oldest first."""

    attempts: Sequence[Attempt]

    @property
    def result(self) -> str | None:
        """The JSON of what the finished step returned, None if it has not finished."""
        return next((attempt.result for attempt in self.attempts if attempt.state is StepState.DONE), None)

    @property
    def last(self) -> int:
        """The number of the last attempt, 0 when there was none."""
        return max((attempt.number for attempt in self.attempts), default=0)

    @property
    def left_running(self) -> bool:
        """Whether an attempt never said how it ended: its process died."""
        return any(attempt.state is StepState.RUNNING for attempt in self.attempts)

    def crashes(self, run: int) -> int:
        """Count the attempts of this run of the job whose process died."""
        return sum(attempt.run == run and attempt.state in CUT_OFF for attempt in self.attempts)


class Steps(Repository):
    """Every attempt at every step; a finished step has exactly one row that is done."""

    _OF_STEP = (col(JobStep.job_id) == bindparam("of_job"), col(JobStep.step) == bindparam("of_step"))
    _PAST = Prepared(
        select(JobStep.attempt, JobStep.run, JobStep.state, JobStep.result).where(*_OF_STEP).order_by(col(JobStep.id))
    )
    _BEGUN = Prepared(insert(JobStep))
    _INTERRUPTED = (
        update(JobStep)
        .where(col(JobStep.job_id) == bindparam("of_job"), col(JobStep.state) == StepState.RUNNING)
        .values(state=StepState.INTERRUPTED, finished_at=bindparam("at"))
    )
    _CUT_OFF = Prepared(_INTERRUPTED.where(col(JobStep.step) == bindparam("of_step")))
    _LEFT_RUNNING = Prepared(_INTERRUPTED.where(col(JobStep.step) != bindparam("of_step")))
    _ALL = Prepared(_INTERRUPTED)
    _ENDED = Prepared(
        update(JobStep)
        .where(*_OF_STEP, col(JobStep.state) == StepState.RUNNING)
        .values({name: bindparam(f"its_{name}") for name in ("state", "finished_at", "result", "error", "detail")})
    )

    def past(self, ref: StepRef) -> Past:
        """Return what is known of a step."""
        return Past([Attempt(*row) for row in self._rows(self._PAST, of_job=ref.job_id, of_step=ref.step)])

    def start(self, ref: StepRef, activity: str, run: int, past: Past | None = None) -> int:
        """Note that an attempt begins and return its number; one left running before it was cut off by a crash.

        Who has looked at the step's past in this transaction need not have it read again.
        """
        past = past or self.past(ref)
        if past.left_running:
            self._change(self._CUT_OFF, of_job=ref.job_id, of_step=ref.step, at=self._now)
        attempt = past.last + 1
        self._insert(
            self._BEGUN,
            id=None,
            job_id=ref.job_id,
            step=ref.step,
            activity=activity,
            run=run,
            attempt=attempt,
            state=StepState.RUNNING,
            started_at=self._now,
            finished_at=None,
            **dict.fromkeys(("result", "error", "detail"), ""),
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

    def failed(self, ref: StepRef, error: str, detail: str) -> bool:
        """Note that the attempt ended with an error; ``detail`` is for operators.

        False for an attempt that was refused before it began, as after a stop: it has no row and leaves none.
        """
        return self._close(ref, state=StepState.FAILED, error=error, detail=detail)

    def suspended(self, ref: StepRef, error: str, detail: str, wait: Wait) -> None:
        """Note that the attempt cannot go on before something happens outside."""
        self._close(ref, state=StepState.WAITING, result=wait.model_dump_json(), error=error, detail=detail)

    def waits(self, job_id: str, steps: Sequence[str]) -> Sequence[Wait]:
        """Return what these steps of a job wait for, by their newest attempts."""
        found = self._session.exec(
            select(JobStep.result)
            .where(JobStep.job_id == job_id, col(JobStep.step).in_(steps), JobStep.state == StepState.WAITING)
            .order_by(col(JobStep.id).desc())
            .limit(len(steps))
        )
        return [Wait.model_validate_json(result) for result in found]

    def last_error(self, job_id: str) -> str:
        """Return the class of the error that a step of this job failed with last, empty when none did."""
        failed = select(JobStep.error).where(JobStep.job_id == job_id, JobStep.state == StepState.FAILED)
        return self._session.exec(failed.order_by(col(JobStep.id).desc()).limit(1)).first() or ""

    def interrupt_others(self, ref: StepRef) -> None:
        """Mark what another step of this job left running: nothing it still does may count."""
        self._change(self._LEFT_RUNNING, of_job=ref.job_id, of_step=ref.step, at=self._now)

    def interrupt_all(self, job_id: str) -> None:
        """Mark every running step of a job as interrupted."""
        self._change(self._ALL, of_job=job_id, at=self._now)

    def of(self, job_id: str) -> Sequence[JobStep]:
        """Return the journal of a job in the order it was written."""
        return self._session.exec(select(JobStep).where(JobStep.job_id == job_id).order_by(col(JobStep.id))).all()

    def _close(self, ref: StepRef, state: StepState, result: str = "", error: str = "", detail: str = "") -> bool:
        closed = self._change(
            self._ENDED,
            of_job=ref.job_id,
            of_step=ref.step,
            its_state=state,
            its_finished_at=self._now,
            its_result=result,
            its_error=error,
            its_detail=detail,
        )
        return closed > 0

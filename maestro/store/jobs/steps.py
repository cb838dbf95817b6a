"""The journal of steps: all attempts at all steps of jobs (docs/invariants.md: steps leave rows)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import bindparam, insert, inspect, update
from sqlmodel import col, select

from maestro.domain.errors import StepTaken
from maestro.domain.jobs.job import JobStep, StepRef, StepState, Wait
from maestro.store.engine.repository import Repository, read_once
from maestro.store.engine.statements import PreparedStatement

Result = TypeVar("Result", bound=BaseModel)

CUT_OFF = (StepState.RUNNING, StepState.INTERRUPTED)
"""The states of an attempt whose process died: before and after a newer attempt marked the attempt."""


@dataclass(frozen=True, slots=True)
class TemporalAttempt:
    """An attempt as Temporal knows it: the id of the workflow run, and the attempt's number (0: unknown)."""

    workflow_run: str = ""
    number: int = 0


UNKNOWN = TemporalAttempt()


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One attempt at a step, in one run of a job."""

    number: int
    run: int
    state: StepState
    result: str
    workflow_run: str = ""
    activity_attempt: int = 0


StepAttempts = Mapping[str, Sequence[StepAttempt]]
"""The attempts of a job, by the name of the step."""


@dataclass(frozen=True, slots=True)
class OwnAttempt:
    """The step attempt in which the current code runs.

    An attempt that is not ``recorded`` gets its row at its end, in the same commit as its effects.
    """

    ref: StepRef
    number: int
    activity: str = ""
    run: int = 1
    tried: TemporalAttempt = UNKNOWN
    started_at: datetime | None = None
    recorded: bool = True


_OWN: ContextVar[OwnAttempt | None] = ContextVar("attempt", default=None)


def own_attempt_at(ref: StepRef) -> OwnAttempt | None:
    """Return the attempt in which the current code runs, if it is an attempt at this step, else None."""
    own = _OWN.get()
    return own if own is not None and (own.ref.job_id, own.ref.step) == (ref.job_id, ref.step) else None


def current_recorded_attempt() -> OwnAttempt | None:
    """Return the attempt in which the current code runs; None without one, or if it has no row yet."""
    own = _OWN.get()
    return own if own is not None and own.recorded else None


@contextmanager
def use_attempt(attempt: OwnAttempt) -> Iterator[None]:
    """Attribute all writes within the block to a step attempt.

    The code that writes the effects of an attempt does not know the attempt. Tasks and threads that are started within
    the block (``asyncio.create_task``, ``asyncio.to_thread``) inherit it.
    """
    token = _OWN.set(attempt)
    try:
        yield
    finally:
        _OWN.reset(token)


@dataclass(frozen=True)
class StepHistory:
    """The past attempts at a step, oldest first, and Temporal's identity of the attempt that is about to begin."""

    attempts: Sequence[StepAttempt]
    tried: TemporalAttempt = UNKNOWN

    @property
    def result(self) -> str | None:
        """The JSON result of the step, or None if the step has not finished."""
        return next((attempt.result for attempt in self.attempts if attempt.state is StepState.DONE), None)

    @property
    def last_attempt(self) -> int:
        """The number of the last attempt, or 0 without attempts."""
        return max((attempt.number for attempt in self.attempts), default=0)

    @property
    def has_running(self) -> bool:
        """Whether an attempt is still marked as running: its process died."""
        return any(attempt.state is StepState.RUNNING for attempt in self.attempts)

    @property
    def is_overtaken(self) -> bool:
        """Whether Temporal has begun a newer attempt than the one about to begin, because this process stalled."""
        return any(
            attempt.workflow_run == self.tried.workflow_run and attempt.activity_attempt > self.tried.number > 0
            for attempt in self.attempts
        )

    @property
    def begun_ahead_number(self) -> int | None:
        """The number of the attempt about to begin, if its row was written before Temporal began it; else None."""
        newest = self.attempts[-1] if self.attempts else None
        if newest is None or newest.state is not StepState.RUNNING or self.tried.number != 1:
            return None
        same = (newest.workflow_run, newest.activity_attempt) == (self.tried.workflow_run, self.tried.number)
        return newest.number if same else None

    def count_failures(self, run: int | None = None) -> int:
        """Count the failed attempts in one run of the job; without ``run``, in all runs."""
        return sum(run in (None, attempt.run) and attempt.state is StepState.FAILED for attempt in self.attempts)

    def count_crashes(self, run: int) -> int:
        """Count the attempts in one run of the job that ended with the death of their process."""
        return sum(attempt.run == run and attempt.state in CUT_OFF for attempt in self.attempts)


def _cache_key(job_id: str) -> tuple[str, tuple[str]]:
    """Return the key under which ``read_once`` caches a job's attempts."""
    return "_read_cached_attempts", (job_id,)


@cache
def _insert_statement(count: int) -> PreparedStatement:
    """Return the statement that adds ``count`` attempts; its parameters are called ``<name>_<number>``."""
    types = {column.name: column.type for column in inspect(JobStep).c if column.name != "id"}
    # SQLAlchemy sets the parameter types of the first row only, so the types of all rows are set here.
    rows: list[Any] = [
        {name: bindparam(f"{name}_{number}", type_=kind) for name, kind in types.items()} for number in range(count)
    ]
    return PreparedStatement(insert(JobStep).values(rows))


class StepRecords(Repository):
    """Queries for the attempts at steps; a finished step has exactly one attempt in the state done."""

    _OF_STEP = (col(JobStep.job_id) == bindparam("of_job"), col(JobStep.step) == bindparam("of_step"))
    _ATTEMPT: tuple[Any, ...] = (
        *(JobStep.attempt, JobStep.run, JobStep.state, JobStep.result),
        *(JobStep.workflow_run, JobStep.activity_attempt),
    )
    _PAST = PreparedStatement(
        select(JobStep.step, *_ATTEMPT).where(col(JobStep.job_id) == bindparam("of_job")).order_by(col(JobStep.id))
    )
    _INTERRUPTED = (
        update(JobStep)
        .where(col(JobStep.job_id) == bindparam("of_job"), col(JobStep.state) == StepState.RUNNING)
        .values(state=StepState.INTERRUPTED, finished_at=bindparam("at"))
    )
    _CUT_OFF = PreparedStatement(_INTERRUPTED.where(col(JobStep.step) == bindparam("of_step")))
    _LEFT_RUNNING = PreparedStatement(_INTERRUPTED.where(col(JobStep.step) != bindparam("of_step")))
    _ALL = PreparedStatement(_INTERRUPTED)
    _END = (
        update(JobStep)
        .where(*_OF_STEP, col(JobStep.state) == StepState.RUNNING)
        .values({name: bindparam(f"its_{name}") for name in ("state", "finished_at", "result", "error", "detail")})
    )
    _ENDED = PreparedStatement(_END.returning(col(JobStep.attempt)))
    _OWN_ENDED = PreparedStatement(
        _END.where(col(JobStep.attempt) == bindparam("its_attempt")).returning(col(JobStep.attempt))
    )
    _OWN_STATE = PreparedStatement(
        select(JobStep.state).where(*_OF_STEP, col(JobStep.attempt) == bindparam("its_attempt"))
    )
    _EARLIER = PreparedStatement(
        select(JobStep.id)
        .where(
            col(JobStep.job_id) == bindparam("of_job"),
            col(JobStep.workflow_run) == bindparam("its_workflow_run"),
            col(JobStep.run) < bindparam("its_run"),
        )
        .limit(1)
    )

    def read_history(self, ref: StepRef, temporal_attempt: TemporalAttempt = UNKNOWN) -> StepHistory:
        """Return the history of a step for an attempt of Temporal that is about to begin."""
        return StepHistory(tuple(self._read_cached_attempts(ref.job_id).get(ref.step, ())), temporal_attempt)

    def read_attempts(self, job_id: str) -> StepAttempts:
        """Return all attempts of a job by step, oldest first within a step."""
        return {step: tuple(attempts) for step, attempts in self._read_cached_attempts(job_id).items()}

    def cache_attempts(self, job_id: str, attempts: StepAttempts) -> None:
        """Cache all attempts of a job, which the caller has read, for this transaction.

        The cache is dropped when the end of an attempt shows that another process has written: see ``_keep_cached``.
        """
        self._cached_values()[_cache_key(job_id)] = {step: list(of_step) for step, of_step in attempts.items()}

    @read_once
    def _read_cached_attempts(self, job_id: str) -> dict[str, list[StepAttempt]]:
        """Return the cached attempts of a job by step; callers add new attempts to this dictionary."""
        attempts: dict[str, list[StepAttempt]] = {}
        for step, *attempt in self._read_rows(self._PAST, of_job=job_id):
            attempts.setdefault(step, []).append(StepAttempt(*attempt))
        return attempts

    def is_of_earlier_run(self, job_id: str, run: int, workflow_run: str) -> bool:
        """Return whether this workflow run belongs to an earlier run of the job than ``run``."""
        if run == 1 or not workflow_run:
            return False
        return self._has_row(self._EARLIER, of_job=job_id, its_run=run, its_workflow_run=workflow_run)

    @property
    def is_overtaken(self) -> bool:
        """Whether a newer attempt at the current step has begun, or the job went on without the current attempt."""
        own = current_recorded_attempt()
        return own is not None and self._read_state(own) is not StepState.RUNNING

    @read_once
    def _read_state(self, attempt: OwnAttempt) -> StepState | None:
        ref = attempt.ref
        state: StepState | None = self._read_value(
            self._OWN_STATE, of_job=ref.job_id, of_step=ref.step, its_attempt=attempt.number
        )
        return state

    def cache_state(self, attempt: OwnAttempt, state: StepState | None) -> None:
        """Cache the state of an attempt, which the caller has read, for this transaction."""
        self._cached_values()["_read_state", (attempt,)] = state

    def require_newest(self) -> None:
        """Raise ``StepTaken``, before an effect, if a newer attempt at the current step has begun.

        A stalled process learns only from this check that Temporal gave its step to another process.
        """
        own = _OWN.get()
        if own is not None and self.is_overtaken:
            raise StepTaken(f"a newer attempt at step {own.ref.step} of job {own.ref.job_id} has begun")

    def begin_attempt(
        self, ref: StepRef, activity: str, run: int, history: StepHistory, *, recorded: bool = True
    ) -> OwnAttempt:
        """Begin and return an attempt; mark an earlier attempt that is still running as ended by a crash.

        ``history`` is the step's history, read in this transaction. An attempt that is not ``recorded`` gets its row at
        its end.
        """
        if history.has_running:
            self._write(self._CUT_OFF, of_job=ref.job_id, of_step=ref.step, at=self._now)
        attempt = OwnAttempt(
            ref, history.last_attempt + 1, activity, run, history.tried, started_at=self._now, recorded=recorded
        )
        if recorded:
            self._add_attempt(attempt, StepState.RUNNING)
        return attempt

    def record_attempt(self, attempt: OwnAttempt) -> OwnAttempt:
        """Add the row of an attempt before the attempt calls another system; return the recorded attempt."""
        self._add_attempt(attempt, StepState.RUNNING)
        return replace(attempt, recorded=True)

    def start_attempt(self, ref: StepRef, activity: str, run: int, history: StepHistory | None = None) -> int:
        """Begin an attempt at a step, and return the attempt's number."""
        return self.begin_attempt(ref, activity, run, history or self.read_history(ref)).number

    def finish_step(self, ref: StepRef, result: Result) -> Result:
        """Finish a step in the transaction of its effect, and return the result that is stored.

        Raises ``StepTaken`` when another attempt has finished the step first; that rolls back the effects of this
        attempt.
        """
        if not self._end_attempt(ref, state=StepState.DONE, result=result.model_dump_json()):
            raise StepTaken(f"another attempt of step {ref.step} of job {ref.job_id} finished first")
        return result

    def fail_attempt(self, ref: StepRef, error: str, detail: str) -> bool:
        """End the current attempt with an error; ``detail`` is for operators.

        Returns false for an attempt without a row, which was refused before it began, for example after a stop. The row
        of a newer attempt does not change.
        """
        return self._end_attempt(ref, own=True, state=StepState.FAILED, error=error, detail=detail)

    def suspend_attempt(self, ref: StepRef, error: str, detail: str, wait: Wait) -> None:
        """End the current attempt because its step has to wait, for example for a user's answer."""
        self._end_attempt(
            ref, own=True, state=StepState.WAITING, result=wait.model_dump_json(), error=error, detail=detail
        )

    def list_waits(self, job_id: str, steps: Sequence[str]) -> Sequence[Wait]:
        """Return the waits that ended the newest attempts at these steps of a job."""
        results = self._session.exec(
            select(JobStep.result)
            .where(JobStep.job_id == job_id, col(JobStep.step).in_(steps), JobStep.state == StepState.WAITING)
            .order_by(col(JobStep.id).desc())
            .limit(len(steps))
        )
        return [Wait.model_validate_json(result) for result in results]

    def find_last_attempt(self, job_id: str, state: StepState) -> JobStep | None:
        """Return the newest attempt of a job that ended in this state."""
        attempts = select(JobStep).where(JobStep.job_id == job_id, JobStep.state == state)
        return self._find_first(attempts.order_by(col(JobStep.id).desc()).limit(1))

    def interrupt_others(self, ref: StepRef) -> None:
        """Mark a job's running attempts at other steps as interrupted, so that their results do not count."""
        others = (past for step, past in self._read_cached_attempts(ref.job_id).items() if step != ref.step)
        if not any(attempt.state is StepState.RUNNING for past in others for attempt in past):
            return
        self._write(self._LEFT_RUNNING, of_job=ref.job_id, of_step=ref.step, at=self._now)

    def interrupt_all(self, job_id: str) -> None:
        """Mark all running attempts of a job as interrupted."""
        self._write(self._ALL, of_job=job_id, at=self._now)

    def list_attempts_of_job(self, job_id: str) -> Sequence[JobStep]:
        """Return the attempts of a job in the order in which they were recorded."""
        return self._find_all(select(JobStep).where(JobStep.job_id == job_id).order_by(col(JobStep.id)))

    def _end_attempt(self, ref: StepRef, *, state: StepState, own: bool = False, **says: str) -> bool:
        """End the running attempt at a step; with ``own``, only the attempt in which the current code runs."""
        attempt = own_attempt_at(ref)
        if attempt is not None and not attempt.recorded:
            self._add_attempt(attempt, state, finished_at=self._now, **says)
            return True
        values: dict[str, object] = {f"its_{name}": says.get(name, "") for name in ("result", "error", "detail")}
        values |= {"of_job": ref.job_id, "of_step": ref.step, "its_state": state, "its_finished_at": self._now}
        known = self._cached_values().get(_cache_key(ref.job_id))
        if own and attempt is not None:
            ended = self._run_returning(self._OWN_ENDED, **values, its_attempt=attempt.number)
        else:
            ended = self._run_returning(self._ENDED, **values)
        if known is not None:
            self._keep_cached(ref, known, [number for (number,) in ended], state, says.get("result", ""))
        return bool(ended)

    def _keep_cached(
        self, ref: StepRef, known: dict[str, list[StepAttempt]], ended: list[int], state: StepState, result: str
    ) -> None:
        """Keep a job's cached attempts if the attempt that ended is the one that the cache shows as running.

        A newer attempt of any process marks the attempt before it. An attempt that ran until now shows that no other
        process has written an attempt at this step or a later one.
        """
        of_step = known.get(ref.step, [])
        if ended != [attempt.number for attempt in of_step if attempt.state is StepState.RUNNING]:
            return
        known[ref.step] = [
            replace(attempt, state=state, result=result) if attempt.state is StepState.RUNNING else attempt
            for attempt in of_step
        ]
        self._cached_values()[_cache_key(ref.job_id)] = known

    def _add_attempt(self, attempt: OwnAttempt, state: StepState, **values: object) -> None:
        row: dict[str, Any] = {
            "job_id": attempt.ref.job_id,
            "step": attempt.ref.step,
            "activity": attempt.activity,
            "run": attempt.run,
            "attempt": attempt.number,
            "workflow_run": attempt.tried.workflow_run,
            "activity_attempt": attempt.tried.number,
            "state": state,
            "process": self._link.process,
            "started_at": attempt.started_at,
            "finished_at": None,
            **dict.fromkeys(("result", "error", "detail"), ""),
            **values,
        }
        known = self._read_cached_attempts(attempt.ref.job_id).setdefault(attempt.ref.step, [])
        tried = attempt.tried
        known.append(StepAttempt(attempt.number, attempt.run, state, row["result"], tried.workflow_run, tried.number))
        key = f"{attempt.ref.job_id} {attempt.ref.step} {attempt.number}"
        self._link.write_later(self._noun, "rows", {key: row}, self._add_attempt_rows)

    def _add_attempt_rows(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Add the rows of several attempts in one statement, which costs less than a statement for each."""
        values = {f"{name}_{number}": one[name] for number, one in enumerate(rows.values()) for name in one}
        self._write(_insert_statement(len(rows)), **values)

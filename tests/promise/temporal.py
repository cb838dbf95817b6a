"""A Temporal server in memory, which gives the tasks of the real workflows to the processes of the model.

It promises what Temporal promises and nothing more: each task is attempted until it has an outcome, an attempt that
Temporal has given up may still run, and only the outcome of the newest attempt counts.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

from temporalio import workflow
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.jobs.job import JobRef
from maestro.store.jobs.steps import UNKNOWN, TemporalAttempt
from temporal.attempts import StepFailure
from tests.promise.outside import Reply
from tests.promise.process import Process

AFTER_A_CRASH = 1.0
"""Seconds until a task whose attempt was lost is attempted again."""

CURRENT_ATTEMPT: ContextVar[TemporalAttempt] = ContextVar("current_attempt", default=UNKNOWN)
"""Temporal's attempt that the current task of a process makes."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step, or its final failure."""

    value: Any = None
    failure: ApplicationError | None = None


@dataclass(eq=False)
class WorkflowRun:
    """One run of a workflow, with the results of its steps in the order of its commands."""

    ref: JobRef
    code: Callable[..., Any]
    run_id: str
    results: list[StepResult] = field(default_factory=list)
    closed: bool = False
    failed: bool = False


@dataclass(frozen=True)
class StepCommand:
    """A step that a workflow has asked the server to run as an activity."""

    activity: Callable[..., Any]
    payload: Any
    queue: str


@dataclass(eq=False)
class Task:
    """A workflow task or, with a command, an activity task; ``due`` is when its next attempt may begin."""

    run: WorkflowRun
    due: float
    command: StepCommand | None = None
    attempt: int = 1
    process: Process | None = None
    """The process that makes the attempt."""

    @property
    def queue(self) -> str:
        return self.command.queue if self.command else ""

    def __str__(self) -> str:
        return (
            f"attempt {self.attempt} at {self.command.payload.step if self.command else 'the workflow'} of {self.job}"
        )

    @property
    def job(self) -> str:
        return self.run.ref.job_id


@dataclass(frozen=True)
class LostAttempt:
    """An attempt at a step that a fault ended for Temporal; ``died`` says whether its process was dead by then."""

    job_id: str
    activity: str
    died: bool


class Worker(Protocol):
    """A process that polls for tasks."""

    process: Process

    def find_step(self, activity: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return the step of this process for an activity."""
        ...


@dataclass(frozen=True)
class SimulatedHandle:
    """The handle of a workflow; ``run`` is its last run."""

    run: WorkflowRun | None

    async def describe(self) -> Any:
        """Return a description with the state of the workflow."""
        if self.run is None:
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        ended = WorkflowExecutionStatus.FAILED if self.run.failed else WorkflowExecutionStatus.COMPLETED
        status = ended if self.run.closed else WorkflowExecutionStatus.RUNNING
        return SimpleNamespace(status=status, id=self.run.ref.job_id, run_id=self.run.run_id)

    async def fetch_history(self) -> Any:
        """Return a history that did not fail at a change of the code."""
        return SimpleNamespace(events=[HistoryEvent()])


class SimulatedTemporal:
    """The server and its client: the last run of each workflow, and the open tasks, oldest first."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.runs: dict[str, WorkflowRun] = {}
        self.tasks: list[Task] = []
        self.lost_reports: set[Process] = set()
        """The processes whose next report of an outcome gets lost."""
        self.next_start = Reply.ARRIVES
        """How the next call that starts a workflow ends."""
        self.lost_attempts: list[LostAttempt] = []
        self.started = 0

    async def start_workflow(self, code: Callable[..., Any], ref: JobRef, *, id: str, **_: object) -> None:  # noqa: A002 - the SDK's name
        """Start a workflow, unless one with this id is open."""
        reply, self.next_start = self.next_start, Reply.ARRIVES
        if reply is not Reply.IS_REFUSAL:
            if id in self.runs and not self.runs[id].closed:
                raise WorkflowAlreadyStartedError(id, code.__qualname__)
            self.started += 1
            run = self.runs[id] = WorkflowRun(ref, code, f"run-{self.started}")
            self.tasks.append(Task(run, self._seconds()))
        if reply is not Reply.ARRIVES:
            raise RPCError("the server is away", RPCStatusCode.UNAVAILABLE, b"")

    def get_workflow_handle(self, job_id: str) -> SimulatedHandle:
        """Return the handle with which the reconciler asks about a workflow."""
        return SimulatedHandle(self.runs.get(job_id))

    def list_due(self, queues: frozenset[str]) -> list[Task]:
        """Return the tasks of these queues that a process may begin now."""
        return [
            task for task in self.tasks if not task.process and task.queue in queues and task.due <= self._seconds()
        ]

    def list_under_way(self) -> list[Task]:
        """Return the tasks that some process has begun."""
        return [task for task in self.tasks if task.process is not None]

    def hand_out(self, task: Task, worker: Worker) -> None:
        """Let a process begin an attempt."""
        task.process = worker.process
        work = self._do_workflow_task if task.command is None else self._attempt_step
        worker.process.spawn(work(task, worker, task.attempt))

    def give_up(self, task: Task, delay: float = AFTER_A_CRASH) -> None:
        """Count the attempt under way as ended, although its process may still be at it."""
        task.process, task.attempt = None, task.attempt + 1
        task.due = self._seconds() + delay

    def lose_attempt(self, task: Task) -> None:
        """Give up the attempt under way because of a fault."""
        self._note_loss(task)
        self.give_up(task)

    def forget_process(self, process: Process) -> None:
        """Count the attempts of a process as lost."""
        for task in self.list_under_way():
            if task.process is process:
                self.lose_attempt(task)

    def forget_workflows(self) -> None:
        """Lose all workflows, while processes go on with their attempts."""
        for task in self.list_under_way():
            self._note_loss(task)
        self.runs.clear()
        self.tasks.clear()

    def _note_loss(self, task: Task) -> None:
        if task.command is not None and task.process is not None:
            lost = LostAttempt(task.job, task.command.activity.__name__, not task.process.alive)
            self.lost_attempts.append(lost)

    async def _do_workflow_task(self, task: Task, worker: Worker, attempt: int) -> None:
        """Run workflow code from its beginning to the first step without a result, or to its end."""
        CURRENT_ATTEMPT.set(TemporalAttempt(task.run.run_id))
        activation = Activation(task.run, worker, lambda: self._is_newest(task, attempt))
        _ACTIVATION.set(activation)
        code = asyncio.ensure_future(task.run.code(None, task.run.ref))
        await asyncio.wait([code, activation.command], return_when=asyncio.FIRST_COMPLETED)
        if not code.done():
            code.get_coro().close()
        if not self._counts(task, attempt):
            return
        self.tasks.remove(task)
        task.run.results += activation.new_results
        task.run.closed = code.done()
        task.run.failed = code.done() and code.exception() is not None
        if not code.done():
            self.tasks.append(Task(task.run, self._seconds(), activation.command.result()))

    async def _attempt_step(self, task: Task, worker: Worker, attempt: int) -> None:
        assert task.command is not None
        CURRENT_ATTEMPT.set(TemporalAttempt(task.run.run_id, attempt))
        delay = AFTER_A_CRASH
        try:
            result = StepResult(await worker.find_step(task.command.activity)(task.command.payload))
        except StepFailure as failure:
            result = StepResult(failure=failure)
            delay = failure.next_retry_delay.total_seconds() if failure.next_retry_delay is not None else delay
        except Exception as error:  # noqa: BLE001 - Temporal repeats a step after any other error
            result = StepResult(failure=ApplicationError(str(error), type=type(error).__name__))
        if not self._counts(task, attempt):
            return
        if result.failure is not None and not result.failure.non_retryable:
            self.give_up(task, delay)
        else:
            self.tasks.remove(task)
            task.run.results.append(result)
            self.tasks.append(Task(task.run, self._seconds()))

    def _counts(self, task: Task, attempt: int) -> bool:
        """Return whether the report of an attempt arrives, and is that of the newest one."""
        if not self._is_newest(task, attempt):
            return False
        if task.process in self.lost_reports:
            self.lost_reports.discard(task.process)
            self.give_up(task)
            return False
        return True

    def _is_newest(self, task: Task, attempt: int) -> bool:
        return task in self.tasks and task.attempt == attempt


class Activation:
    """One workflow task: gives the workflow code the results so far, and does local steps up to the next command."""

    def __init__(self, run: WorkflowRun, worker: Worker, counts: Callable[[], bool]) -> None:
        """``counts`` says whether the server still waits for this workflow task."""
        self.new_results: list[StepResult] = []
        self.command: asyncio.Future[StepCommand] = asyncio.get_running_loop().create_future()
        self._earlier_results = iter(tuple(run.results))
        self._worker = worker
        self._counts = counts

    async def do_local_step(self, activity: Callable[..., Any], payload: Any) -> Any:
        """Do a step inside the workflow task until it has a result."""
        result = next(self._earlier_results, None)
        while result is None:
            delay = AFTER_A_CRASH
            try:
                result = StepResult(self._worker.find_step(activity)(payload))
            except StepFailure as failure:
                if failure.non_retryable:
                    result = StepResult(failure=failure)
                elif failure.next_retry_delay is not None:
                    delay = failure.next_retry_delay.total_seconds()
            except Exception:  # noqa: BLE001 - Temporal repeats a step after any other error
                result = None
            if result is None:
                await asyncio.sleep(delay)
                if not self._counts():
                    # A worker of Temporal learns this from the server, and evicts the workflow.
                    self.command.cancel()
                    await asyncio.get_running_loop().create_future()
            else:
                self.new_results.append(result)
        return _unpack(result, activity)

    async def await_step(self, command: StepCommand) -> Any:
        """Return the result of a step; without one, let the server begin the step, which ends this task."""
        result = next(self._earlier_results, None)
        if result is None:
            self.command.set_result(command)
            await asyncio.get_running_loop().create_future()
        assert result is not None
        return _unpack(result, command.activity)


_ACTIVATION: ContextVar[Activation] = ContextVar("activation")


def _unpack(result: StepResult, activity: Callable[..., Any]) -> Any:
    """Return the result of a step, or raise its failure as workflow code sees it."""
    if result.failure is None:
        return result.value
    named: dict[str, Any] = {"activity_type": activity.__name__, "activity_id": "", "identity": "", "retry_state": None}
    raise ActivityError("the step failed", scheduled_event_id=0, started_event_id=0, **named) from result.failure


async def _run_local(activity: Callable[..., Any], payload: Any, **_: object) -> Any:
    return await _ACTIVATION.get().do_local_step(activity, payload)


async def _run_queued(activity: Callable[..., Any], payload: Any, *, task_queue: str | None = None, **_: object) -> Any:
    return await _ACTIVATION.get().await_step(StepCommand(activity, payload, task_queue or ""))


@contextmanager
def simulated_workflows() -> Iterator[None]:
    """Let workflow code do its steps through the activation that runs it."""
    with mock.patch.multiple(
        workflow,
        execute_local_activity_method=_run_local,
        execute_activity_method=_run_queued,
        set_current_details=lambda _: None,
        upsert_search_attributes=lambda _: None,
    ):
        yield

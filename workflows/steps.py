"""How a workflow has its steps done: inside its own task, or as an activity on a queue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.job import JobRef, StepRef
    from maestro.domain.precedence import Precedence
    from workflows import policies
    from workflows.precedence import temporal_priority
    from workflows.suspension import Suspended

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Terms:
    """How long a step may take, one attempt and all of them together if that is bounded, and on which queue it is."""

    once: timedelta
    in_all: timedelta | None = None
    queue: str = ""


async def local(activity: Callable[..., Outcome], step: StepRef, summary: str) -> Outcome:
    """Do a cheap step inside the workflow task; raises ``Suspended`` when it says that it has to wait."""
    with _suspending(step):
        result: Outcome = await workflow.execute_local_activity_method(
            activity,
            step,
            start_to_close_timeout=policies.LOCAL_STEP,
            retry_policy=policies.RETRY_AFTER_CRASH,
            local_retry_threshold=policies.LOCAL_RETRY_IN_HISTORY,
            summary=summary,
        )
    return result


@contextmanager
def _suspending(step: StepRef) -> Iterator[None]:
    """Raise ``Suspended`` for the failure by which a step says that it has to wait."""
    try:
        yield
    except (ActivityError, ApplicationError) as error:
        if _waits(error):
            raise Suspended(failed_step(error) or step.step) from None
        raise


class Queued:
    """Steps that other processes may do, with the pace and the queues of one job."""

    def __init__(self, ref: JobRef) -> None:
        self._ref = ref
        self.precedence: Precedence | None = None
        """How soon the steps are done; as soon as their workflow says, until it is known."""

    @property
    def priority(self) -> Priority:
        """How soon Temporal has a step done."""
        return temporal_priority(self.precedence, fair=self._ref.fair)

    def model_terms(self, calls: int = 1, in_all: timedelta | None = None) -> Terms:
        """Return the terms of a step with so many model calls."""
        request = timedelta(seconds=self._ref.model_seconds)
        once = request * policies.REQUESTS_PER_CALL * calls + policies.SLACK
        return Terms(once=once, in_all=in_all, queue=self._ref.llm_queue)

    def answer_terms(self) -> Terms:
        """Return the terms of a model call whose answer may be sent at once."""
        return replace(terms := self.model_terms(), once=terms.once + policies.DELIVERY)

    def tool_terms(self) -> Terms:
        """Return the terms of a tool call."""
        return Terms(once=timedelta(seconds=self._ref.tool_seconds) + policies.SLACK, queue=self._ref.llm_queue)

    def connector_terms(self, once: timedelta, in_all: timedelta | None = None) -> Terms:
        """Return the terms of a step that only the process with the connector can do."""
        return Terms(once=once, in_all=in_all, queue=self._ref.connector_queue)

    async def do(self, activity: Callable[..., Any], step: StepRef, terms: Terms, summary: str) -> Any:
        """Do a step on its queue; raises ``Suspended`` when it says that it has to wait."""
        with _suspending(step):
            return await self._activity(activity, step, terms, summary)

    async def _activity(self, activity: Callable[..., Any], step: StepRef, terms: Terms, summary: str) -> Any:
        return await workflow.execute_activity_method(
            activity,
            step,
            activity_id=step.step,
            task_queue=terms.queue or None,
            start_to_close_timeout=terms.once,
            schedule_to_close_timeout=terms.in_all,
            heartbeat_timeout=timedelta(seconds=self._ref.heartbeat_seconds),
            retry_policy=policies.RETRY_AFTER_CRASH,
            cancellation_type=policies.WAIT_FOR_CLEANUP,
            summary=summary,
            priority=self.priority,
        )


def _waits(error: ActivityError | ApplicationError) -> bool:
    """Say whether a step only has to wait, which is no failure (temporal/failures.py)."""
    cause = error.cause if isinstance(error, ActivityError) else error  # a local step's failure comes bare
    return isinstance(cause, ApplicationError) and cause.category is ApplicationErrorCategory.BENIGN


def failed_step(error: BaseException) -> str:
    """Return the step that failed, empty where its failure does not say it (temporal/failures.py)."""
    cause = error.cause if isinstance(error, ActivityError) else error
    return str(cause.details[0]) if isinstance(cause, ApplicationError) and cause.details else ""


def kind_of(error: BaseException) -> str:
    """Return the name of the class behind an activity's failure."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        return cause.type or "ApplicationError"
    return type(cause).__name__

"""How a workflow runs its steps: timeouts, priorities, queues, and the details for the Temporal Web UI.

See docs/decisions.md: priorities, delegation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError
from temporalio.workflow import ActivityCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import AnswerOutcome
    from maestro.domain.jobs.job import JobKind, JobRef, StepRef, job_details
    from maestro.domain.precedence import Precedence
    from maestro.domain.values import Value


# The step journal (temporal/journal.py) decides about retries: each error that it reports has a retry delay or is
# final. This policy covers only crashes of the process, after which a step is retried in a second.
RETRY_AFTER_CRASH = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)

LOCAL_STEP_TIMEOUT = timedelta(seconds=30)
"""The timeout of a local step: a transaction that takes longer is stuck."""

LOCAL_RETRY_IN_HISTORY = timedelta(milliseconds=1)
"""The shortest retry delay for which the history shows a local step's failed attempt, and the delay as a timer.

Zero would mean the SDK's default: retries inside one long workflow task, which leave no trace in the history.
"""

DELIVERY_TIMEOUT = timedelta(minutes=10)
"""The timeout for sending all chunks of a message, including the wait for the outbound lane."""

NOTICE_TIMEOUT = timedelta(minutes=2)
"""The timeout for sending a failure notice: a notice to an unreachable platform holds the channel's outbound lane."""

MEDIA_TIMEOUT = timedelta(minutes=5)
"""The timeout for fetching all files of one message."""

VOICE_TIMEOUT = timedelta(minutes=2)
"""The timeout for all attempts at a message's transcripts; after it, the agent answers without missing transcripts."""

COMPACTION_TIMEOUT = timedelta(minutes=1)
"""The timeout for all attempts at a compaction; after it, the agent answers without the compaction.

The model answers of the compaction stay stored, and the compaction of the next message reuses them.
"""

REQUESTS_PER_CALL = 3
"""The timeout of one model call in request timeouts: one account may time out, another may wait and answer slowly."""

DEADLINE_SLACK = timedelta(seconds=30)
"""How much longer than its own deadline an activity may take before Temporal times it out."""

PLATFORM = SearchAttributeKey.for_keyword("Platform")
KIND = SearchAttributeKey.for_keyword("Kind")
CHANNEL = SearchAttributeKey.for_keyword("Channel")
AGENT = SearchAttributeKey.for_keyword("Agent")
CONVERSATION = SearchAttributeKey.for_keyword("Conversation")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")

Outcome = TypeVar("Outcome")


class Suspended(Exception):
    """Raised by a step that cannot continue now: the job is parked, and a new run continues it later.

    See docs/adr/0008-a-waiting-job-has-no-workflow.md.
    """

    def __init__(self, *steps: str) -> None:
        super().__init__(*steps)
        self.steps = steps


def temporal_priority(precedence: Precedence | None, *, fair: bool) -> Priority:
    """Convert Maestro's priority, from 1 to 10, to Temporal's, from 1 to 5.

    Without a precedence, the result is empty: the activity then has the priority of its workflow.
    """
    if precedence is None:
        return Priority.default
    key = (precedence.priority + 1) // 2
    if not (fair and precedence.key):
        return Priority(priority_key=key)
    return Priority(priority_key=key, fairness_key=precedence.key, fairness_weight=precedence.weight)


class RunDetails:
    """The details of a run in the Temporal Web UI: ids and fixed words, but no text of messages."""

    def __init__(self) -> None:
        self.agent = ""
        self.conversation = 0
        self._lines: list[str] = []

    def add_line(self, line: str) -> None:
        """Add a line to the details that the Temporal Web UI shows."""
        self._lines.append(f"* {line}")
        workflow.set_current_details("\n".join(self._lines))

    def publish_outcome(self, outcome: str) -> None:
        """Set the search attributes that are known only at the end of the run."""
        values = {AGENT: self.agent, CONVERSATION: str(self.conversation or ""), OUTCOME: outcome}
        workflow.upsert_search_attributes([key.value_set(value) for key, value in values.items() if value])


@dataclass(frozen=True)
class StepOptions:
    """The queue of a step, and its timeouts: for one attempt, and optionally for all attempts."""

    attempt_timeout: timedelta
    total_timeout: timedelta | None = None
    queue: str = ""


async def run_local_step(activity: Callable[..., Outcome], payload: Value, summary: str) -> Outcome:
    """Run a cheap step inside the workflow task; raises ``Suspended`` when the step has to wait."""
    with translate_wait_failures(payload):
        result: Outcome = await workflow.execute_local_activity_method(
            activity,
            payload,
            start_to_close_timeout=LOCAL_STEP_TIMEOUT,
            retry_policy=RETRY_AFTER_CRASH,
            local_retry_threshold=LOCAL_RETRY_IN_HISTORY,
            summary=summary,
        )
    return result


@contextmanager
def translate_wait_failures(payload: Value) -> Iterator[None]:
    """Translate a failure that makes a step wait into ``Suspended``."""
    try:
        yield
    except (ActivityError, ApplicationError) as error:
        cause = _unwrap_failure(error)
        if isinstance(cause, ApplicationError) and cause.category is ApplicationErrorCategory.BENIGN:
            raise Suspended(str(cause.details[0]) if cause.details else getattr(payload, "step", "")) from None
        raise


class QueuedSteps:
    """Runs the steps of one job as activities on task queues, with the job's settings."""

    def __init__(self, ref: JobRef) -> None:
        self._ref = ref
        self.precedence: Precedence | None = None
        """The precedence of the steps; while it is None, the steps have the priority of their workflow."""

    @property
    def temporal_priority(self) -> Priority:
        """The priority of a step in Temporal."""
        return temporal_priority(self.precedence, fair=self._ref.fair)

    def model_options(self, *, sends: bool = False) -> StepOptions:
        """Return the options of a model call; with ``sends``, the activity may also send the answer."""
        extra = DEADLINE_SLACK + (DELIVERY_TIMEOUT if sends else timedelta())
        return StepOptions(self.model_timeout + extra, queue=self._ref.llm_queue)

    @property
    def model_timeout(self) -> timedelta:
        """The timeout of one model call."""
        return timedelta(seconds=self._ref.model_seconds) * REQUESTS_PER_CALL

    def tool_options(self) -> StepOptions:
        """Return the options of a tool call."""
        queue = self._ref.tools_queue or self._ref.llm_queue
        return StepOptions(timedelta(seconds=self._ref.tool_seconds) + DEADLINE_SLACK, queue=queue)

    async def run_step(self, activity: Callable[..., Any], step: StepRef, options: StepOptions, summary: str) -> Any:
        """Run a step as an activity on its task queue; raises ``Suspended`` when the step has to wait."""
        with translate_wait_failures(step):
            return await workflow.execute_activity_method(
                activity,
                step,
                activity_id=step.step,
                task_queue=options.queue or None,
                start_to_close_timeout=options.attempt_timeout,
                schedule_to_close_timeout=options.total_timeout,
                heartbeat_timeout=timedelta(seconds=self._ref.heartbeat_seconds),
                retry_policy=RETRY_AFTER_CRASH,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=summary,
                priority=self.temporal_priority,
            )


def _unwrap_failure(error: BaseException) -> BaseException | None:
    """Return the failure inside an activity's error; local activities raise the failure directly."""
    return error.cause if isinstance(error, ActivityError) else error


def failed_step(error: BaseException) -> str:
    """Return the name of the step that failed; for a history of an earlier release, the name of its activity."""
    cause = _unwrap_failure(error)
    if isinstance(cause, ApplicationError) and cause.details:
        return str(cause.details[0])
    return error.activity_type if isinstance(error, ActivityError) else ""


def error_type(error: BaseException) -> str:
    """Return the class name of the failure that an activity raised."""
    cause = _unwrap_failure(error)
    return cause.type or "ApplicationError" if isinstance(cause, ApplicationError) else type(cause).__name__


async def start_delegated_tasks(ref: JobRef, answer: AnswerOutcome, answer_precedence: Precedence | None) -> None:
    """Start a child workflow for each task of an answer that the dispatcher has not started already.

    Until a task's share of the fair queue is known, the task has the share of its parent job.
    """
    parent = answer_precedence or Precedence(key=workflow.info().priority.fairness_key or "")
    precedence = parent.model_copy(update={"priority": answer.priority})
    own = workflow.info().typed_search_attributes
    for job_id in answer.begun:
        try:
            await workflow.start_child_workflow(
                "DelegationWorkflow",
                ref.model_copy(update={"job_id": job_id, "run": 1}),
                id=job_id,
                parent_close_policy=ParentClosePolicy.ABANDON,
                task_timeout=workflow.info().task_timeout,
                static_summary="A task that an agent gave to another",
                static_details=job_details(job_id, ref.dashboard),
                search_attributes=search_attributes(own.get(PLATFORM), JobKind.DELEGATION, own.get(CHANNEL)),
                priority=temporal_priority(precedence, fair=ref.fair),
            )
        except WorkflowAlreadyStartedError:
            continue


def search_attributes(
    platform: str | None, kind: JobKind, channel: str | None, agent: str | None = None
) -> TypedSearchAttributes:
    """Return the search attributes with which a workflow starts; a value of None is left out."""
    values = {PLATFORM: platform, KIND: str(kind), CHANNEL: channel, AGENT: agent}
    return TypedSearchAttributes(
        [SearchAttributePair(key, value) for key, value in values.items() if value is not None]
    )


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if the workflow is cancelled meanwhile: otherwise a job stopped twice could stay open."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    task.result()

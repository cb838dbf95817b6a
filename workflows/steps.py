"""How a workflow has its steps done: their timeouts, priorities and queues, and what the Temporal Web UI shows.

See docs/decisions.md: priorities, delegation.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError
from temporalio.workflow import ActivityCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import (
        AnswerOutcome,
        ContextOutcome,
        ConversationOutcome,
        DeliverOutcome,
        ModelOutcome,
        RouteOutcome,
    )
    from maestro.domain.jobs.job import JobKind, JobRef, StepRef, job_details
    from maestro.domain.precedence import Precedence


# The activity itself decides whether and when it is tried again (temporal/journal.py): an error it reports carries
# its own delay or says that it is final. What is left for this policy are crashes, which are retried after a second.
RETRY_AFTER_CRASH = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)

LOCAL_STEP_TIMEOUT = timedelta(seconds=30)
"""A local step is a transaction; longer than this and its thread hangs."""

LOCAL_RETRY_IN_HISTORY = timedelta(milliseconds=1)
"""Every failed attempt at a local step becomes a marker that people see in the Temporal Web UI, and its wait a timer.

Zero would mean the SDK's default: repeats inside one long workflow task that leave no trace.
"""

DELIVERY_TIMEOUT = timedelta(minutes=10)
"""All chunks of one message, waiting for the channel's outbound lane included; the heartbeat notices a dead process."""

NOTICE_TIMEOUT = timedelta(minutes=2)
"""A failure notice is a courtesy: a platform that is away must not hold up the lane for it."""

MEDIA_TIMEOUT = timedelta(minutes=5)
"""Fetching all files of one message; more would be a platform that dribbles."""

VOICE_TIMEOUT = timedelta(minutes=2)
"""All attempts at the voices of one message; what is heard by then is kept, and the answer does without the rest."""

COMPACTION_TIMEOUT = timedelta(minutes=1)
"""All attempts at a compaction: the answer does without it, so a person must not wait long for a provider that fails.

What it has bought by then is kept, and the compaction of the next message goes on from there.
"""

REQUESTS_PER_CALL = 3
"""How long one model call may take in requests: one account may time out, another answer slowly, and both may wait."""

DEADLINE_SLACK = timedelta(seconds=30)
"""What an activity may take beyond the deadline it keeps itself."""

WAIT_FOR_CLEANUP = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

PLATFORM = SearchAttributeKey.for_keyword("Platform")
KIND = SearchAttributeKey.for_keyword("Kind")
CHANNEL = SearchAttributeKey.for_keyword("Channel")
AGENT = SearchAttributeKey.for_keyword("Agent")
CONVERSATION = SearchAttributeKey.for_keyword("Conversation")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")

Outcome = TypeVar("Outcome")

DELEGATION_WORKFLOW = "DelegationWorkflow"


class Suspended(Exception):
    """These steps cannot go on now; the job is parked and goes on with a new run (docs/adr/0008)."""

    def __init__(self, *steps: str) -> None:
        super().__init__(*steps)
        self.steps = steps


def temporal_priority(precedence: Precedence | None, *, fair: bool) -> Priority:
    """Return what Temporal is told: ours are from 1 to 10, its own from 1 to 5.

    Nothing is told where nothing is known yet: then an activity goes as its workflow does.
    """
    if precedence is None:
        return Priority.default
    key = (precedence.priority + 1) // 2
    if not (fair and precedence.key):
        return Priority(priority_key=key)
    return Priority(priority_key=key, fairness_key=precedence.key, fairness_weight=precedence.weight)


def describe_result(result: object) -> str:
    """Return what people read of the result of a step: words and figures, nothing that anybody said."""
    match result:
        case RouteOutcome():
            return f"{result.action}: {result.reason}"
        case ConversationOutcome():
            return f"conversation {result.conversation_id}"
        case ContextOutcome():
            return f"{result.turns} turns, {result.tokens} tokens"
        case ModelOutcome():
            cost = "" if result.cost_usd is None else f", {result.cost_usd:.6f} USD"
            took = f"{result.input_tokens} tokens in, {result.output_tokens} out{cost}"
            return f"{result.provider}/{result.model}: {took}"
        case AnswerOutcome():
            return "nothing to say" if result.silent else "recorded"
        case DeliverOutcome():
            return f"{result.chunks} sent"
        case _:
            return "done"


class RunDetails:
    """Ids and words only: nothing that anybody said."""

    def __init__(self) -> None:
        self._found: dict[SearchAttributeKey[str], str] = {}
        self._lines: list[str] = []

    def tell(self, line: str = "", *, agent: str = "", conversation: int = 0) -> None:
        """Add a line to the details, and what the search attributes will say at the end."""
        if agent:
            self._found[AGENT] = agent
        if conversation:
            self._found[CONVERSATION] = str(conversation)
        if line:
            self._lines.append(f"* {line}")
            workflow.set_current_details("\n".join(self._lines))

    def publish(self, outcome: str) -> None:
        """Set the search attributes."""
        found = {**self._found, OUTCOME: outcome}
        workflow.upsert_search_attributes([key.value_set(value) for key, value in found.items()])


@dataclass(frozen=True)
class StepOptions:
    """How long a step may take, one attempt and all of them together if that is bounded, and on which queue it is."""

    once: timedelta
    in_all: timedelta | None = None
    queue: str = ""


async def run_local_step(activity: Callable[..., Outcome], step: StepRef, summary: str) -> Outcome:
    """Do a cheap step inside the workflow task; raises ``Suspended`` when it says that it has to wait."""
    with _suspending(step):
        result: Outcome = await workflow.execute_local_activity_method(
            activity,
            step,
            start_to_close_timeout=LOCAL_STEP_TIMEOUT,
            retry_policy=RETRY_AFTER_CRASH,
            local_retry_threshold=LOCAL_RETRY_IN_HISTORY,
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


class QueuedSteps:
    """Steps that other processes may do, with the pace and the queues of one job."""

    def __init__(self, ref: JobRef) -> None:
        self._ref = ref
        self.precedence: Precedence | None = None
        """How soon the steps are done; as soon as their workflow says, until it is known."""

    @property
    def priority(self) -> Priority:
        """How soon Temporal has a step done."""
        return temporal_priority(self.precedence, fair=self._ref.fair)

    def model_terms(self, calls: int = 1, in_all: timedelta | None = None) -> StepOptions:
        """Return the terms of a step with so many model calls."""
        request = timedelta(seconds=self._ref.model_seconds)
        once = request * REQUESTS_PER_CALL * calls + DEADLINE_SLACK
        return StepOptions(once=once, in_all=in_all, queue=self._ref.llm_queue)

    def answer_terms(self) -> StepOptions:
        """Return the terms of a model call whose answer may be sent at once."""
        return replace(terms := self.model_terms(), once=terms.once + DELIVERY_TIMEOUT)

    def tool_terms(self) -> StepOptions:
        """Return the terms of a tool call."""
        return StepOptions(once=timedelta(seconds=self._ref.tool_seconds) + DEADLINE_SLACK, queue=self._ref.llm_queue)

    def connector_terms(self, once: timedelta, in_all: timedelta | None = None) -> StepOptions:
        """Return the terms of a step that only the process with the connector can do."""
        return StepOptions(once=once, in_all=in_all, queue=self._ref.connector_queue)

    async def do(self, activity: Callable[..., Any], step: StepRef, terms: StepOptions, summary: str) -> Any:
        """Do a step on its queue; raises ``Suspended`` when it says that it has to wait."""
        with _suspending(step):
            return await self._activity(activity, step, terms, summary)

    async def _activity(self, activity: Callable[..., Any], step: StepRef, terms: StepOptions, summary: str) -> Any:
        return await workflow.execute_activity_method(
            activity,
            step,
            activity_id=step.step,
            task_queue=terms.queue or None,
            start_to_close_timeout=terms.once,
            schedule_to_close_timeout=terms.in_all,
            heartbeat_timeout=timedelta(seconds=self._ref.heartbeat_seconds),
            retry_policy=RETRY_AFTER_CRASH,
            cancellation_type=WAIT_FOR_CLEANUP,
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


async def begin_tasks(ref: JobRef, answer: AnswerOutcome, of_answer: Precedence | None) -> None:
    """Start a child for every task; one that the dispatcher was quicker to start is left to run.

    Until a child knows better, it has its share where the answer had its own.
    """
    share = of_answer or Precedence(key=workflow.info().priority.fairness_key or "")
    precedence = share.model_copy(update={"priority": answer.priority})
    for job_id in answer.begun:
        try:
            await workflow.start_child_workflow(
                DELEGATION_WORKFLOW,
                ref.model_copy(update={"job_id": job_id, "run": 1}),
                id=job_id,
                parent_close_policy=ParentClosePolicy.ABANDON,
                task_timeout=workflow.info().task_timeout,
                static_summary="A task that an agent gave to another",
                static_details=job_details(job_id, ref.dashboard),
                search_attributes=_attributes(),
                priority=temporal_priority(precedence, fair=ref.fair),
            )
        except WorkflowAlreadyStartedError:
            continue


def _attributes() -> TypedSearchAttributes:
    """Return those of the workflow itself, with the kind of its children."""
    own = workflow.info().typed_search_attributes
    found = [(key, own.get(key)) for key in (PLATFORM, CHANNEL)]
    place = [SearchAttributePair(key, value) for key, value in found if value is not None]
    return TypedSearchAttributes([*place, SearchAttributePair(KIND, str(JobKind.DELEGATION))])


class ModelSteps(Protocol):
    """How the loop has its steps done."""

    def ask_model(self, number: int, *, final: bool) -> Coroutine[Any, Any, ModelOutcome]:
        """Make one model call."""
        ...

    def call_tool(self, number: int, place: int, name: str) -> Coroutine[Any, Any, None]:
        """Make one tool call; raises ``Suspended`` when it has to wait."""
        ...


async def model_loop(steps: ModelSteps, rounds: int) -> int:
    """Return the number of the call whose answer is final.

    After so many rounds of tool calls the model has to answer without any. Raises ``Suspended``.
    """
    for number in itertools.count(1):
        call = await steps.ask_model(number, final=number > rounds)
        if not call.tools:
            break
        # A call that was made when more rounds were allowed may want tools although it counts as the last one now.
        await _call_all(steps, call)
    return number


async def _call_all(steps: ModelSteps, call: ModelOutcome) -> None:
    """Make the tool calls of one answer side by side; when some have to wait, the others finish first."""
    calls = [steps.call_tool(call.number, place, name) for place, name in enumerate(call.tools)]
    problems = [one for one in await asyncio.gather(*calls, return_exceptions=True) if one is not None]
    for problem in problems:
        if not isinstance(problem, Suspended):
            raise problem
    waiting = [step for problem in problems if isinstance(problem, Suspended) for step in problem.steps]
    if waiting:
        raise Suspended(*waiting)

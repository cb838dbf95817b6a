"""The tail that every kind of job shares: context, model, answer, delivery, and the failure path (design section 4)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.closing import ClosingActivities
    from activities.compaction import CompactionActivities
    from activities.context import ContextActivities
    from activities.delivery import DeliveryActivities
    from activities.llm import LLMActivities
    from activities.media import MediaActivities
    from activities.routing import TypingActivities
    from activities.tags import TagActivities
    from activities.tools import ToolActivities
    from activities.voice import VoiceActivities
    from activities.waiting import WaitingActivities
    from maestro.domain.deliveries import Purpose
    from maestro.domain.flow import (
        AnswerStep,
        CloseOutcome,
        CloseStep,
        DeliverStep,
        ModelOutcome,
        ModelStep,
        ParkOutcome,
        ParkStep,
        ToolOutcome,
        ToolStep,
    )
    from maestro.domain.jobs import JobRef, JobStatus, StepRef
    from workflows import policies
    from workflows.model_loop import model_loop
    from workflows.suspension import SUSPENSIONS, Suspended

Outcome = TypeVar("Outcome")

AGENT = SearchAttributeKey.for_keyword("Agent")
CONVERSATION = SearchAttributeKey.for_keyword("Conversation")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")

STOPPED = frozenset({"Stopped", "JobEnded"})


@dataclass(frozen=True)
class Terms:
    """How long a step may take, one attempt and all of them together if that is bounded, and on which queue it is."""

    once: timedelta
    in_all: timedelta | None = None
    queue: str = ""


class JobRun:
    """One run of one job: its steps under their names, what people see of it, and how it ends."""

    def __init__(self, ref: JobRef) -> None:
        self._ref = ref
        self._status = JobStatus.RUNNING
        self._found: dict[SearchAttributeKey[str], str] = {}
        self._story: list[str] = []

    async def to_its_end(self, flow: Awaitable[None]) -> str:
        """Run the flow and return the job's status; whatever goes wrong, the job is closed with its reason.

        A job that has to wait is parked, and this run is over. Fails the workflow when the job failed, so that it is
        found among the failed ones in the Temporal Web UI.
        """
        try:
            try:
                await flow
            except Suspended as waiting:
                await _to_completion(self._park(waiting.steps))
        # Design invariant 9: a message never ends silently, not even by a fault in this very code.
        except (Exception, asyncio.CancelledError) as error:
            await _to_completion(self._fail(error))
            self._publish()
            if self._status is JobStatus.FAILED:
                raise ApplicationError("The job failed.", type=_kind(error), non_retryable=True) from None
            if is_cancelled_exception(error):
                raise
            return self._status
        self._publish()
        return self._status

    async def fetch_files(self) -> bool:
        """Fetch what came with the message, and say whether there are voices nobody has heard.

        What cannot be had is named to the model as missing.
        """
        terms = Terms(once=policies.MEDIA, queue=self._ref.connector_queue)
        fetched = await self._optional(MediaActivities.fetch_media, "media", terms, "Fetch the files of the message")
        return fetched is not None and fetched.voices > 0

    async def transcribe(self) -> None:
        """Turn voices into text; without a transcript the model hears that there was one."""
        terms = Terms(once=policies.VOICE, in_all=policies.VOICE, queue=self._ref.llm_queue)
        await self._optional(VoiceActivities.transcribe, "voice", terms, "Transcribe the voice messages")

    async def compact(self) -> None:
        """Make the conversation shorter; what fails is put off until the next message (decision 5)."""
        await self._optional(
            CompactionActivities.compact_conversation,
            "compaction",
            Terms(once=self._model_calls(2), in_all=policies.COMPACTION, queue=self._ref.llm_queue),
            "Compact the conversation",
        )

    async def answer(self) -> None:
        """Build the context, ask the model, record the answer, deliver it."""
        await self.local(ContextActivities.build_context, "context", "Build the prompt")
        number = await model_loop(self, self._ref.tool_rounds)
        step = AnswerStep(job_id=self._ref.job_id, step="tags", number=number)
        await self._local(TagActivities.record_answer, step, "Act on the answer and record it")
        await self._deliver(Purpose.ANSWER, "Send the answer", closes=True)
        self.ended(JobStatus.COMPLETED)

    async def ask_model(self, number: int, *, final: bool) -> ModelOutcome:
        """Make one model call; raises ``Suspended`` when every account has to be left alone for a while."""
        call: ModelOutcome = await self._regular(
            LLMActivities.call_model,
            ModelStep(job_id=self._ref.job_id, step=f"model-{number}", number=number, final=final),
            Terms(once=self._model_calls(1), queue=self._ref.llm_queue),
            f"Ask the model, call {number}",
        )
        self.tell(f"{call.provider}/{call.model}: {call.input_tokens} tokens in, {call.output_tokens} out{_cost(call)}")
        return call

    async def call_tool(self, number: int, place: int, name: str) -> None:
        """Make one tool call; raises ``Suspended`` when it waits for a person."""
        done: ToolOutcome = await self._regular(
            ToolActivities.call_tool,
            ToolStep(job_id=self._ref.job_id, step=f"tool-{number}-{place}", number=number, place=place),
            Terms(once=timedelta(seconds=self._ref.tool_seconds) + policies.SLACK, queue=self._ref.llm_queue),
            f"Call the tool {name}",
        )
        self.tell(f"tool {name}: {done.state}")

    async def reply(self) -> None:
        """Send what Maestro itself has to say, such as the answer to a control word."""
        await self._deliver(Purpose.NOTICE, "Reply to a control word", closes=True)
        self.ended(JobStatus.COMPLETED)

    async def local(self, activity: Callable[..., Outcome], step: str, summary: str) -> Outcome:
        """Run a cheap step inside the workflow task."""
        return await self._local(activity, StepRef(job_id=self._ref.job_id, step=step), summary)

    def show_typing(self) -> None:
        """Have the process that holds the connector show the indicator; nobody waits for it."""
        workflow.start_activity_method(
            TypingActivities.show_typing,
            StepRef(job_id=self._ref.job_id, step="typing"),
            task_queue=self._ref.connector_queue or None,
            schedule_to_close_timeout=policies.SLACK,
            retry_policy=policies.RETRY_AFTER_CRASH,
            summary="Show the typing indicator",
        )

    def tell(self, line: str = "", *, agent: str = "", conversation: int = 0) -> None:
        """Add a line to the details in the Temporal Web UI, and what the search attributes will say at the end."""
        if agent:
            self._found[AGENT] = agent
        if conversation:
            self._found[CONVERSATION] = str(conversation)
        if line:
            self._story.append(f"* {line}")
            workflow.set_current_details("\n".join(self._story))

    def ended(self, status: JobStatus) -> None:
        """Note how the job ended; its row says the same already."""
        self._status = status

    async def _park(self, steps: tuple[str, ...]) -> None:
        step = ParkStep(job_id=self._ref.job_id, step=f"park-{self._ref.run}", steps=steps)
        parked: ParkOutcome = await self._local(WaitingActivities.park_job, step, "Give the place back and wait")
        self.ended(parked.status)
        self.tell(f"{parked.status}: {', '.join(steps)}")

    async def _fail(self, error: BaseException) -> None:
        kind = _kind(error)
        stopped = is_cancelled_exception(error) or kind in STOPPED
        if not stopped and _activity(error) != "deliver":
            await self._notice()
        step = CloseStep(
            job_id=self._ref.job_id,
            step=f"close-{self._ref.run}",
            run=self._ref.run,
            status=JobStatus.CANCELLED if stopped else JobStatus.FAILED,
            error="" if stopped else kind,
        )
        closed: CloseOutcome = await self._local(ClosingActivities.close_job, step, "Close the job with its reason")
        self.ended(closed.status)
        self.tell(f"{closed.status}: {kind}")

    async def _notice(self) -> None:
        try:
            await self._deliver(Purpose.NOTICE, "Tell the person that it failed", closes=False)
        except ActivityError:
            self.tell("the failure notice could not be sent")

    async def _deliver(self, purpose: Purpose, summary: str, *, closes: bool) -> None:
        step = DeliverStep(
            job_id=self._ref.job_id,
            step="deliver" if closes else "notice",
            purpose=purpose,
            closes=closes,
        )
        in_all = None if closes else policies.NOTICE
        terms = Terms(once=policies.DELIVERY, in_all=in_all, queue=self._ref.connector_queue)
        await self._regular(DeliveryActivities.deliver, step, terms, summary)

    async def _local(self, activity: Callable[..., Outcome], step: StepRef, summary: str) -> Outcome:
        result: Outcome = await workflow.execute_local_activity_method(
            activity,
            step,
            start_to_close_timeout=policies.LOCAL_STEP,
            retry_policy=policies.RETRY_AFTER_CRASH,
            local_retry_threshold=policies.LOCAL_RETRY_IN_HISTORY,
            summary=summary,
        )
        return result

    async def _optional(self, activity: Callable[..., Any], step: str, terms: Terms, summary: str) -> Any:
        """Run a step that the answer can do without: its failure is told and None returned; a stop is a stop."""
        try:
            return await self._regular(activity, StepRef(job_id=self._ref.job_id, step=step), terms, summary)
        except (ActivityError, Suspended) as error:
            if is_cancelled_exception(error) or _kind(error) in STOPPED:
                raise
            self.tell(f"{step} failed ({_kind(error)}): going on without it")
            return None

    def _model_calls(self, count: int) -> timedelta:
        return timedelta(seconds=self._ref.model_seconds) * policies.REQUESTS_PER_CALL * count + policies.SLACK

    async def _regular(self, activity: Callable[..., Any], step: StepRef, terms: Terms, summary: str) -> Any:
        """Run a step on a queue; raises ``Suspended`` when it says that it has to wait."""
        try:
            return await self._activity(activity, step, terms, summary)
        except ActivityError as error:
            if _kind(error) in SUSPENSIONS:
                raise Suspended(step.step) from None
            raise

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
        )

    def _publish(self) -> None:
        found = {**self._found, OUTCOME: str(self._status)}
        workflow.upsert_search_attributes([key.value_set(value) for key, value in found.items()])


async def _to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Do the work even if the workflow is cancelled meanwhile: a job must not stay open because two people ended it."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    task.result()


def _kind(error: BaseException) -> str:
    """Return the name of the class behind an activity's failure."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        return cause.type or "ApplicationError"
    return type(cause).__name__


def _activity(error: BaseException) -> str:
    return error.activity_type if isinstance(error, ActivityError) else ""


def _cost(call: "ModelOutcome") -> str:
    return "" if call.cost_usd is None else f", {call.cost_usd:.6f} USD"

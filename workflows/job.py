"""The workflow of a message, and the run that every kind of job shares: prompt, model, answer, delivery, failure."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.closing import ClosingActivities, WaitingActivities
    from activities.compaction import CompactionActivities
    from activities.context import ContextActivities
    from activities.conversations import ConversationActivities, TagActivities
    from activities.delivery import DeliveryActivities
    from activities.groups import AnsweringActivities, PreparationActivities
    from activities.llm import LLMActivities
    from activities.media import MediaActivities, VoiceActivities
    from activities.routing import RoutingActivities, TypingActivities
    from activities.tools import ToolActivities
    from activities.what_if import WhatIfActivities
    from maestro.domain.deliveries import Purpose
    from maestro.domain.jobs.flow import (
        AnswerStep,
        Asking,
        AskingOutcome,
        CloseOutcome,
        CloseStep,
        DeliverStep,
        ModelOutcome,
        ModelStep,
        ParkOutcome,
        ParkStep,
        Preparation,
        PreparationOutcome,
        ToolOutcome,
        ToolStep,
    )
    from maestro.domain.jobs.job import JobRef, JobStatus, StepRef
    from maestro.domain.precedence import Precedence
    from workflows import steps
    from workflows.steps import (
        QueuedSteps,
        RunDetails,
        StepOptions,
        Suspended,
        begin_tasks,
        describe_result,
        failed_step,
        kind_of,
        model_loop,
        run_local_step,
    )


Outcome = TypeVar("Outcome")

PREPARATION: Mapping[str, tuple[Callable[..., Any], str]] = {
    "route": (RoutingActivities.choose_agent, "Who answers?"),
    "conversation": (ConversationActivities.record_message, "Record the user's message"),
    "context": (ContextActivities.build_context, "Build the prompt"),
}
"""The steps before the model's, in their order, with what they do."""

STOPPED = frozenset({"Stopped", "JobEnded"})


class JobRun:
    """One run of one job: its steps under their names, what people see of it, and how it ends."""

    def __init__(self, ref: JobRef) -> None:
        self._ref = ref
        self._status = JobStatus.RUNNING
        self._queued = QueuedSteps(ref)
        self._story = RunDetails()
        self._silent = False
        self._prepared: dict[str, Any] = {}
        self._answered: AskingOutcome | None = None
        self._shows = False

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
        # A fault in this very code must not end a message silently (docs/invariants.md: no silent end).
        except (Exception, asyncio.CancelledError) as error:
            await _to_completion(self._fail(error))
            self._story.publish(str(self._status))
            if self._status is JobStatus.FAILED:
                raise ApplicationError("The job failed.", type=kind_of(error), non_retryable=True) from None
            if is_cancelled_exception(error):
                raise
            return self._status
        self._story.publish(str(self._status))
        return self._status

    async def fetch_files(self) -> bool:
        """Fetch what came with the message, and say whether there are voices nobody has heard.

        What cannot be had is named to the model as missing.
        """
        terms = self._queued.connector_terms(steps.MEDIA_TIMEOUT)
        fetched = await self._optional(MediaActivities.fetch_media, "media", terms, "Fetch the files of the message")
        return fetched is not None and fetched.voices > 0

    async def transcribe(self) -> None:
        """Turn voices into text; without a transcript the model hears that there was one."""
        terms = StepOptions(once=steps.VOICE_TIMEOUT, in_all=steps.VOICE_TIMEOUT, queue=self._ref.llm_queue)
        await self._optional(VoiceActivities.transcribe, "voice", terms, "Transcribe the voice messages")

    async def compact(self) -> None:
        """Make the conversation shorter; what fails is put off until the next message.

        See docs/decisions.md: compaction.
        """
        await self._optional(
            CompactionActivities.compact_conversation,
            "compaction",
            self._queued.model_terms(2, steps.COMPACTION_TIMEOUT),
            "Compact the conversation",
        )

    async def prepare(self, step: str) -> Any:
        """Return what a step before the model's returned; those after it are done too where nothing comes between."""
        if step not in self._prepared:
            await (self._prepare_group(step) if self._ref.grouped else self._prepare_one(step))
        return self._prepared[step]

    async def _prepare_group(self, step: str) -> None:
        group = Preparation(job_id=self._ref.job_id, step=step, asks=not self._ref.llm_queue)
        prepared: PreparationOutcome = await run_local_step(PreparationActivities.prepare, group, _summary_from(step))
        done = [(name, result) for name, result in prepared if name in PREPARATION and result is not None]
        for (name, result), took in zip(done, prepared.milliseconds, strict=True):
            self._prepared[name] = result
            self.tell(f"{name}: {describe_result(result)} ({took} ms)")

    async def _prepare_one(self, step: str) -> None:
        activity, summary = PREPARATION[step]
        self._prepared[step] = await self.local(activity, step, summary)
        self.tell(f"{step}: {describe_result(self._prepared[step])}")

    async def answer(self) -> None:
        """Build the context, ask the model, record the answer, deliver it; then the tasks it gives to others begin."""
        number = await self._final_call()
        done = self._answered
        if done is not None and done.recorded is not None:
            answer = done.recorded
        else:
            step = AnswerStep(job_id=self._ref.job_id, step="tags", number=number)
            answer = await run_local_step(TagActivities.record_answer, step, "Act on the answer and record it")
        if not (answer.heard or answer.silent or (done is not None and done.delivered is not None)):
            await self.post()
        self.ended(JobStatus.COMPLETED)
        await begin_tasks(self._ref, answer, self._queued.precedence)

    async def show(self) -> None:
        """Build the context, ask the model, and keep what it would answer."""
        self._shows = True
        step = AnswerStep(job_id=self._ref.job_id, step="show", number=await self._final_call())
        await run_local_step(WhatIfActivities.show_answer, step, "Show the answer")
        self.ended(JobStatus.COMPLETED)

    async def _final_call(self) -> int:
        """Return the number of the model call whose answer is final."""
        await self.prepare("context")
        return await model_loop(self, self._ref.tool_rounds)

    async def ask_model(self, number: int, *, final: bool) -> ModelOutcome:
        """Make one model call; raises ``Suspended`` when every account has to be left alone for a while."""
        step, summary = f"model-{number}", f"Ask the model, call {number}"
        if self._ref.grouped and not self._shows:
            return await self._ask_and_send(
                Asking(job_id=self._ref.job_id, step=step, number=number, final=final), summary
            )
        asked = ModelStep(job_id=self._ref.job_id, step=step, number=number, final=final)
        call: ModelOutcome = await self._queued.do(LLMActivities.call_model, asked, self._queued.model_terms(), summary)
        self.tell(f"{step}: {describe_result(call)}")
        return call

    async def _ask_and_send(self, step: Asking, summary: str) -> ModelOutcome:
        terms = self._queued.answer_terms()
        done: AskingOutcome
        try:
            done = await self._queued.do(
                AnsweringActivities.answer, step, terms, f"{summary}; record and send its answer"
            )
        except (Suspended, ActivityError) as error:
            if "deliver" in (failed_step(error), *getattr(error, "steps", ())):
                self.tell(f"{step.step}: done")
                self.tell("tags: done")
            raise
        self._answered = done
        steps = ((step.step, done.model), ("tags", done.recorded), ("deliver", done.delivered))
        finished = [(name, result) for name, result in steps if result is not None]
        for (name, result), took in zip(finished, done.milliseconds, strict=True):
            self.tell(f"{name}: {describe_result(result)} ({took} ms)")
        return done.model

    async def call_tool(self, number: int, place: int, name: str) -> None:
        """Make one tool call; raises ``Suspended`` when it waits for a person."""
        done: ToolOutcome = await self._queued.do(
            ToolActivities.call_tool,
            ToolStep(job_id=self._ref.job_id, step=f"tool-{number}-{place}", number=number, place=place),
            self._queued.tool_terms(),
            f"Call the tool {name}",
        )
        self.tell(f"tool-{number}-{place}: {name}: {done.state}")

    async def outside(self, activity: Callable[..., Any], step: str, summary: str) -> Any:
        """Run a step that asks somebody outside, where models are asked too."""
        ref = StepRef(job_id=self._ref.job_id, step=step)
        return await self._queued.do(activity, ref, self._queued.tool_terms(), summary)

    async def post(self) -> None:
        """Send what the job has to say, which closes it."""
        await self._deliver(Purpose.ANSWER, "Send the answer", closes=True)

    def goes_as(self, precedence: Precedence | None) -> None:
        """Have the steps from here on done as soon as this says: it is known now whose work it is.

        See docs/decisions.md: priorities.
        """
        self._queued.precedence = precedence

    def tell_nobody(self) -> None:
        """Send no notice when the job fails: nobody waits for it, or the agent that hears the result will tell."""
        self._silent = True

    async def reply(self) -> None:
        """Send what Maestro itself has to say, such as the answer to a control word."""
        await self._deliver(Purpose.NOTICE, "Reply to a control word", closes=True)
        self.ended(JobStatus.COMPLETED)

    async def local(self, activity: Callable[..., Outcome], step: str, summary: str) -> Outcome:
        """Run a cheap step inside the workflow task."""
        return await run_local_step(activity, StepRef(job_id=self._ref.job_id, step=step), summary)

    def show_typing(self) -> None:
        """Have the process that holds the connector show the indicator; nobody waits for it."""
        workflow.start_activity_method(
            TypingActivities.show_typing,
            StepRef(job_id=self._ref.job_id, step="typing"),
            task_queue=self._ref.connector_queue or None,
            schedule_to_close_timeout=steps.DEADLINE_SLACK,
            retry_policy=steps.RETRY_AFTER_CRASH,
            summary="Show the typing indicator",
            priority=self._queued.priority,
        )

    def tell(self, line: str = "", *, agent: str = "", conversation: int = 0) -> None:
        """Let people see this of the run."""
        self._story.tell(line, agent=agent, conversation=conversation)

    def ended(self, status: JobStatus) -> None:
        """Note how the job ended; its row says the same already."""
        self._status = status

    async def _park(self, steps: tuple[str, ...]) -> None:
        step = ParkStep(job_id=self._ref.job_id, step=f"park-{self._ref.run}", steps=steps)
        parked: ParkOutcome = await run_local_step(WaitingActivities.park_job, step, "Give the place back and wait")
        self.ended(parked.status)
        self.tell(f"{parked.status}: {', '.join(steps)}")

    async def _fail(self, error: BaseException) -> None:
        kind = kind_of(error)
        stopped = is_cancelled_exception(error) or kind in STOPPED
        if not stopped and not self._silent and _failed_in(error) != "deliver":
            await self._notice()
        step = CloseStep(
            job_id=self._ref.job_id,
            step=f"close-{self._ref.run}",
            run=self._ref.run,
            status=JobStatus.CANCELLED if stopped else JobStatus.FAILED,
            error="" if stopped else kind,
        )
        closed: CloseOutcome = await run_local_step(ClosingActivities.close_job, step, "Close the job with its reason")
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
        in_all = None if closes else steps.NOTICE_TIMEOUT
        terms = self._queued.connector_terms(steps.DELIVERY_TIMEOUT, in_all)
        await self._queued.do(DeliveryActivities.deliver, step, terms, summary)

    async def _optional(self, activity: Callable[..., Any], step: str, terms: StepOptions, summary: str) -> Any:
        """Run a step that the answer can do without: its failure is told and None returned; a stop is a stop."""
        try:
            return await self._queued.do(activity, StepRef(job_id=self._ref.job_id, step=step), terms, summary)
        except (ActivityError, Suspended) as error:
            if is_cancelled_exception(error) or kind_of(error) in STOPPED:
                raise
            self.tell(f"{step} failed ({kind_of(error)}): going on without it")
            return None


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


def _failed_in(error: BaseException) -> str:
    """Return the step that failed; histories of earlier releases name the activity alone."""
    return failed_step(error) or (error.activity_type if isinstance(error, ActivityError) else "")


def _summary_from(step: str) -> str:
    """Return what the group of steps from this one on does, for people."""
    names = list(PREPARATION)
    return "; ".join(summary for _, summary in list(PREPARATION.values())[names.index(step) :])

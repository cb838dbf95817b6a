"""The workflows, one for each kind of job, and the class ``JobRun``, which does the steps of a job for all of them."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.closing import ClosingActivities
    from activities.compaction import CompactionActivities
    from activities.context import ContextActivities
    from activities.conversations import ConversationActivities, PreparationActivities, TagActivities, WhatIfActivities
    from activities.delivery import DeliveryActivities
    from activities.media import MediaActivities, VoiceActivities
    from activities.model_calls import AnsweringActivities, LLMActivities
    from activities.routing import RoutingActivities, TypingActivities
    from activities.schedules import ScheduleActivities, ScriptActivities
    from activities.tools import ToolActivities
    from maestro.domain.deliveries import DeliveryPurpose
    from maestro.domain.jobs.flow import (
        AnswerStep,
        AskGroup,
        AskGroupOutcome,
        BackgroundOutcome,
        CloseStep,
        ConversationOutcome,
        DeliverStep,
        ModelStep,
        ParkStep,
        Preparation,
        PreparationOutcome,
        RouteAction,
        RouteOutcome,
        TakeUpOutcome,
        ToolStep,
    )
    from maestro.domain.jobs.job import JobRef, JobStatus, StepRef
    from maestro.domain.jobs.steps import (
        OPTIONAL,
        PREPARATION,
        StepKind,
        StepPath,
        background_steps,
        list_what_if_steps,
        message_steps,
        step_kind,
        step_numbers,
        step_purpose,
        task_steps,
    )
    from maestro.domain.schedules.schedule import RunAdmission, ScheduledRun
    from workflows import steps
    from workflows.steps import (
        QueuedSteps,
        RunDetails,
        StepOptions,
        Suspended,
        error_type,
        failed_step,
        finish_despite_cancel,
        run_local_step,
        start_delegated_tasks,
    )

PLANNED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")

Activity = Callable[..., Any]

LOCAL_STEPS: Mapping[StepKind | None, Activity] = {
    StepKind.ROUTE: RoutingActivities.choose_agent,
    StepKind.CONVERSATION: ConversationActivities.record_message,
    StepKind.CONTEXT: ContextActivities.build_context,
}
"""The local activities of the steps before the model call, for workflows that do each step by itself."""

STEPS_OF_ANSWER: Mapping[StepKind | None, Activity] = {
    StepKind.TAGS: TagActivities.record_answer,
    StepKind.SHOW: WhatIfActivities.show_answer,
}
"""The activities of the steps that follow the model's final answer."""

STOPPED = frozenset({"Stopped", "JobEnded"})


@workflow.defn(name="MessageWorkflow")
class MessageWorkflow:
    """Answers one message; the workflow's id is the job's id."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Do the job, and return the job's final status."""
        return await JobRun(ref).follow_path(message_steps)


@workflow.defn(name="DelegationWorkflow")
class DelegationWorkflow:
    """Does one task that an agent gave to another agent; may outlive the workflow that started it.

    See docs/decisions.md: delegation.
    """

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Do the task, and return the job's final status."""
        return await JobRun(ref, RoutingActivities.take_up).follow_path(task_steps)


@workflow.defn(name="BackgroundWorkflow")
class BackgroundWorkflow:
    """Does a stored job of a webhook, or a schedule's run that the dispatcher starts instead of Temporal."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Do the job, and return its final status; a failure is not reported to the channel, because no user waits."""
        return await _run_in_background(ref)


@workflow.defn(name="ScheduledWorkflow")
class ScheduledWorkflow:
    """Does one planned run of a schedule, started by Temporal; the workflow's id becomes the id of the run's job.

    While the workflow runs, Temporal skips the schedule's further runs.
    """

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Do the run; return the job's final status, or why no job was added."""
        own = ref.model_copy(update={"job_id": workflow.info().workflow_id})
        firing = ScheduledRun(
            job_id=own.job_id,
            schedule=ref.schedule,
            # A run that an operator started by hand has no planned time.
            slot=workflow.info().typed_search_attributes.get(PLANNED_FOR) or workflow.info().start_time,
        )
        entered: RunAdmission = await run_local_step(ScheduleActivities.enter, firing, StepKind.ENTER.purpose)
        if entered.begun:
            return await _run_in_background(own)
        details = RunDetails()
        details.add_line(entered.reason)
        details.publish_outcome("skipped")
        return entered.reason


@workflow.defn(name="WhatIfWorkflow")
class WhatIfWorkflow:
    """Shows how a job would be answered, with a paid model call and without any effect.

    See docs/decisions.md: what-if.
    """

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Do the what-if, and return its final status; a failure is not reported, because no user waits."""
        return await JobRun(ref, WhatIfActivities.choose_for_show, silent=True).follow_path(list_what_if_steps)


async def _run_in_background(ref: JobRef) -> str:
    return await JobRun(ref, ScheduleActivities.take_on, silent=True).follow_path(background_steps)


class JobRun:
    """One run of one job.

    ``begin`` does the first step of a job without a message. A ``silent`` run sends no notice of its failure, because
    no user waits for an answer.
    """

    def __init__(self, ref: JobRef, begin: Activity | None = None, *, silent: bool = False) -> None:
        self._ref = ref
        self._begin = begin
        self._silent = silent
        self._status = JobStatus.RUNNING
        self._queued = QueuedSteps(ref)
        self._details = RunDetails()
        self._results: dict[str, Any] = {}

    async def follow_path(self, path: StepPath) -> str:
        """Do the steps of ``path`` in order and return the job's status; after an error, close the job with its reason.

        A job that has to wait is parked, which ends this run. The workflow of a failed job fails, so that operators
        find it among the failed workflows in the Temporal Web UI.
        """
        try:
            try:
                await self._do_steps(path)
            except Suspended as waiting:
                await finish_despite_cancel(self._park_job(waiting.steps))
        # A bug in workflow code must not end a job without a reason (docs/invariants.md: no silent end).
        except (Exception, asyncio.CancelledError) as error:
            await finish_despite_cancel(self._close_after_error(error))
            self._details.publish_outcome(str(self._status))
            if self._status is JobStatus.FAILED:
                raise ApplicationError("The job failed.", type=error_type(error), non_retryable=True) from None
            if is_cancelled_exception(error):
                raise
            return self._status
        self._details.publish_outcome(str(self._status))
        return self._status

    async def _do_steps(self, path: StepPath) -> None:
        for group in path(self._results.get):
            await self._do_concurrently([step for step in group if step not in self._results])
        route = self._results.get(StepKind.ROUTE)
        self._status = JobStatus.DROPPED if route and route.action is RouteAction.DROP else JobStatus.COMPLETED
        answer = self._results.get(StepKind.TAGS)
        if answer is not None and answer.begun:
            await start_delegated_tasks(self._ref, answer, self._queued.precedence)

    async def _do_concurrently(self, names: list[str]) -> None:
        """Do these steps concurrently; if some have to wait, raise ``Suspended`` after all have ended."""
        if len(names) == 1:
            return await self._do_step(names[0])
        waiting: list[str] = []
        for problem in filter(None, await asyncio.gather(*map(self._do_step, names), return_exceptions=True)):
            if not isinstance(problem, Suspended):
                raise problem
            waiting += problem.steps
        if waiting:
            raise Suspended(*waiting)
        return None

    async def _do_step(self, step: str) -> None:
        """Do a step, and store its result; if its activity also did further steps, store their results as well."""
        kind = step_kind(step)
        if kind is StepKind.MODEL:
            await self._ask_model(step)
        elif kind in OPTIONAL:
            await self._do_optional_step(step)
        elif kind in PREPARATION and not (kind is StepKind.ROUTE and self._begin) and self._ref.grouped:
            # The activity also does the following preparation steps, up to the first that needs another activity.
            group = Preparation(job_id=self._ref.job_id, step=step, asks=not self._ref.llm_queue)
            purposes = [kind.purpose for kind in itertools.dropwhile(lambda kind: kind != step, PREPARATION)]
            prepared: PreparationOutcome = await run_local_step(
                PreparationActivities.prepare, group, "; ".join(purposes)
            )
            self._store_results({name: getattr(prepared, name) for name in PREPARATION}, prepared.milliseconds)
        else:
            self._store_result(step, await self._run_own_activity(step))

    async def _run_own_activity(self, step: str) -> Any:
        kind = step_kind(step)
        is_first = kind in (StepKind.ROUTE, StepKind.TAKE_UP)
        local = self._begin if is_first and self._begin is not None else LOCAL_STEPS.get(kind)
        if local is not None:
            return await run_local_step(local, self._step_ref(step), step_purpose(step))
        if kind in STEPS_OF_ANSWER:
            last_call = max(step_numbers(name)[0] for name in self._results if step_kind(name) is StepKind.MODEL)
            answer = AnswerStep(job_id=self._ref.job_id, step=step, number=last_call)
            return await run_local_step(STEPS_OF_ANSWER[kind], answer, step_purpose(step))
        if kind is StepKind.TOOL:
            number, place = step_numbers(step)
            name = self._results[StepKind.MODEL.numbered_step(number)].tools[place]
            call = ToolStep(job_id=self._ref.job_id, step=step, number=number, place=place)
            return await self._queued.run_step(
                ToolActivities.call_tool, call, self._queued.tool_options(), f"Call the tool {name}"
            )
        if kind is StepKind.SCRIPT:
            options = self._queued.tool_options()
            return await self._queued.run_step(
                ScriptActivities.run_script, self._step_ref(step), options, step_purpose(step)
            )
        return await self._deliver_message(step)

    def _store_result(self, step: str, outcome: Any, milliseconds: int | None = None) -> None:
        """Store a step's result in this run, show it in the Temporal Web UI, and update the run's state from it."""
        self._results[step] = outcome
        duration = "" if milliseconds is None else f" ({milliseconds} ms)"
        self._details.add_line(f"{step}: {outcome.words or 'done'}{duration}")
        if isinstance(outcome, RouteOutcome | TakeUpOutcome | BackgroundOutcome):
            self._queued.precedence, self._details.agent = outcome.precedence, outcome.agent
        if isinstance(outcome, TakeUpOutcome | ConversationOutcome):
            self._details.conversation = outcome.conversation_id
        match outcome:
            case RouteOutcome(action=RouteAction.ANSWER, typing=False) if self._begin is None:
                self._show_typing()
            case TakeUpOutcome():
                self._silent = outcome.heard or not outcome.asked
                if outcome.asked and not outcome.typing:
                    self._show_typing()

    async def _ask_model(self, step: str) -> None:
        """Call the model; the same activity records and sends the answer if no other step comes first."""
        (number,) = step_numbers(step)
        final = number > self._ref.tool_rounds
        if not self._ref.grouped or self._begin is WhatIfActivities.choose_for_show:
            model_step = ModelStep(job_id=self._ref.job_id, step=step, number=number, final=final)
            options = self._queued.model_options()
            call = await self._queued.run_step(LLMActivities.call_model, model_step, options, step_purpose(step))
            return self._store_result(step, call)
        group = AskGroup(job_id=self._ref.job_id, step=step, number=number, final=final)
        summary = f"{step_purpose(step)}; record and send its answer"
        options = self._queued.model_options(sends=True)
        done: AskGroupOutcome
        try:
            done = await self._queued.run_step(AnsweringActivities.answer, group, options, summary)
        except (Suspended, ActivityError) as error:
            if StepKind.DELIVER in (failed_step(error), *getattr(error, "steps", ())):
                self._details.add_line(f"{step}: done")
                self._details.add_line(f"{StepKind.TAGS}: done")
            raise
        outcomes = {step: done.model, StepKind.TAGS: done.recorded, StepKind.DELIVER: done.delivered}
        return self._store_results(outcomes, done.milliseconds)

    def _store_results(self, outcomes: Mapping[str, Any], milliseconds: tuple[int, ...]) -> None:
        """Store the results of several steps; a step that was not reached has the result None."""
        reached = [(name, outcome) for name, outcome in outcomes.items() if outcome is not None]
        for (name, outcome), duration in zip(reached, milliseconds, strict=True):
            self._store_result(name, outcome, duration)

    async def _do_optional_step(self, step: str) -> None:
        """Do a step without which an answer is possible: a failure is only reported, but a stop ends the run.

        After a failure, the prompt mentions the missing file, or the voice message without a transcript.
        """
        queue, connector_queue = self._ref.llm_queue, self._ref.connector_queue
        work: Mapping[str, tuple[Activity, StepOptions]] = {
            StepKind.MEDIA: (MediaActivities.fetch_media, StepOptions(steps.MEDIA_TIMEOUT, queue=connector_queue)),
            StepKind.VOICE: (VoiceActivities.transcribe, StepOptions(steps.VOICE_TIMEOUT, steps.VOICE_TIMEOUT, queue)),
            StepKind.COMPACTION: (  # A compaction makes two model calls.
                CompactionActivities.compact_conversation,
                StepOptions(self._queued.model_timeout * 2 + steps.DEADLINE_SLACK, steps.COMPACTION_TIMEOUT, queue),
            ),
        }
        activity, options = work[step]
        try:
            self._store_result(
                step, await self._queued.run_step(activity, self._step_ref(step), options, step_purpose(step))
            )
        except (ActivityError, Suspended) as error:
            if is_cancelled_exception(error) or error_type(error) in STOPPED:
                raise
            self._details.add_line(f"{step} failed ({error_type(error)}): the job continues without this step")

    async def _deliver_message(self, step: str) -> Any:
        """Send the job's answer, which closes the job; for the step ``NOTICE``, send the notice of its failure."""
        closes = step != StepKind.NOTICE
        route = self._results.get(StepKind.ROUTE)
        is_reply = route is not None and route.action is RouteAction.REPLY
        purpose = DeliveryPurpose.ANSWER if closes and not is_reply else DeliveryPurpose.NOTICE
        message = DeliverStep(job_id=self._ref.job_id, step=step, purpose=purpose, closes=closes)
        total_timeout = None if closes else steps.NOTICE_TIMEOUT
        options = StepOptions(steps.DELIVERY_TIMEOUT, total_timeout, self._ref.connector_queue)
        return await self._queued.run_step(DeliveryActivities.deliver, message, options, step_purpose(step))

    def _show_typing(self) -> None:
        """Start the typing indicator in the process with the connector; the run does not wait for that."""
        workflow.start_activity_method(
            TypingActivities.show_typing,
            self._step_ref(StepKind.TYPING),
            task_queue=self._ref.connector_queue or None,
            schedule_to_close_timeout=steps.DEADLINE_SLACK,
            retry_policy=steps.RETRY_AFTER_CRASH,
            summary=StepKind.TYPING.purpose,
            priority=self._queued.temporal_priority,
        )

    def _step_ref(self, step: str) -> StepRef:
        return StepRef(job_id=self._ref.job_id, step=step)

    async def _park_job(self, waiting: tuple[str, ...]) -> None:
        step = StepKind.PARK.numbered_step(self._ref.run)
        park = ParkStep(job_id=self._ref.job_id, step=step, steps=waiting)
        parked = await run_local_step(ClosingActivities.park_job, park, step_purpose(step))
        self._status = parked.status
        self._details.add_line(f"{parked.status}: {', '.join(waiting)}")

    async def _close_after_error(self, error: BaseException) -> None:
        error_name = error_type(error)
        stopped = is_cancelled_exception(error) or error_name in STOPPED
        if not stopped and not self._silent and failed_step(error) != StepKind.DELIVER:
            try:
                await self._deliver_message(StepKind.NOTICE)
            except ActivityError:
                self._details.add_line("the failure notice could not be sent")
        step = CloseStep(
            job_id=self._ref.job_id,
            step=StepKind.CLOSE.numbered_step(self._ref.run),
            run=self._ref.run,
            status=JobStatus.CANCELLED if stopped else JobStatus.FAILED,
            error="" if stopped else error_name,
        )
        closed = await run_local_step(ClosingActivities.close_job, step, StepKind.CLOSE.purpose)
        self._status = closed.status
        self._details.add_line(f"{closed.status}: {error_name}")

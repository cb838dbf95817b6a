"""The flows of work that no person began: a webhook's job, and each time of a heartbeat or a cron."""

from datetime import datetime

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from activities.schedules import ScheduleActivities, ScriptActivities
    from maestro.domain.jobs.flow import BackgroundOutcome, ScriptOutcome
    from maestro.domain.jobs.job import JobRef, JobStatus
    from maestro.domain.schedules.firing import Entered, Firing
    from workflows import steps
    from workflows.job import JobRun
    from workflows.steps import RunDetails


PLANNED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")

SKIPPED = "skipped"
"""The outcome of a run that made no job."""


@workflow.defn(name="BackgroundWorkflow")
class BackgroundWorkflow:
    """Does one job that has a row already: a webhook's, and every other run of a schedule than its planned one."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        return await in_background(ref)


async def in_background(ref: JobRef) -> str:
    """Do the job and return how it ended; nobody waits, so nobody is told of a failure in the channel."""
    job = JobRun(ref)
    job.tell_nobody()
    return await job.to_its_end(_answer(job))


async def _answer(job: JobRun) -> None:
    begun: BackgroundOutcome = await job.local(ScheduleActivities.take_on, "take-up", "Who works on it?")
    job.goes_as(begun.precedence)
    job.tell("works in the background", agent=begun.agent)
    if not begun.script:
        await job.answer()
        return
    done: ScriptOutcome = await job.outside(ScriptActivities.run_script, "script", "Fetch and fill in")
    job.tell(f"asks a model: {done.asks}" if done.asks else "")
    if done.posts:
        await job.post()
    job.ended(JobStatus.COMPLETED)


@workflow.defn(name="ScheduledWorkflow")
class ScheduledWorkflow:
    """One time of one schedule; its id is that of the job it makes. While it runs, Temporal skips the next times."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended, or that there was none."""
        own = ref.model_copy(update={"job_id": workflow.info().workflow_id})
        entered: Entered = await workflow.execute_local_activity_method(
            ScheduleActivities.enter,
            Firing(job_id=own.job_id, schedule=ref.schedule, slot=_slot()),
            start_to_close_timeout=steps.LOCAL_STEP_TIMEOUT,
            retry_policy=steps.RETRY_AFTER_CRASH,
            local_retry_threshold=steps.LOCAL_RETRY_IN_HISTORY,
            summary="Is it time?",
        )
        if entered.begun:
            return await in_background(own)
        story = RunDetails()
        story.tell(entered.reason)
        story.publish(SKIPPED)
        return entered.reason


def _slot() -> datetime:
    """Return the time that was planned; somebody may also have started the workflow by hand."""
    return workflow.info().typed_search_attributes.get(PLANNED_FOR) or workflow.info().start_time

"""Where Temporal begins a run of a schedule: the time that has come becomes a job, or is told why not."""

from datetime import datetime

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from activities.schedules import ScheduleActivities
    from maestro.domain.jobs.job import JobRef
    from maestro.domain.schedules.firing import Entered, Firing
    from workflows import steps
    from workflows.background import in_background
    from workflows.steps import Story

PLANNED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")

SKIPPED = "skipped"
"""The outcome of a run that made no job."""


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
        story = Story()
        story.tell(entered.reason)
        story.publish(SKIPPED)
        return entered.reason


def _slot() -> datetime:
    """Return the time that was planned; somebody may also have started the workflow by hand."""
    return workflow.info().typed_search_attributes.get(PLANNED_FOR) or workflow.info().start_time

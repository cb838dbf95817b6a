"""The flow of work that no person began: a heartbeat, a cron, a webhook."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.schedules import ScheduleActivities
    from activities.scripts import ScriptActivities
    from maestro.domain.jobs.flow import BackgroundOutcome, ScriptOutcome
    from maestro.domain.jobs.job import JobRef, JobStatus
    from workflows.job import JobRun


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

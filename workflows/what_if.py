"""The flow of a what-if: an answer that is paid for and shown, and nothing else (docs/decisions.md: what-if)."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.what_if import WhatIfActivities
    from maestro.domain.jobs.flow import RouteAction, RouteOutcome
    from maestro.domain.jobs.job import JobRef, JobStatus
    from workflows.job import JobRun


@workflow.defn(name="WhatIfWorkflow")
class WhatIfWorkflow:
    """Finds out once what a job would answer; its id is that of a job of its own."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended; nobody waits, so nobody is told of a failure in the channel."""
        job = JobRun(ref)
        job.tell_nobody()
        return await job.to_its_end(self._show(job))

    async def _show(self, job: JobRun) -> None:
        route: RouteOutcome = await job.local(WhatIfActivities.choose_for_show, "route", "Who would answer?")
        job.goes_as(route.precedence)
        job.tell(f"what if: {route.action}: {route.reason}", agent=route.agent)
        if route.action is RouteAction.DROP:
            job.ended(JobStatus.DROPPED)
            return
        await job.show()

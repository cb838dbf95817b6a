"""The flow of a task that one agent gave to another, and of what the first one says to the result.

See docs/decisions.md: delegation.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.delegation import DelegationActivities
    from maestro.domain.jobs.flow import TakenUp
    from maestro.domain.jobs.job import JobRef
    from workflows.job import JobRun


@workflow.defn(name="DelegationWorkflow")
class DelegationWorkflow:
    """Does one task once; its id is the job's. It outlives the workflow that began it."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        job = JobRun(ref)
        return await job.to_its_end(self._answer(job))

    async def _answer(self, job: JobRun) -> None:
        task: TakenUp = await job.local(DelegationActivities.take_up, "take-up", "Who works on it?")
        job.goes_as(task.precedence)
        job.tell("works on a task", agent=task.agent, conversation=task.conversation_id)
        if task.heard or not task.asked:
            job.tell_nobody()
        if task.asked and not task.typing:
            job.show_typing()
        await job.answer()

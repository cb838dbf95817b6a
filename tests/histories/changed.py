"""A message's flow with one step more: what a careless change to the workflow looks like."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs import JobRef
    from workflows.message import MessageWorkflow


@workflow.defn(name="MessageWorkflow")
class ChangedWorkflow:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await MessageWorkflow().run(ref)

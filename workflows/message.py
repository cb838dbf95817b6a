"""The flow of a message: routed, recorded, answered."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import ConversationOutcome, RouteAction, RouteOutcome
    from maestro.domain.jobs.job import JobRef, JobStatus
    from workflows.job import JobRun


@workflow.defn(name="MessageWorkflow")
class MessageWorkflow:
    """Answers one message once; its id is the job's."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        job = JobRun(ref)
        return await job.to_its_end(self._answer(job))

    async def _answer(self, job: JobRun) -> None:
        route: RouteOutcome = await job.prepare("route")
        job.goes_as(route.precedence)
        job.tell(agent=route.agent)
        if route.action is RouteAction.DROP:
            job.ended(JobStatus.DROPPED)
            return
        if route.action is RouteAction.REPLY:
            await job.reply()
            return
        if not route.typing:
            job.show_typing()
        if route.media and await job.fetch_files():
            await job.transcribe()
        recorded: ConversationOutcome = await job.prepare("conversation")
        job.tell(conversation=recorded.conversation_id)
        if recorded.compaction_due:
            await job.compact()
        await job.answer()

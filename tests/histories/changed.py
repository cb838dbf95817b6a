"""Flows that do not fit: one with a step more, as after a careless change, and one with a fault."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.routing import RoutingActivities
    from maestro.domain.jobs.job import JobRef, StepRef
    from workflows.definitions import (
        BackgroundWorkflow,
        DelegationWorkflow,
        MessageWorkflow,
        ScheduledWorkflow,
        WhatIfWorkflow,
    )
    from workflows.steps import run_local_step


@workflow.defn(name="MessageWorkflow")
class ChangedWorkflow:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await MessageWorkflow().run(ref)


@workflow.defn(name="DelegationWorkflow")
class ChangedDelegation:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await DelegationWorkflow().run(ref)


@workflow.defn(name="ScheduledWorkflow")
class ChangedSchedule:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await ScheduledWorkflow().run(ref)


@workflow.defn(name="BackgroundWorkflow")
class ChangedBackground:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await BackgroundWorkflow().run(ref)


@workflow.defn(name="WhatIfWorkflow")
class ChangedWhatIf:
    """The real one, after a nap."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        await workflow.sleep(timedelta(seconds=1))
        return await WhatIfWorkflow().run(ref)


CHANGED = (ChangedWorkflow, ChangedDelegation, ChangedSchedule, ChangedBackground, ChangedWhatIf)


@workflow.defn(name="MessageWorkflow")
class BrokenWorkflow:
    """Begins, and fails by a fault in its own code."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Never return."""
        await run_local_step(RoutingActivities.choose_agent, StepRef(job_id=ref.job_id, step="route"), "Who answers?")
        raise RuntimeError("a fault in the flow")


@workflow.defn(name="MessageWorkflow")
class LongerWorkflow:
    """The real one, and a nap after it."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Return how the job ended."""
        status = await MessageWorkflow().run(ref)
        await workflow.sleep(timedelta(seconds=1))
        return status

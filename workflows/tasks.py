"""Begins the tasks that an answer gives to other agents, as children that outlive it (decision 13)."""

from temporalio import workflow
from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import AnswerOutcome
    from maestro.domain.jobs.job import JobKind, JobRef
    from workflows.story import CHANNEL, KIND, PLATFORM

WORKFLOW = "DelegationWorkflow"


async def begin_tasks(ref: JobRef, answer: AnswerOutcome) -> None:
    """Start a child for every task; one that the dispatcher was quicker to start is left to run."""
    for job_id in answer.begun:
        try:
            await workflow.start_child_workflow(
                WORKFLOW,
                ref.model_copy(update={"job_id": job_id, "run": 1}),
                id=job_id,
                parent_close_policy=ParentClosePolicy.ABANDON,
                task_timeout=workflow.info().task_timeout,
                static_summary="A task that an agent gave to another",
                search_attributes=_attributes(),
                priority=Priority(
                    priority_key=(answer.priority + 1) // 2, fairness_key=workflow.info().priority.fairness_key
                ),
            )
        except WorkflowAlreadyStartedError:
            continue


def _attributes() -> TypedSearchAttributes:
    """Return those of the workflow itself, with the kind of its children."""
    own = workflow.info().typed_search_attributes
    found = [(key, own.get(key)) for key in (PLATFORM, CHANNEL)]
    place = [SearchAttributePair(key, value) for key, value in found if value is not None]
    return TypedSearchAttributes([*place, SearchAttributePair(KIND, str(JobKind.DELEGATION))])

"""Begins the tasks that an answer gives to other agents, as children that outlive it.

See docs/decisions.md: delegation.
"""

from temporalio import workflow
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import AnswerOutcome
    from maestro.domain.jobs.job import JobKind, JobRef, job_details
    from maestro.domain.precedence import Precedence
    from workflows.precedence import temporal_priority
    from workflows.story import CHANNEL, KIND, PLATFORM

WORKFLOW = "DelegationWorkflow"


async def begin_tasks(ref: JobRef, answer: AnswerOutcome, of_answer: Precedence | None) -> None:
    """Start a child for every task; one that the dispatcher was quicker to start is left to run.

    Until a child knows better, it has its share where the answer had its own.
    """
    share = of_answer or Precedence(key=workflow.info().priority.fairness_key or "")
    precedence = share.model_copy(update={"priority": answer.priority})
    for job_id in answer.begun:
        try:
            await workflow.start_child_workflow(
                WORKFLOW,
                ref.model_copy(update={"job_id": job_id, "run": 1}),
                id=job_id,
                parent_close_policy=ParentClosePolicy.ABANDON,
                task_timeout=workflow.info().task_timeout,
                static_summary="A task that an agent gave to another",
                static_details=job_details(job_id, ref.dashboard),
                search_attributes=_attributes(),
                priority=temporal_priority(precedence, fair=ref.fair),
            )
        except WorkflowAlreadyStartedError:
            continue


def _attributes() -> TypedSearchAttributes:
    """Return those of the workflow itself, with the kind of its children."""
    own = workflow.info().typed_search_attributes
    found = [(key, own.get(key)) for key in (PLATFORM, CHANNEL)]
    place = [SearchAttributePair(key, value) for key, value in found if value is not None]
    return TypedSearchAttributes([*place, SearchAttributePair(KIND, str(JobKind.DELEGATION))])

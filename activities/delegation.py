"""Where a task that one agent gave to another begins: who works on it, and who hears the result.

See docs/decisions.md: delegation.
"""

from temporalio import activity

from activities.routing import Typing
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import NoAgent
from maestro.domain.jobs.flow import TakenUp
from maestro.domain.jobs.job import StepRef
from maestro.store.store import Store


class DelegationActivities:
    """Begins the work on tasks."""

    def __init__(self, store: Store, typing: Typing) -> None:
        self._store = store
        self._typing = typing

    @activity.defn(no_thread_cancel_exception=True)
    def take_up(self, ref: StepRef) -> TakenUp:
        """Return who works on the task; raises ``NoAgent`` when the agent was paused meanwhile."""
        with self._store.begin() as tx:
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            if agent.status is not AgentStatus.ACTIVE:
                raise NoAgent(f"the agent {agent.slug} is {agent.status}; make it active, and resume the job")
            asked = job.inbox_id is not None
            return tx.steps.done(
                ref,
                TakenUp(
                    agent=agent.slug,
                    conversation_id=job.conversation_id or 0,
                    heard=tx.delegations.answers_to(job) is not None,
                    typing=asked and self._typing.start(job.id, job.address),
                    asked=asked,
                    precedence=tx.jobs.precedence_of(job),
                ),
            )

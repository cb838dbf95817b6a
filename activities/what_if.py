"""What-ifs: show how a job would be answered now, with a paid model call but no message and no effect of tags.

See docs/decisions.md: what-if.
"""

from collections.abc import Callable

from temporalio import activity

from activities.conversations import final_answer
from activities.routing import AnswerRules, choose_answerer, require_active
from maestro.domain.agents.agent import payer_of
from maestro.domain.jobs.delegations import without_silent_lines
from maestro.domain.jobs.flow import AnswerStep, RouteAction, RouteOutcome, WhatIfOutcome
from maestro.domain.jobs.job import CHOSEN, Job, JobEnding, JobKind, JobStatus, StepRef, edits_of, is_background
from maestro.store.store import Store
from maestro.store.transaction import Transaction

GIVEN = "the agent was named when the job was created"
"""The routing reason of a task or a schedule's run, which named its agent when it was created."""


class WhatIfActivities:
    """The first and the last step of a what-if."""

    def __init__(self, store: Store, rules: Callable[[], AnswerRules]) -> None:
        self._store = store
        self._rules = rules

    @activity.defn(no_thread_cancel_exception=True)
    def choose_for_show(self, ref: StepRef) -> RouteOutcome:
        """Return the agent that would answer the job; without one, the what-if is closed as dropped."""
        with self._store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            outcome = self._route_message(tx, job) if job.kind is JobKind.MESSAGE else _route_to_named_agent(tx, job)
            if outcome.action is RouteAction.DROP:
                tx.jobs.close(job.id, JobEnding(status=JobStatus.DROPPED, reason=outcome.reason))
            return tx.jobs.steps.done(ref, outcome)

    def _route_message(self, tx: Transaction, job: Job) -> RouteOutcome:
        message = tx.inbox.read(job.inbox_id).message()
        binding = tx.agents.read_binding(message.address)
        agent, reason = choose_answerer(tx, self._rules().access, message, binding, edits_of(job).agent)
        if agent is None:
            return RouteOutcome(action=RouteAction.DROP, reason=reason)
        payer = payer_of(agent, binding)
        tx.jobs.update(job.id, agent_id=agent.id, client_id=payer)
        precedence = tx.jobs.precedence(job.priority, payer, message.address)
        return RouteOutcome(action=RouteAction.ANSWER, agent=agent.slug, reason=reason, precedence=precedence)

    @activity.defn(no_thread_cancel_exception=True)
    def show_answer(self, step: AnswerStep) -> WhatIfOutcome:
        """Store the text of the answer and close the what-if; the tags of the answer have no effect."""
        with self._store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            answer = final_answer(tx, step)
            tx.jobs.update(job.id, said=without_silent_lines(answer.visible) if is_background(job) else answer.visible)
            tx.jobs.close(job.id, JobEnding(status=JobStatus.COMPLETED))
            return tx.jobs.steps.done(step, WhatIfOutcome(tags=len(answer.tags)))


def _route_to_named_agent(tx: Transaction, job: Job) -> RouteOutcome:
    agent = tx.agents.read(job.agent_id)
    require_active(agent)
    reason = CHOSEN if edits_of(job).agent is not None else GIVEN
    precedence = tx.jobs.precedence_of(job)
    return RouteOutcome(action=RouteAction.ANSWER, agent=agent.slug, reason=reason, precedence=precedence)

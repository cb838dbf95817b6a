"""Step 4 of a message: who answers, or why nobody does; typing begins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.collecting import collect
from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, BusyMode, payer_of
from maestro.domain.jobs.busy import mode_of
from maestro.domain.jobs.flow import RouteAction, RouteOutcome
from maestro.domain.jobs.job import Ending, Job, JobStatus, StepRef
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.people.permissions import TURNED_AWAY, refusal
from maestro.domain.precedence import priority_of
from maestro.intake.access import Access
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class Typing(Protocol):
    """Shows and hides the typing indicator in the background."""

    def start(self, job_id: str, address: Address) -> bool:
        """Start the indicator, unless it is shown already, if this process holds the connector; say whether it does."""
        ...

    def stop(self, job_id: str) -> None:
        """Stop the indicator of a job; harmless when there is none."""
        ...


@dataclass(frozen=True)
class AnswerRules:
    """What decides who answers, and ``busy``, the mode where a channel has none of its own."""

    access: Access
    busy: BusyMode = BusyMode.QUEUE


class RoutingActivities:
    """Decides by pure rules over a snapshot of the store."""

    def __init__(self, store: Store, typing: Typing, rules: Callable[[], AnswerRules]) -> None:
        self._store = store
        self._typing = typing
        self._rules = rules

    @activity.defn
    def choose_agent(self, ref: StepRef) -> RouteOutcome:
        """Return who answers this message; nobody closes the job as dropped (specification 003, step 2)."""
        with self._store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            outcome = self._decide(tx, job)
            if outcome.action is RouteAction.DROP:
                tx.close_job(job.id, Ending(status=JobStatus.DROPPED, reason=outcome.reason))
            return tx.steps.done(ref, outcome)

    def _decide(self, tx: Transaction, job: Job) -> RouteOutcome:
        if job.notice:
            return RouteOutcome(
                action=RouteAction.REPLY,
                reason="a control word is answered by Maestro itself",
                precedence=tx.jobs.precedence_of(job),
            )
        message = tx.inbox.read(job.inbox_id).message()
        binding = tx.agents.read_binding(message.address)
        agent, reason = self._who(tx, message, binding)
        if agent is None:
            return RouteOutcome(action=RouteAction.DROP, reason=reason)
        priority = priority_of(owner=message.is_owner, conductor=agent.role == CONDUCTOR)
        payer = payer_of(agent, binding)
        tx.jobs.update(job.id, agent_id=agent.id, client_id=payer, priority=priority)
        together = collect(
            tx,
            job,
            mode_of(binding, self._rules().busy),
            lambda other: self._who(tx, other.message(), binding)[0] == agent,
        )
        return RouteOutcome(
            action=RouteAction.ANSWER,
            agent=agent.slug,
            reason=f"{reason}; {together} more messages are answered with it" if together else reason,
            typing=self._typing.start(job.id, message.address),
            media=any(row.attachments != "[]" for row in tx.merges.asked(job))
            if together
            else bool(message.attachments),
            precedence=tx.jobs.precedence(priority, payer, message.address),
        )

    def _who(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> tuple[Agent | None, str]:
        """Return who answers a message and by which rule, or nobody and why."""
        access = self._rules().access
        chosen = access.route(tx, message, binding)
        if chosen.agent is None:
            return None, chosen.reason
        agent = tx.agents.read(chosen.agent.id)
        person = access.person(tx, message, binding)
        policy = access.turned_away(person, agent, message, binding)
        refused = TURNED_AWAY[policy] if policy is not None else refusal(person, agent, binding)
        return (None, refused) if refused is not None else (agent, chosen.reason)


class TypingActivities:
    """Shows the indicator where routing runs in another process than the connector."""

    def __init__(self, store: Store, typing: Typing) -> None:
        self._store = store
        self._typing = typing

    @activity.defn
    def show_typing(self, ref: StepRef) -> None:
        """Start the indicator from the process that holds the connector (specification 003, step 3)."""
        with self._store.view() as tx:
            job = tx.jobs.read(ref.job_id)
        if not job.status.ended:  # the connector may have been away until the answer was sent
            self._typing.start(job.id, job.address)

"""Routing: the agent that answers a message, the messages merged into it, and the typing indicator.

See docs/decisions.md: busy agents.
"""

from collections.abc import Callable
from dataclasses import dataclass

from temporalio import activity

from connectors.hub import TypingIndicators
from maestro.domain.agents.agent import (
    CONDUCTOR,
    Agent,
    AgentChannel,
    AgentStatus,
    BusyMode,
    channel_busy_mode,
    paying_client_id,
)
from maestro.domain.errors import NoAgent
from maestro.domain.jobs.busy import MOST_MERGED, jobs_to_merge
from maestro.domain.jobs.flow import RouteAction, RouteOutcome, TakeUpOutcome
from maestro.domain.jobs.job import CHOSEN, Job, JobEnding, JobStatus, StepRef, job_edits
from maestro.domain.messages import InboxRow, IncomingMessage
from maestro.domain.people.people import UNKNOWN_USER_REASONS, access_refusal
from maestro.domain.precedence import message_priority
from maestro.intake.access import AccessControl
from maestro.store.store import Store
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class RoutingActivities:
    """Chooses the agent of each message and task, by pure rules over a snapshot of the store."""

    store: Store
    typing: TypingIndicators
    access: Callable[[], AccessControl]

    @activity.defn(no_thread_cancel_exception=True)
    def choose_agent(self, ref: StepRef) -> RouteOutcome:
        """Return the agent that answers this message; without an agent, the job is closed as dropped."""
        with self.store.begin(job=ref.job_id) as tx:
            job = tx.jobs.read(ref.job_id)
            outcome = self._decide_route(tx, job)
            if outcome.action is RouteAction.DROP:
                tx.jobs.close_job(job.id, JobEnding(status=JobStatus.DROPPED, reason=outcome.reason))
            return tx.jobs.steps.finish_step(ref, outcome)

    @activity.defn(no_thread_cancel_exception=True)
    def take_up(self, ref: StepRef) -> TakeUpOutcome:
        """Return the agent of a delegated task; raises ``NoAgent`` when that agent was paused meanwhile."""
        with self.store.begin() as tx:
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            require_active(agent)
            has_user = job.inbox_id is not None
            outcome = TakeUpOutcome(
                agent=agent.slug,
                conversation_id=job.conversation_id or 0,
                heard=tx.jobs.delegations.find_delegator(job) is not None,
                typing=has_user and self.typing.start_indicator(job.id, job.address),
                asked=has_user,
                precedence=tx.jobs.read_precedence(job),
            )
            return tx.jobs.steps.finish_step(ref, outcome)

    def _decide_route(self, tx: Transaction, job: Job) -> RouteOutcome:
        if job.notice:
            return RouteOutcome(
                action=RouteAction.REPLY,
                reason="a control word is answered by Maestro itself",
                precedence=tx.jobs.read_precedence(job),
            )
        message = next(row for row in tx.jobs.merged.list_answered_messages(job) if row.id == job.inbox_id).message()
        binding = tx.agents.read_binding(message.address)
        access, chosen = self.access(), job_edits(job).agent
        agent, reason = choose_answerer(tx, access, message, binding, chosen)
        if agent is None:
            return RouteOutcome(action=RouteAction.DROP, reason=reason)
        priority = message_priority(from_owner=message.is_owner, to_conductor=agent.role == CONDUCTOR)
        payer = paying_client_id(agent, binding)
        tx.jobs.update_later(job.id, agent_id=agent.id, client_id=payer, priority=priority)
        merged = merge_waiting_jobs(
            tx,
            job,
            channel_busy_mode(binding, BusyMode(access.routing.busy)),
            lambda row: choose_answerer(tx, access, row.message(), binding)[0] == agent,
        )
        rows = tx.jobs.merged.list_answered_messages(job) if merged else ()
        return RouteOutcome(
            action=RouteAction.ANSWER,
            agent=agent.slug,
            reason=f"{reason}; {merged} more messages are answered by the same job" if merged else reason,
            typing=self.typing.start_indicator(
                job.id, message.address, [row.message_id for row in rows] or [message.id]
            ),
            media=any(row.attachments != "[]" for row in rows) if merged else bool(message.attachments),
            precedence=tx.jobs.compute_precedence(priority, payer, message.address),
        )


def choose_answerer(
    tx: Transaction,
    access: AccessControl,
    message: IncomingMessage,
    binding: AgentChannel | None,
    chosen: str | None = None,
) -> tuple[Agent | None, str]:
    """Return the agent that answers a message and the routing rule, or None and the reason.

    ``chosen`` is the slug of an agent that an operator chose; the asking user still needs access to that agent.
    """
    if chosen is not None:
        candidate, reason = tx.agents.find_agent_by_slug(chosen), CHOSEN
        if candidate is None or candidate.status is not AgentStatus.ACTIVE:
            return None, f"the agent {chosen}, which an operator chose, is not active"
        agent = tx.agents.read(candidate.id)
    else:
        route = access.choose_route(tx, message, binding)
        if route.agent is None:
            return None, route.reason
        agent, reason = tx.agents.read(route.agent.id), route.reason
    person = access.build_person_with_access(tx, message, binding)
    policy = access.find_refusing_policy(person, agent, message, binding)
    refused = UNKNOWN_USER_REASONS[policy] if policy is not None else access_refusal(person, agent, binding)
    return (None, refused) if refused is not None else (agent, reason)


def require_active(agent: Agent) -> None:
    """Raise ``NoAgent`` when the agent that was chosen for a job was paused meanwhile."""
    if agent.status is not AgentStatus.ACTIVE:
        raise NoAgent(f"the agent {agent.slug} is {agent.status}; make it active, and resume the job")


@dataclass(frozen=True)
class TypingActivities:
    """Starts the typing indicator when another process than the one with the connector did the routing."""

    store: Store
    typing: TypingIndicators

    @activity.defn(no_thread_cancel_exception=True)
    def show_typing(self, ref: StepRef) -> None:
        """Start the typing indicator in the process that runs the connector."""
        with self.store.view() as tx:
            job = tx.jobs.read(ref.job_id)
            message_ids = [row.message_id for row in tx.jobs.merged.list_answered_messages(job)]
        if not job.status.ended:  # The answer may be sent before the connector starts the indicator.
            self.typing.start_indicator(job.id, job.address, message_ids)


def merge_waiting_jobs(tx: Transaction, host: Job, mode: BusyMode, has_same_agent: Callable[[InboxRow], bool]) -> int:
    """Merge waiting jobs into ``host``, which then also answers their messages; return their number.

    ``has_same_agent`` returns whether the same agent would answer a message. Jobs that the message of ``host``
    interrupted are also merged. No message is lost, because the routing step commits the merge. A job with an
    operator's edit merges nothing, because the edit is about one message.
    """
    if mode is BusyMode.QUEUE or host.edits:
        return 0
    row = tx.inbox.read(host.inbox_id)
    waiting = tx.jobs.merged.list_pending_after(host, MOST_MERGED)
    ends_at = tx.inbox.find_next_new_command(row, None) if waiting else None
    joining = [candidate.job.id for candidate in jobs_to_merge(row, waiting, ends_at, has_same_agent)]
    for job_id in joining:
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.MERGED, reason=f"answered together with {host.id}"))
    merged = tx.jobs.merged.list_merged_jobs([host.id, *joining])
    interrupted = [job for job in merged if job.status is not JobStatus.MERGED]
    # An interrupted job that has already answered is not merged.
    tx.jobs.merged.undo_merges([job.id for job in interrupted if job.status is not JobStatus.CANCELLED])
    absorbed_ids = [job.id for job in interrupted if job.status is JobStatus.CANCELLED]
    if joining or absorbed_ids:
        tx.jobs.merged.merge_jobs([*joining, *absorbed_ids], host.id)
        tx.conversations.mark_superseded(tx.jobs.merged.filter_without_delivery(absorbed_ids))
    return len(joining) + len(absorbed_ids)

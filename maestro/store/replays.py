"""Checks and previews of replays: which job a replay repeats, with which agent and edits, and at what cost."""

from maestro.domain.agents.agent import Agent, AgentStatus, paying_client_id
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, JobStatus, is_background, job_edits
from maestro.domain.jobs.replay import (
    ReplayEvidence,
    ReplayMode,
    ReplayPreview,
    build_preview,
    edits_refusal,
    effective_edits,
    replay_refusal,
)
from maestro.store.jobs.delegations import STOPPED, WITHHELD
from maestro.store.transaction import Transaction


def newest_job_of(tx: Transaction, job: Job) -> Job:
    """Return the job that now answers a job's message or does its task; for a what-if job, the job itself."""
    if job.what_if:
        return job
    if job.parent_id is not None or job.inbox_id is None:
        return tx.jobs.delegations.find_newest_job(job)
    return tx.jobs.get(tx.inbox.get(job.inbox_id).job_id)


def require_replayable(tx: Transaction, job: Job, mode: ReplayMode, edits: JobEdits | None) -> Job:
    """Check that a job can be replayed; return the newest job that answers the message or does the task.

    Raises ``Conflict`` where no replay is possible, and ``InvalidEdit`` for invalid edits. Stored edits are checked
    again, because the chosen agent may have been deleted.
    """
    newest = newest_job_of(tx, job)
    held = job.status is JobStatus.COMPLETED and tx.deliveries.reports.has_held_chunk(job.id)
    reason = replay_refusal(job, newest, mode, tx.jobs.delegations.list_descendants([newest.id]), held=held)
    if reason is not None:
        raise Conflict(reason)
    wrong = edits_refusal(job, mode, edits or NO_EDITS)
    if wrong is not None:
        raise InvalidEdit(wrong)
    # A resumed job keeps its agent, so an operator's choice matters only in the other modes.
    if mode is not ReplayMode.RESUME:
        find_chosen_agent(tx, effective_edits(job, newest, mode, edits))
    return newest


def preview_replay(tx: Transaction, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> ReplayPreview:
    """Return the preview of a replay, and change nothing; raises ``NotFound`` and ``InvalidEdit``."""
    job = tx.jobs.get(job_id)
    try:
        newest = require_replayable(tx, job, mode, edits)
    except Conflict as conflict:
        return ReplayPreview(mode=mode, possible=False, problem=str(conflict))
    of = newest if mode is ReplayMode.RESTART else job
    return build_preview(_replay_evidence(tx, of), mode, effective_edits(job, newest, mode, edits))


def _replay_evidence(tx: Transaction, job: Job) -> ReplayEvidence:
    tasks = [child for child in tx.jobs.delegations.list_children(job.id) if child.task]
    withheld = [child for child in tasks if child.status is JobStatus.CANCELLED and child.reason in (WITHHELD, STOPPED)]
    return ReplayEvidence(
        job=job,
        steps=tx.jobs.steps.list_attempts_of_job(job.id),
        calls=tx.llm.calls.list_calls_of_job(job.id),
        deliveries=tx.deliveries.list_deliveries_of_job(job.id),
        actions=tx.jobs.actions.list_actions_of_job(job.id),
        tools=tx.jobs.tool_runs.list_tool_runs_of_job(job.id),
        withheld=len(withheld),
        tasks=len(tasks) - len(withheld),
    )


def set_chosen_agent(tx: Transaction, job: Job) -> Job:
    """Set the agent of a new background job: the agent that an operator chose, else that of the original job."""
    if not is_background(job):
        return job
    chosen = find_chosen_agent(tx, job_edits(job))
    agent_id = chosen.id if chosen is not None else find_original_job(tx, job).agent_id
    if agent_id != job.agent_id:
        agent = tx.agents.get(agent_id)
        job.agent_id, job.client_id = agent.id, paying_client_id(agent, tx.agents.find_binding(job.address))
    return job


def find_original_job(tx: Transaction, job: Job) -> Job:
    """Return the first job of a chain of restarts, which has the agent from before an operator's choice."""
    ancestors = tx.jobs.list_ancestor_ids(job)
    return tx.jobs.get(ancestors[-1]) if ancestors else job


def find_chosen_agent(tx: Transaction, edits: JobEdits) -> Agent | None:
    """Return the agent that an operator chose, or None; raises ``InvalidEdit`` for an agent that cannot answer."""
    if edits.agent is None:
        return None
    agent = tx.agents.find_agent_by_slug(edits.agent)
    if agent is None or agent.status is AgentStatus.ARCHIVED:
        raise InvalidEdit(f"agent: there is no agent {edits.agent}; `maestro agents list` shows all agents")
    if agent.status is not AgentStatus.ACTIVE:
        raise InvalidEdit(f"agent: {edits.agent} is {agent.status}; make it active first, or choose another agent")
    return agent

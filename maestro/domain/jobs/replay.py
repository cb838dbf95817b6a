"""The rules of replays: which jobs may be resumed or restarted (docs/invariants.md: resume)."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from maestro.domain.jobs.job import Job, JobEdits, JobStatus, edits_of, is_background
from maestro.domain.messages import Address


class ReplayMode(StrEnum):
    """The way in which a job is replayed.

    Resume continues at the failed step and keeps every result. Restart answers again in a new, linked job. What-if only
    shows what would be answered now and acts on nothing (docs/decisions.md: what-if).
    """

    RESUME = "resume"
    RESTART = "restart"
    WHAT_IF = "what-if"


RESUMABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})


def replay_refusal(
    job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job] = (), *, held: bool = False
) -> str | None:
    """Return why a job cannot be replayed in this mode, as a sentence for operators; None if it can.

    ``newest`` is the job that now answers the same message or does the same task: the job itself or a restart of it.
    ``led_to`` are the jobs that its answer started. ``held`` means that a chunk of its answer is unconfirmed and was
    not sent again; a resume sends it. A message is answered once: only the newest job may be resumed, and no restart
    begins while that job or a job in ``led_to`` is open. A what-if sends nothing, so any number may run.
    """
    if job.erased:
        return f"what was said in job {job.id} was deleted with its conversation, so there is nothing to answer."
    if not job.status.ended:
        return f"job {job.id} is {job.status}; only an ended job can be replayed. Cancel it first, or wait."
    if job.what_if and mode is not ReplayMode.RESUME:
        return f"job {job.id} is a what-if; ask again what job {job.restarted_from} would answer."
    if job.what_if:
        resumable = job.status in RESUMABLE
        return None if resumable else f"job {job.id} is {job.status}; there is no failed step to resume."
    if mode is ReplayMode.WHAT_IF:
        return _what_if_refusal(job)
    return _duplicate_refusal(job, newest, mode, led_to) or _state_refusal(job, mode, held=held)


def _duplicate_refusal(job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job]) -> str | None:
    """Return which other job already does the work of this one, as a sentence for operators; None without one."""
    if newest.id != job.id and (mode is ReplayMode.RESUME or not newest.status.ended):
        work = "message" if job.inbox_id is not None else "task"
        return f"the {work} of job {job.id} is answered by job {newest.id} now, which is {newest.status}."
    open_job = next((other for other in led_to if not other.status.ended), None)
    if mode is ReplayMode.RESTART and open_job is not None:
        return f"job {open_job.id}, which this job started, is {open_job.status} still. Cancel that first, or wait."
    return None


def _state_refusal(job: Job, mode: ReplayMode, *, held: bool) -> str | None:
    has_held_chunk = held and job.status is JobStatus.COMPLETED
    if mode is ReplayMode.RESUME and job.status not in RESUMABLE and not has_held_chunk:
        return f"job {job.id} is {job.status}; there is no failed step to resume. Use restart to answer again."
    answers_nothing = job.inbox_id is None or job.lane is None
    if mode is ReplayMode.RESTART and job.parent_id is None and answers_nothing and not is_background(job):
        return f"job {job.id} answers no message, so there is nothing to answer again."
    return None


def _what_if_refusal(job: Job) -> str | None:
    if is_script(job):
        return f"job {job.id} runs a script and asks no model, so there is no answer to show."
    if job.notice or (job.inbox_id is None and job.parent_id is None and not is_background(job)):
        return f"job {job.id} answers no message, so there is nothing to answer."
    return None


def is_script(job: Job) -> bool:
    """Return whether a job only runs a script or fills a template, without a model call."""
    return is_background(job) and not job.task


def edits_refusal(job: Job, mode: ReplayMode, edits: JobEdits) -> str | None:
    """Return why the edits cannot apply to a replay of this job and what to do instead; None if they can."""
    if not edits.any:
        return None
    if mode is ReplayMode.RESUME:
        return "edits need the mode restart or what-if: a resumed job keeps its results."
    if is_script(job):
        return f"job {job.id} runs a script and asks no model: change the script instead."
    if job.parent_id is not None and edits.agent is not None:
        return f"job {job.id} is a task of its agent: change the model or the prompt, or restart job {job.parent_id}."
    if job.parent_id is not None and not job.task and edits.prompt is not None:
        return (
            f"job {job.id} continues with the results of other agents, so it has no text to change: "
            f"restart job {job.parent_id}."
        )
    return None


def effective_edits(job: Job, newest: Job, mode: ReplayMode, edits: JobEdits | None) -> JobEdits:
    """Return the edits of a replay: the requested ones, else those of the earlier job."""
    return edits if edits is not None else edits_of(newest if mode is ReplayMode.RESTART else job)


def new_restart(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return a new job for the same message or task, from the beginning; without ``edits``, those of the old job."""
    copied = {"kind", "priority", "lane", "inbox_id", *Address.model_fields}
    if job.parent_id is not None:  # routing is skipped for a delegated task, so the agent is copied
        copied |= {"agent_id", "client_id", "conversation_id", "parent_id", "depth", "task", "hears"}
    if is_background(job):
        copied |= {"agent_id", "client_id", "task", "schedule", "slot", "webhook_id"}
    edited = job.edits if edits is None else edits.text
    return Job(**job.model_dump(include=copied), id=new_id, restarted_from=job.id, edits=edited, created_at=now)


def new_what_if(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return a new job that shows what this job would answer now.

    The what-if has no lane, parent or schedule, so that no other job waits for it, counts it or continues with it. Its
    input is read from the original job.
    """
    copied = {"kind", "priority", "inbox_id", "agent_id", "client_id", "conversation_id", "task", *Address.model_fields}
    edited = job.edits if edits is None else edits.text
    fields = job.model_dump(include=copied)
    return Job(**fields, id=new_id, restarted_from=job.id, edits=edited, what_if=True, created_at=now)


def what_if_input(what_if: Job, job: Job) -> Job:
    """Return the original job with the agent and the edits of the what-if, as a value that is never stored."""
    return Job(**job.model_dump() | what_if.model_dump(include={"agent_id", "client_id", "edits", "what_if"}))

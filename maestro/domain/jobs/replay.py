"""Which jobs may be replayed, and what a restart is (docs/invariants.md: resume)."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from maestro.domain.jobs.job import Job, JobEdits, JobStatus, edits_of, is_background


class ReplayMode(StrEnum):
    """How a job is done again.

    Resume goes on at the failed step and keeps every result; restart begins again as a new linked job; what-if only
    shows what would be answered now, and acts on nothing (docs/decisions.md: what-if).
    """

    RESUME = "resume"
    RESTART = "restart"
    WHAT_IF = "what-if"


RESUMABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})


def refusal(job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job] = (), *, held: bool = False) -> str | None:
    """Return why this job cannot be replayed this way, or None.

    ``newest`` is the job that answers the same message, or does the same task, now, this one or a restart of it, and
    ``led_to`` what hangs on its answer. ``held`` says that a part of its answer was held back because nobody knows
    whether the platform has it: who resumes the job has it sent. A message is answered once: only the newest may be
    resumed, and while that one still works, or other agents do for it, nothing else begins. A what-if answers nobody,
    so any number may be asked.
    """
    if job.erased:
        return f"what was said in job {job.id} was deleted with its conversation, so there is nothing left to answer."
    if not job.status.ended:
        return f"job {job.id} is {job.status}; only an ended job can be replayed. Cancel it first, or wait."
    if job.what_if:
        return _no_more_of_a_what_if(job, mode)
    if mode is ReplayMode.WHAT_IF:
        return _nothing_to_ask(job)
    return _taken(job, newest, mode, led_to) or _nothing_to_do(job, mode, held=held)


def _taken(job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job]) -> str | None:
    """Return who does already what this job was to do."""
    if newest.id != job.id and (mode is ReplayMode.RESUME or not newest.status.ended):
        what = "message" if job.inbox_id is not None else "task"
        return f"the {what} of job {job.id} is answered by job {newest.id} now, which is {newest.status}."
    working = next((other for other in led_to if not other.status.ended), None)
    if mode is ReplayMode.RESTART and working is not None:
        return f"job {working.id}, which came of it, is {working.status} still. Cancel that first, or wait."
    return None


def _nothing_to_do(job: Job, mode: ReplayMode, *, held: bool) -> str | None:
    releases = held and job.status is JobStatus.COMPLETED
    if mode is ReplayMode.RESUME and job.status not in RESUMABLE and not releases:
        return f"job {job.id} is {job.status}; there is no failed step to resume. Use restart to answer again."
    answers_nothing = job.inbox_id is None or job.lane is None
    if mode is ReplayMode.RESTART and job.parent_id is None and answers_nothing and not is_background(job):
        return f"job {job.id} answers no message, so there is nothing to answer again."
    return None


def _no_more_of_a_what_if(job: Job, mode: ReplayMode) -> str | None:
    """Return why a what-if is not replayed: it stays one, and is only ever finished."""
    if mode is not ReplayMode.RESUME:
        return f"job {job.id} is a what-if; ask again what job {job.restarted_from} would answer."
    if job.status not in RESUMABLE:
        return f"job {job.id} is {job.status}; there is no failed step to resume."
    return None


def _nothing_to_ask(job: Job) -> str | None:
    if is_script(job):
        return f"job {job.id} runs a script and asks no model, so there is no answer to look at."
    if job.notice or (job.inbox_id is None and job.parent_id is None and not is_background(job)):
        return f"job {job.id} answers no message, so there is nothing to answer."
    return None


def is_script(job: Job) -> bool:
    """Say whether a job fetches and fills in, and asks no model."""
    return is_background(job) and not job.task


def edits_refusal(job: Job, mode: ReplayMode, edits: JobEdits) -> str | None:
    """Return why this cannot be changed in a job that is done again, and what to do instead, or None."""
    if not edits.any:
        return None
    if mode is ReplayMode.RESUME:
        return "edits need the mode restart or what-if: what is resumed keeps its results."
    if is_script(job):
        return f"job {job.id} runs a script and asks no model: change the script instead."
    if job.parent_id is not None and edits.agent is not None:
        return f"job {job.id} is a task of its agent: change the model or the prompt, or restart job {job.parent_id}."
    if job.parent_id is not None and not job.task and edits.prompt is not None:
        return (
            f"job {job.id} goes on with what other agents found, so it has no text to change: restart {job.parent_id}."
        )
    return None


def edits_that_count(job: Job, newest: Job, mode: ReplayMode, edits: JobEdits | None) -> JobEdits:
    """Return what is changed in a job that is done again: what was asked for, else what it had."""
    if edits is not None:
        return edits
    return edits_of(newest if mode is ReplayMode.RESTART else job)


def restarted(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return the job that answers the same message, or does the same task, from the top.

    Without other ``edits`` it keeps those of the job.
    """
    again = Job(
        id=new_id,
        kind=job.kind,
        priority=job.priority,
        lane=job.lane,
        inbox_id=job.inbox_id,
        restarted_from=job.id,
        edits=job.edits if edits is None else edits.text,
        created_at=now,
        **job.address.model_dump(),
    )
    if job.parent_id is not None:  # nobody routes a task: whose it is was said when it was given
        again.agent_id, again.client_id, again.conversation_id = job.agent_id, job.client_id, job.conversation_id
        again.parent_id, again.depth, again.task, again.hears = job.parent_id, job.depth, job.task, job.hears
    if is_background(job):
        again.agent_id, again.client_id, again.task = job.agent_id, job.client_id, job.task
        again.schedule, again.slot, again.webhook_id = job.schedule, job.slot, job.webhook_id
    return again


def what_if(job: Job, new_id: str, now: datetime, edits: JobEdits | None = None) -> Job:
    """Return the job that shows what this one would answer now.

    It has neither a lane nor a parent nor a schedule, so that nothing waits for it, counts it or goes on with it; what
    it is asked is read of the job that it was asked of.
    """
    return Job(
        id=new_id,
        kind=job.kind,
        priority=job.priority,
        inbox_id=job.inbox_id,
        agent_id=job.agent_id,
        client_id=job.client_id,
        conversation_id=job.conversation_id,
        task=job.task,
        restarted_from=job.id,
        edits=job.edits if edits is None else edits.text,
        what_if=True,
        created_at=now,
        **job.address.model_dump(),
    )


def what_if_input(trial: Job, job: Job) -> Job:
    """Return the job that a what-if was asked of as it would be with who answers, and what is changed, in the what-if.

    It is a value of its own, which is never kept.
    """
    of_trial = {"agent_id": trial.agent_id, "client_id": trial.client_id, "edits": trial.edits, "what_if": True}
    return Job(**job.model_dump() | of_trial)

"""A time of a schedule that has come: whether it becomes a job (docs/decisions.md: schedules)."""

from datetime import datetime

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import InvalidEdit, WaitReason
from maestro.domain.jobs.job import Job, Wait
from maestro.domain.precedence import Priority
from maestro.domain.schedules.expressions import Once, read_zone, recall_schedule
from maestro.domain.schedules.schedule import Heartbeat, ScheduleColumns
from maestro.domain.schedules.times import passed, times_after
from maestro.domain.values import Value

GIVEN_UP = "failed {} times in a row"
"""Why a schedule was paused by Maestro itself."""


class ScheduledRun(Value):
    """The run that Temporal began: its workflow's id, which the job gets, the schedule, and the time it is for."""

    job_id: str
    schedule: str
    slot: datetime


class RunAdmission(Value):
    """Whether the workflow goes on with the job; if not, ``reason`` says what became of this time."""

    begun: bool
    reason: str = ""


def why_no_run(planned: ScheduleColumns | None, agent: Agent | None, open_job: str | None) -> str | None:
    """Return why this time of a schedule makes no job, or None.

    A job of it that is still open keeps the next one from beginning: that is the flood guard, whatever Temporal knows.
    """
    if planned is None or agent is None:
        return "the schedule was deleted"
    if not planned.enabled or planned.paused_reason:
        return "the schedule is paused"
    if planned.ended_at is not None:
        return "the schedule has ended"
    if agent.status is not AgentStatus.ACTIVE:
        return f"the agent {agent.slug} is {agent.status}"
    if open_job is not None:
        return f"skipped: job {open_job} of this schedule is not over"
    return None


def is_skipped(planned: ScheduleColumns, wait: Wait, now: datetime) -> bool:
    """Say whether a run that cannot ask a model now is skipped: its wait would reach into the next time.

    A wait without an end does, and so does one for the next day's budget. What runs once waits.
    """
    try:
        schedule = recall_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:
        return False
    following = next(times_after(schedule, read_zone(planned.zone), planned.anchored_at, now), None)
    if following is None:
        return False
    return wait.reason is WaitReason.BUDGET or wait.wake_at is None or wait.wake_at >= following


def job_of(planned: ScheduleColumns, client_id: int | None, job_id: str, slot: datetime | None) -> Job:
    """Return the job of a run, which a client may pay for; without a ``slot`` it is one beside the schedule."""
    return Job(
        id=job_id,
        kind=planned.kind,
        priority=Priority.SCHEDULED,
        agent_id=planned.agent_id,
        client_id=client_id,
        task="" if isinstance(planned, Heartbeat) and planned.script else planned.prompt,
        schedule=planned.ref,
        slot=slot,
        **planned.address.model_dump(),
    )


def times_missed(planned: ScheduleColumns, agent: Agent, slot: datetime) -> int:
    """Count the times between the last one that came and this one: those passed while a run went on, or we were away.

    What passed while somebody had paused or changed it was not missed.
    """
    began = max(planned.last_slot or planned.anchored_at, planned.updated_at, agent.updated_at)
    try:
        schedule = recall_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:  # written under other rules than today's; that it runs is what counts
        return 0
    return passed(schedule, read_zone(planned.zone), planned.anchored_at, began, slot)


def runs_once(planned: ScheduleColumns) -> bool:
    """Say whether the schedule is over with its first run."""
    return _moment(planned) is not None


def overdue(planned: ScheduleColumns, now: datetime) -> datetime | None:
    """Return the moment of what was to run once, if it passed without a run: nobody could tell Temporal in time."""
    moment = _moment(planned)
    return moment if moment is not None and moment <= now and planned.ended_at is None else None


def _moment(planned: ScheduleColumns) -> datetime | None:
    try:
        schedule = recall_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:
        return None
    return schedule.moment if isinstance(schedule, Once) else None

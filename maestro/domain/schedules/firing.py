"""The decision whether a due time of a schedule becomes a job (docs/decisions.md: schedules)."""

from datetime import datetime

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import InvalidEdit, WaitReason
from maestro.domain.jobs.job import Job, Wait
from maestro.domain.precedence import Priority
from maestro.domain.schedules.expressions import Once, Schedule, read_stored_schedule, read_zone
from maestro.domain.schedules.schedule import Heartbeat, ScheduleColumns
from maestro.domain.schedules.times import count_times, times_after
from maestro.domain.values import Value

GIVEN_UP = "failed {} times in a row"
"""The reason stored when Maestro itself pauses a schedule."""


class ScheduledRun(Value):
    """A run that Temporal started: the workflow id (also the job id), the schedule's ref, and the due time."""

    job_id: str
    schedule: str
    slot: datetime


class RunAdmission(Value):
    """The decision whether the workflow of a run continues; if not, ``reason`` says why the run was skipped."""

    begun: bool
    reason: str = ""


def skip_reason(planned: ScheduleColumns | None, agent: Agent | None, open_job: str | None) -> str | None:
    """Return why this due time of a schedule creates no job, or None if it does.

    While a job of the schedule is open, no further run starts: this limits a flood of jobs independently of Temporal's
    overlap policy.
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
    """Say whether a run that cannot call a model now is skipped: the wait would last past the schedule's next time.

    A wait without a known end counts as too long, and so does a wait for the next day's budget. A schedule with a
    single run is never skipped: it waits.
    """
    schedule = _parse_stored(planned)
    if schedule is None:
        return False
    following = next(times_after(schedule, read_zone(planned.zone), planned.anchored_at, now), None)
    if following is None:
        return False
    return wait.reason is WaitReason.BUDGET or wait.wake_at is None or wait.wake_at >= following


def new_run_job(planned: ScheduleColumns, client_id: int | None, job_id: str, slot: datetime | None) -> Job:
    """Return the job of a run, with the client that pays, if any; ``slot`` is None for an operator's extra run."""
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


def count_missed_times(planned: ScheduleColumns, agent: Agent, slot: datetime) -> int:
    """Count the due times between the previous run and this one, missed because a run lasted or Maestro was down.

    Times before the last edit of the schedule or of its agent do not count: they may belong to a pause.
    """
    began = max(planned.last_slot or planned.anchored_at, planned.updated_at, agent.updated_at)
    schedule = _parse_stored(planned)
    return (
        count_times(schedule, read_zone(planned.zone), planned.anchored_at, began, slot) if schedule is not None else 0
    )


def runs_once(planned: ScheduleColumns) -> bool:
    return isinstance(_parse_stored(planned), Once)


def missed_single_run(planned: ScheduleColumns, now: datetime) -> datetime | None:
    """Return the time of a single run that Temporal missed because the schedule reached it too late, else None."""
    match _parse_stored(planned):
        case Once(moment) if moment <= now and planned.ended_at is None:
            return moment
        case _:
            return None


def _parse_stored(planned: ScheduleColumns) -> Schedule | None:
    """Parse the expression of a row; None if today's rules reject it, although Temporal still runs it."""
    try:
        return read_stored_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:
        return None

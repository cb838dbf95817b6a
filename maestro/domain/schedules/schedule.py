"""The tables of heartbeats and crons, and the rules by which due times become jobs (docs/decisions.md: schedules)."""

from datetime import datetime
from typing import ClassVar

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.columns import UtcDateTime
from maestro.domain.errors import InvalidEdit, WaitReason
from maestro.domain.jobs.job import Job, JobKind, Wait
from maestro.domain.messages import Address
from maestro.domain.precedence import Priority
from maestro.domain.schedules.expressions import Once, Schedule, read_stored_schedule, read_zone
from maestro.domain.schedules.times import count_times, times_after
from maestro.domain.values import Payload

GIVEN_UP = "failed {} times in a row"
"""The stored reason when Maestro pauses a schedule after failures."""


class ScheduleColumns(SQLModel):
    """The columns shared by heartbeats and crons; ``schedule`` is the expression as written, ``zone`` an IANA name.

    ``name`` is unique among the schedules of the agent; ``unnamed`` is the default name. ``anchored_at`` is when the
    expression was written: an interval counts from there. ``jitter_seconds`` is the longest random delay of a run.
    ``enabled`` is the operator's choice; ``paused_reason`` says why Maestro paused the schedule, empty without a pause.
    ``ended_at`` is set after the run of a schedule with a single run.

    ``runs`` counts runs that started, ``skipped`` due times without a run, ``failures`` failed runs in a row.
    ``last_slot`` and ``last_job_id`` are the due time and the job of the last run. ``followed`` is the digest of the
    state last written to the Temporal Schedule. ``follow_error`` is why a later write to Temporal failed.
    """

    unnamed: ClassVar[str]
    kind: ClassVar[JobKind]

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str
    schedule: str
    zone: str = "UTC"
    prompt: str
    platform: str
    account: str
    channel: str
    thread: str = ""
    jitter_seconds: int = 0
    enabled: bool = True
    paused_reason: str = ""
    anchored_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    runs: int = 0
    skipped: int = 0
    failures: int = 0
    last_slot: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_job_id: str = ""
    followed: str = ""
    follow_error: str = ""
    created_by: str
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def ref(self) -> str:
        """The public id of the schedule, such as cron-3; also stored in ``queue.schedule``, and never reused."""
        return f"{self.kind}-{self.id}"

    @property
    def address(self) -> Address:
        """The address to which the answers are posted."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)

    def is_duplicate_of(self, other: "ScheduleColumns") -> bool:
        """Return whether both schedules have the same kind, agent, work, times and address."""
        compared = {"agent_id", "schedule", "zone", "prompt", "script", "platform", "account", "channel", "thread"}
        return type(self) is type(other) and self.model_dump(include=compared) == other.model_dump(include=compared)


class Heartbeat(ScheduleColumns, table=True):
    """A schedule for an agent's regular checks; ``script`` is the JSON of a check without a model, or empty."""

    unnamed: ClassVar[str] = "Heartbeat"
    kind: ClassVar[JobKind] = JobKind.HEARTBEAT

    __tablename__ = "heartbeat_configs"
    __table_args__ = (UniqueConstraint("agent_id", "name"), {"sqlite_autoincrement": True})

    script: str = ""


class Cron(ScheduleColumns, table=True):
    """A schedule for an agent's tasks at given times."""

    unnamed: ClassVar[str] = "Cron Job"
    kind: ClassVar[JobKind] = JobKind.CRON

    __tablename__ = "cron_jobs"
    __table_args__ = (UniqueConstraint("agent_id", "name"), {"sqlite_autoincrement": True})


class ScheduledRun(Payload):
    """A run that Temporal started: its workflow id (also the job id), the schedule's public id, and the due time."""

    job_id: str
    schedule: str
    slot: datetime


class RunAdmission(Payload):
    """The decision whether the workflow of a scheduled run continues; if not, ``reason`` says why it was skipped."""

    begun: bool
    reason: str = ""


def skip_reason(planned: ScheduleColumns | None, agent: Agent | None, open_job: str | None) -> str | None:
    """Return why a due time of a schedule creates no job, None if it creates one.

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
    """Return whether a run is skipped because the wait for a model would last past the schedule's next due time.

    A wait without a known end counts as too long, and so does a wait for the next day's budget. The run of a schedule
    with a single run is never skipped: the run waits.
    """
    schedule = _parse_stored(planned)
    if schedule is None:
        return False
    following = next(times_after(schedule, read_zone(planned.zone), planned.anchored_at, now), None)
    if following is None:
        return False
    return wait.reason is WaitReason.BUDGET or wait.wake_at is None or wait.wake_at >= following


def new_run_job(planned: ScheduleColumns, client_id: int | None, job_id: str, slot: datetime | None) -> Job:
    """Return the job of a run; ``client_id`` is the client that pays, ``slot`` None for an operator's extra run."""
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
    """Count the due times since the previous run, missed because that run lasted or Maestro was down.

    Due times before the last edit of the schedule or its agent do not count, because they may belong to a pause.
    """
    began = max(planned.last_slot or planned.anchored_at, planned.updated_at, agent.updated_at)
    schedule = _parse_stored(planned)
    return (
        count_times(schedule, read_zone(planned.zone), planned.anchored_at, began, slot) if schedule is not None else 0
    )


def runs_once(planned: ScheduleColumns) -> bool:
    return isinstance(_parse_stored(planned), Once)


def missed_single_run(planned: ScheduleColumns, now: datetime) -> datetime | None:
    """Return the time of a single run that passed before Temporal had the schedule, None if it was not missed."""
    match _parse_stored(planned):
        case Once(moment) if moment <= now and planned.ended_at is None:
            return moment
        case _:
            return None


def _parse_stored(planned: ScheduleColumns) -> Schedule | None:
    """Parse the expression of a row; None if today's rules reject the expression, although Temporal still runs it."""
    try:
        return read_stored_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:
        return None

"""The tables of heartbeats and crons: the stored schedules that Temporal Schedules are made from.

See docs/decisions.md: schedules.
"""

from collections.abc import Container
from datetime import datetime
from itertools import chain, count
from typing import ClassVar

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime
from maestro.domain.jobs.job import JobKind
from maestro.domain.messages import Address


class ScheduleColumns(SQLModel):
    """The columns shared by heartbeats and crons; ``schedule`` is the expression as written, ``zone`` an IANA name.

    ``name`` is unique among the schedules of the agent; ``unnamed`` is the default name. ``anchored_at`` is when
    the expression was written: an interval counts from there. ``jitter_seconds`` is the longest random delay of a run.
    ``enabled`` is the operator's choice; ``paused_reason`` says why Maestro paused the schedule itself, else empty.
    ``ended_at`` is set after the run of a schedule with a single run.

    ``runs`` counts runs that started, ``skipped`` due times without a run, ``failures`` failed runs in a row;
    ``last_slot`` and ``last_job_id`` are the due time and the job of the last run. ``followed`` is the digest of the
    state last written to the Temporal Schedule, ``follow_error`` the reason if a later write failed.
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
        """Say whether both schedules have the same kind, agent, work, times and address."""
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


def free_name(name: str, taken: Container[str]) -> str:
    """Return the name if it is free, else the name with the first free number from 2 on."""
    numbered = (f"{name} {number}" for number in count(2))
    return next(candidate for candidate in chain((name,), numbered) if candidate not in taken)

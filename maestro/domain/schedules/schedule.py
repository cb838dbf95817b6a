"""Heartbeats and crons as the operator's truth: what is to run when, for whom and where.

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
    """What a heartbeat and a cron have in common; ``schedule`` is the text as it was written, ``zone`` an IANA name.

    The name is unique among all that is planned for an agent; ``unnamed`` is what is called so that nobody named.
    ``anchored_at`` is when the schedule was written: an interval counts from there. ``jitter_seconds`` is how much
    later than its time a run may begin. ``enabled`` is what people want, ``paused_reason`` why Maestro stopped it by
    itself, empty when it did not; ``ended_at`` says that what was to run once has run.

    What its runs left: ``runs`` that began, ``skipped`` times that passed without one, ``failures`` in a row, the time
    and the job of the last run. ``followed`` is the digest of what its Temporal Schedule was told last, and
    ``follow_error`` why it could not be told more.
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
        """How it is called outside and in ``queue.schedule``, such as cron-3; no two ever have the same."""
        return f"{self.kind}-{self.id}"

    @property
    def address(self) -> Address:
        """Where what the agent says goes."""
        return Address(platform=self.platform, account=self.account, channel=self.channel, thread=self.thread)

    def is_like(self, other: "ScheduleColumns") -> bool:
        """Say whether both have the same agent do the same, at the same times and places."""
        what = {"agent_id", "schedule", "zone", "prompt", "script", "platform", "account", "channel", "thread"}
        return type(self) is type(other) and self.model_dump(include=what) == other.model_dump(include=what)


class Heartbeat(ScheduleColumns, table=True):
    """Something an agent looks after every so often; ``script`` is the JSON of what is done without a model, if any."""

    unnamed: ClassVar[str] = "Heartbeat"
    kind: ClassVar[JobKind] = JobKind.HEARTBEAT

    __tablename__ = "heartbeat_configs"
    __table_args__ = (UniqueConstraint("agent_id", "name"), {"sqlite_autoincrement": True})

    script: str = ""


class Cron(ScheduleColumns, table=True):
    """Something an agent does at certain times."""

    unnamed: ClassVar[str] = "Cron Job"
    kind: ClassVar[JobKind] = JobKind.CRON

    __tablename__ = "cron_jobs"
    __table_args__ = (UniqueConstraint("agent_id", "name"), {"sqlite_autoincrement": True})


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name, with the first number from 2 on that makes it one of its own if it is taken."""
    numbered = (f"{name} {number}" for number in count(2))
    return next(one for one in chain((name,), numbered) if one not in taken)

"""Which jobs are meant: the filter of every list, count and batch."""

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from maestro.domain.columns import LARGEST
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.moments import Moment, in_order
from maestro.domain.values import Value
from maestro.domain.words import SearchText

AROUND = timedelta(minutes=2)
"""How far from ``at`` a job may have been created, or have ended: people remember times to the minute."""

LOOK_BACK = timedelta(days=1)
"""How long before ``at`` an ended job was created at most: without a limit, every older job would be read."""


class JobFilter(Value):
    """Which jobs to show; what is empty or None does not matter.

    ``schedule`` is a heartbeat or a cron, such as cron-3, ``webhook`` the path of one, ``error`` the name of a class,
    ``q`` a part of the id, the message or the task, the user's name, the error or the reason. ``step`` is the one that
    failed last, ``reason`` one as the groups of failures show it: a ``*`` in it stands for anything. ``client`` is the
    name of who pays, ``conversation`` a number, ``batch`` the id of a batch: the jobs that it began or stopped.
    They were created at ``since`` or later, and before ``until``. ``at`` chooses the jobs that were created within two
    minutes of a moment or were open then; one that ended since is found if it was created in the day before.
    """

    status: tuple[JobStatus, ...] = ()
    kind: tuple[JobKind, ...] = ()
    agent: str | None = None
    platform: str | None = None
    account: str | None = None
    channel: str | None = None
    priority: int | None = Field(default=None, ge=1, le=10)
    client: str | None = None
    conversation: int | None = Field(default=None, ge=1, le=LARGEST)
    schedule: str | None = None
    webhook: str | None = None
    error: str | None = None
    step: str | None = None
    reason: SearchText | None = None
    batch: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    at: Moment | None = None
    q: SearchText | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        in_order(self.since, self.until)
        return self

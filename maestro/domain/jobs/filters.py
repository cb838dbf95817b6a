"""The filter of every list, count and batch of jobs, and the cursor of a page."""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from pydantic import Field, TypeAdapter, model_validator

from maestro.domain.columns import LARGEST
from maestro.domain.fields import Moment, SearchText, require_time_order
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.values import Value

SEPARATOR = " "
MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)
"""The validator of times: it refuses times that cannot be converted to UTC or stored."""

AROUND = timedelta(minutes=2)
"""The most time between ``at`` and the creation or end of a job: users remember times to the minute."""

LOOK_BACK = timedelta(days=1)
"""The longest time between the creation of an ended job and ``at``: without a limit, every older job would be read."""


@dataclass(frozen=True)
class PageCursor:
    """The last job of a page; lists of jobs are newest first."""

    created_at: datetime
    job_id: str

    def encode(self) -> str:
        """Return the cursor as an opaque text for API clients."""
        text = f"{self.created_at.isoformat()}{SEPARATOR}{self.job_id}"
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> "PageCursor":
        """Read a text that ``encode`` returned; raises ``ValueError`` for any other text."""
        try:
            moment, _, job_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(SEPARATOR)
            created_at = MOMENT.validate_python(datetime.fromisoformat(moment))
        except ValueError:
            raise ValueError("this is not a cursor from an earlier answer") from None
        if not job_id:
            raise ValueError("this is not a cursor from an earlier answer")
        return cls(created_at, job_id)


class JobFilter(Value):
    """A filter of jobs; a field that is empty or None does not restrict the result."""

    status: tuple[JobStatus, ...] = Field(default=(), description="only jobs in these states")
    kind: tuple[JobKind, ...] = Field(default=(), description="only jobs of these kinds")
    agent: str | None = Field(default=None, description="the slug of the agent")
    platform: str | None = Field(default=None, description="the platform of the channel, such as discord")
    account: str | None = Field(default=None, description="the account on its platform")
    channel: str | None = Field(default=None, description="the id of the channel")
    priority: int | None = Field(default=None, ge=1, le=10, description="the priority, from 1 to 10")
    client: str | None = Field(default=None, description="the name of the client that pays")
    conversation: int | None = Field(default=None, ge=1, le=LARGEST, description="the number of a conversation")
    schedule: str | None = Field(default=None, description="the id of a heartbeat or a cron, such as cron-3")
    webhook: str | None = Field(default=None, description="the path of a webhook")
    error: str | None = Field(default=None, description="the class of the error, such as ProviderUnavailable")
    step: str | None = Field(default=None, description="the step that failed last")
    reason: SearchText | None = Field(default=None, description="the reason of the end; a ``*`` matches any text")
    batch: str | None = Field(default=None, description="the id of the batch that began or cancelled the job")
    since: Moment | None = Field(default=None, description="created at or after this time")
    until: Moment | None = Field(default=None, description="created before this time")
    at: Moment | None = Field(
        default=None,
        description="created within two minutes of this moment or open then; a job that ended since is found if it was "
        "created in the day before",
    )
    q: SearchText | None = Field(
        default=None, description="a part of the id, the message or the task, the user's name, the error or the reason"
    )

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        require_time_order(self.since, self.until)
        return self

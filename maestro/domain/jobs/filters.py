"""The filter and the page cursor of job lists, and groups of failures of the same kind."""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Self

from pydantic import Field, TypeAdapter, model_validator

from maestro.domain.columns import LARGEST
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.values import Moment, SearchText, Value, View, require_time_order

SEPARATOR = " "
MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)
"""The validator of times: it refuses times that cannot be converted to UTC or stored."""

AT_TOLERANCE = timedelta(minutes=2)
"""How far the filter's ``at`` may be from a job's creation or end: users remember times to the minute."""

LOOK_BACK = timedelta(days=1)
"""How long before the filter's ``at`` an ended job may have been created; without a limit, all jobs would be read."""

WILDCARD = "*"
"""The wildcard for an id, a number or a quoted value in a reason; in a filter, it matches any text."""

PATTERN_CHARS = 200
"""The most characters of a pattern of reasons; reasons that differ only after these are of the same kind."""

OUTAGE_GAP = timedelta(minutes=30)
"""The longest time between two failures of one outage; a later failure begins another outage."""

_READ_CHARS = 2 * PATTERN_CHARS
_VARYING_PART = re.compile(
    r"(?<!\w)'[^'\n]*'(?!\w)"
    r"|\"[^\"\n]*\""
    r"|`[^`\n]*`"
    r"|(?<![\w.:+-])(?=[\w.:+-]*\d)\w(?:[\w.:+-]*\w)?"
)


@dataclass(frozen=True)
class PageCursor:
    """The position after a page of a list, newest first: the ``created_at`` and the id of the last row."""

    created_at: datetime
    job_id: str

    def encode_text(self) -> str:
        """Return the cursor as an opaque text for API clients."""
        text = f"{self.created_at.isoformat()}{SEPARATOR}{self.job_id}"
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def parse_text(cls, text: str) -> "PageCursor":
        """Read the text of a cursor, as ``encode_text`` returns it; raises ``ValueError`` for any other text."""
        try:
            moment, _, job_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(SEPARATOR)
            created_at = MOMENT.validate_python(datetime.fromisoformat(moment))
        except ValueError:
            job_id = ""
        if not job_id:
            raise ValueError("this is not a cursor from an earlier answer")
        return cls(created_at, job_id)

    @classmethod
    def parse_row_position(cls, text: str) -> tuple[datetime, int]:
        """Read a cursor text as the time and the numeric id of a row; raises ``ValueError`` for any other text."""
        cursor = cls.parse_text(text)
        if not (cursor.job_id.isascii() and cursor.job_id.isdecimal() and len(cursor.job_id) < 19):
            raise ValueError("this is not a cursor from an earlier answer")
        return cursor.created_at, int(cursor.job_id)


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
    reason: SearchText | None = Field(default=None, description="why the job ended; a ``*`` matches any text")
    batch: str | None = Field(default=None, description="the id of the batch that began or cancelled the job")
    since: Moment | None = Field(default=None, description="created at or after this time")
    until: Moment | None = Field(default=None, description="created before this time")
    at: Moment | None = Field(
        default=None,
        description="created within two minutes of this time or open then; an ended job only if "
        "it was created at most a day before",
    )
    q: SearchText | None = Field(
        default=None, description="a part of the id, the message or the task, the user's name, the error or the reason"
    )

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        require_time_order(self.since, self.until)
        return self


def error_pattern(reason: str) -> str:
    """Return a failure's reason with ``*`` for each id, number and quoted value, so that like failures are equal."""
    pattern = re.sub(r"\*(?:[\s,;/]*\*)+", WILDCARD, _VARYING_PART.sub(WILDCARD, reason[:_READ_CHARS]))
    is_whole = len(reason) <= _READ_CHARS and len(pattern) <= PATTERN_CHARS
    return pattern if is_whole else f"{pattern[:PATTERN_CHARS].rstrip(WILDCARD)}{WILDCARD}"


@dataclass(frozen=True)
class FailureCount:
    """The number of an agent's jobs that failed at one step for one reason; times are texts as stored."""

    error: str
    step: str
    reason: str
    agent: str | None
    count: int
    oldest: str
    newest: str
    example: str
    """The highest id among these jobs; ids of one kind of job grow with time, so it is the latest job's."""


class ErrorGroup(View):
    """Failed jobs with the same error class, step and reason; ``*`` stands for the parts in which reasons differ.

    ``example`` is the id of one of the jobs. A filter with this ``error``, ``step`` and ``reason`` selects all of them.
    """

    error: str
    step: str
    reason: str
    count: int
    oldest: datetime
    newest: datetime
    example: str
    agents: tuple[str, ...]


class ErrorGroupPage(View):
    """All groups of failures, the group with the newest failure first; ``next`` is always null."""

    items: tuple[ErrorGroup, ...]
    next: str | None = None


def group_failures(failures: Iterable[FailureCount]) -> ErrorGroupPage:
    """Group failure counts by error, step and pattern of the reason, the group with the newest failure first."""
    by_kind: dict[tuple[str, str, str], list[FailureCount]] = {}
    for failure in failures:
        by_kind.setdefault((failure.error, failure.step, error_pattern(failure.reason)), []).append(failure)
    groups = []
    for (error, step, reason), counts in by_kind.items():
        newest = max(counts, key=attrgetter("newest"))
        group = ErrorGroup(
            error=error,
            step=step,
            reason=reason,
            count=sum(failure.count for failure in counts),
            oldest=datetime.fromisoformat(min(failure.oldest for failure in counts)),
            newest=datetime.fromisoformat(newest.newest),
            example=newest.example,
            agents=tuple(sorted({failure.agent for failure in counts if failure.agent is not None})),
        )
        groups.append(group)
    return ErrorGroupPage(items=tuple(sorted(groups, key=attrgetter("newest"), reverse=True)))


@dataclass(frozen=True)
class FailedJob:
    """A failed job with its error and reason; failures are ordered by the time ``at``."""

    job_id: str
    error: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Outage:
    """A series of jobs that failed for one reason, at most ``OUTAGE_GAP`` apart; ``job_id`` is the newest job."""

    error: str
    reason: str
    count: int
    since: datetime
    until: datetime
    job_id: str

    def narrow_filter(self, job_filter: JobFilter) -> JobFilter:
        """Return a copy of the job filter, narrowed to the failed jobs of this outage."""
        end = self.until + timedelta(microseconds=1)  # the ``until`` of a filter is exclusive
        own = {"error": self.error, "reason": self.reason, "since": self.since, "until": end}
        return job_filter.model_copy(update={**own, "status": (JobStatus.FAILED,)})


def find_outage(newest: FailedJob, earlier: Iterable[FailedJob]) -> Outage:
    """Return the outage of ``newest``; ``earlier`` are this and older failures with the same error, newest first."""
    reason, first, count = error_pattern(newest.reason), newest, 0
    for job in earlier:
        if first.at - job.at > OUTAGE_GAP:
            break
        if job.at <= newest.at and error_pattern(job.reason) == reason:
            first, count = job, count + 1
    return Outage(newest.error, reason, count, first.at, newest.at, newest.job_id)

"""The filter and the page cursor of lists of jobs, and failures of the same kind, which a filter selects."""

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
"""The most time between ``at`` and the creation or end of a job: users remember times to the minute."""

LOOK_BACK = timedelta(days=1)
"""The longest time between the creation of an ended job and ``at``: without a limit, every older job would be read."""

WILDCARD = "*"
"""The wildcard in a pattern: it stands for an id, a number or a quoted value, and a filter matches any text with it."""

PATTERN_CHARS = 200
"""The most characters of a pattern: reasons that differ only after that are of the same kind."""

OUTAGE_GAP = timedelta(minutes=30)
"""An outage ends after this time without a failure; the next failure of its kind begins another outage."""

_READ_CHARS = 2 * PATTERN_CHARS
_VARYING_PART = re.compile(
    r"(?<!\w)'[^'\n]*'(?!\w)"
    r"|\"[^\"\n]*\""
    r"|`[^`\n]*`"
    r"|(?<![\w.:+-])(?=[\w.:+-]*\d)\w(?:[\w.:+-]*\w)?"
)


@dataclass(frozen=True)
class PageCursor:
    """The last job, or other row, of a page: lists are newest first, and ``created_at`` is the time that sorts them."""

    created_at: datetime
    job_id: str

    def encode_text(self) -> str:
        """Return the cursor as an opaque text for API clients."""
        text = f"{self.created_at.isoformat()}{SEPARATOR}{self.job_id}"
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def parse_text(cls, text: str) -> "PageCursor":
        """Read a text that ``encode_text`` returned; raises ``ValueError`` for any other text."""
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
        """Read the time and the id of a row, of which ``encode_text`` returned the text; raises ``ValueError``."""
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


def error_pattern(reason: str) -> str:
    """Return a reason with ``*`` for each id, number and quoted value, which differ in failures of one kind."""
    pattern = re.sub(r"\*(?:[\s,;/]*\*)+", WILDCARD, _VARYING_PART.sub(WILDCARD, reason[:_READ_CHARS]))
    is_whole = len(reason) <= _READ_CHARS and len(pattern) <= PATTERN_CHARS
    return pattern if is_whole else f"{pattern[:PATTERN_CHARS].rstrip(WILDCARD)}{WILDCARD}"


@dataclass(frozen=True)
class FailureCount:
    """The number of jobs of an agent that failed at a step for a reason; times are texts in their stored form."""

    error: str
    step: str
    reason: str
    agent: str | None
    count: int
    oldest: str
    newest: str
    example: str
    """The highest id among these jobs: ids of one kind of job sort by time, so this is the latest job."""


class ErrorGroup(View):
    """Failures of one kind: the class of the error, the step, and the reason with ``*`` for the varying parts.

    ``example`` is the id of one of these jobs. A filter with the same ``error``, ``step`` and ``reason`` selects them.
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
    """All kinds of failures, the kind with the newest failure first; ``next`` is always null."""

    items: tuple[ErrorGroup, ...]
    next: str | None = None


def group_failures(failures: Iterable[FailureCount]) -> ErrorGroupPage:
    """Return failure counts as groups of the same kind, the kind with the newest failure first."""
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
    """A failed job with its error, its reason and the time by which failures are ordered."""

    job_id: str
    error: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Outage:
    """Jobs that failed for one reason (a pattern), each at most ``OUTAGE_GAP`` after the one before, and the newest."""

    error: str
    reason: str
    count: int
    since: datetime
    until: datetime
    job_id: str

    def narrow_filter(self, job_filter: JobFilter) -> JobFilter:
        """Return a copy of the job filter, narrowed to the failed jobs of this outage."""
        end = self.until + timedelta(microseconds=1)  # ``until`` of a filter excludes its own moment
        own = {"error": self.error, "reason": self.reason, "since": self.since, "until": end}
        return job_filter.model_copy(update={**own, "status": (JobStatus.FAILED,)})


def find_outage(newest: FailedJob, earlier: Iterable[FailedJob]) -> Outage:
    """Return the outage that ``newest`` belongs to; ``earlier`` are failures with the same error, newest first."""
    reason, first, count = error_pattern(newest.reason), newest, 0
    for job in earlier:
        if first.at - job.at > OUTAGE_GAP:
            break
        if job.at <= newest.at and error_pattern(job.reason) == reason:
            first, count = job, count + 1
    return Outage(newest.error, reason, count, first.at, newest.at, newest.job_id)

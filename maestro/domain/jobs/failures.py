"""Failures of the same kind: error reasons without the details that differ from job to job."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobStatus
from maestro.domain.values import View

ANY = "*"
"""The wildcard in a pattern: it stands for an id, a number or a quoted value, and a filter matches any text with it."""

LONGEST = 200
"""The most characters of a pattern: reasons that differ only beyond them are of the same kind."""

OUTAGE_GAP = timedelta(minutes=30)
"""An outage ends after this time without a failure; the next failure of its kind begins another outage."""

_READ = 2 * LONGEST
_DIFFERS = re.compile(
    r"(?<!\w)'[^'\n]*'(?!\w)"
    r"|\"[^\"\n]*\""
    r"|`[^`\n]*`"
    r"|(?<![\w.:+-])(?=[\w.:+-]*\d)\w(?:[\w.:+-]*\w)?"
)
_AGAIN = re.compile(r"\*(?:[\s,;/]*\*)+")


def pattern_of(reason: str) -> str:
    """Return a reason with ``*`` in place of each id, number and quoted value.

    So a thousand failures of one kind have one pattern.
    """
    found = _AGAIN.sub(ANY, _DIFFERS.sub(ANY, reason[:_READ]))
    whole = len(reason) <= _READ and len(found) <= LONGEST
    return found if whole else f"{found[:LONGEST].rstrip(ANY)}{ANY}"


@dataclass(frozen=True)
class FailureCount:
    """The number of jobs of one agent that failed at one step for one reason.

    ``oldest`` and ``newest`` are times as text in the stored form, which sorts by time.
    """

    error: str
    step: str
    reason: str
    agent: str | None
    count: int
    oldest: str
    newest: str
    example: str
    """The highest id of these jobs: of jobs of the same kind, that is the latest one."""


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


def grouped(failures: Iterable[FailureCount]) -> ErrorGroupPage:
    """Return failure counts as groups of the same kind, the kind with the newest failure first."""
    kinds: dict[tuple[str, str, str], list[FailureCount]] = {}
    for one in failures:
        kinds.setdefault((one.error, one.step, pattern_of(one.reason)), []).append(one)
    groups = [_group(*kind, same) for kind, same in kinds.items()]
    return ErrorGroupPage(items=tuple(sorted(groups, key=lambda group: group.newest, reverse=True)))


def _group(error: str, step: str, reason: str, same: Sequence[FailureCount]) -> ErrorGroup:
    newest = max(same, key=lambda one: one.newest)
    return ErrorGroup(
        error=error,
        step=step,
        reason=reason,
        count=sum(one.count for one in same),
        oldest=datetime.fromisoformat(min(one.oldest for one in same)),
        newest=datetime.fromisoformat(newest.newest),
        example=newest.example,
        agents=tuple(sorted({one.agent for one in same if one.agent is not None})),
    )


@dataclass(frozen=True)
class FailedJob:
    """The id, the reason and the creation time of a failed job."""

    job_id: str
    reason: str
    created_at: datetime


@dataclass(frozen=True)
class Outage:
    """Jobs that failed for the same reason, each created at most ``OUTAGE_GAP`` after the one before.

    ``job_id`` is the newest of them; ``reason`` has ``*`` for the varying parts.
    """

    error: str
    reason: str
    count: int
    since: datetime
    until: datetime
    job_id: str

    def filter(self, wanted: JobFilter) -> JobFilter:
        """Return the filter ``wanted``, narrowed to the failed jobs of this outage."""
        after = self.until + timedelta(microseconds=1)  # the end of a filter is exclusive
        chosen = {"error": self.error, "reason": self.reason, "since": self.since, "until": after}
        return wanted.model_copy(update={**chosen, "status": (JobStatus.FAILED,)})


def outage(error: str, newest: FailedJob, earlier: Iterable[FailedJob]) -> Outage:
    """Return the outage that ``newest`` belongs to; ``earlier`` are failures with the same error, newest first."""
    kind, first, count = pattern_of(newest.reason), newest, 0
    for one in earlier:
        if first.created_at - one.created_at > OUTAGE_GAP:
            break
        if one.created_at <= newest.created_at and pattern_of(one.reason) == kind:
            first, count = one, count + 1
    return Outage(error, kind, count, first.created_at, newest.created_at, newest.job_id)

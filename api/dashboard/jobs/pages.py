"""The page of jobs: counts by status, a filter, and failures grouped by error."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.dashboard.forms import moment_with_zone, read_filters
from api.dashboard.pages import address, not_modified, render
from api.dashboard.words import clock
from api.guards import Parts, PasswordRoute
from connectors.platforms import platforms
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import read
from maestro.domain.jobs.filters import (
    LOOK_BACK,
    ErrorGroup,
    FailedJob,
    JobFilter,
    Outage,
    PageCursor,
    find_outage,
    group_failures,
    pattern_of,
)
from maestro.domain.jobs.job import OPEN, JobKind, JobStatus
from maestro.domain.jobs.views import JobSummary, ListedJob, job_summary
from maestro.store.transaction import Transaction

PAGE = "/queue"
AGES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
"""The ages that the filter offers, by the word in the page's address."""
LISTS = frozenset({"status", "kind"})
FORM_FIELDS = frozenset({"status", "kind", "agent", "platform", "error", "priority", "at", "q"})
"""The filters for which the form has fields; links set the others, and the form sends them along."""
MAY_BE_EMPTY = frozenset({"step", "reason"})
"""Filters that may be set to an empty value, because a failure may have no step or reason."""
MAX_VALUE_CHARS = 80
"""The most characters of one value in the description of a filter."""

PAGE_SIZE = 50
"""The most jobs on one page."""
OUTAGE_FAILURES = 5
"""The number of similar failures from which on the page shows them as one outage."""
MOST_OUTAGES = 3
"""The most outages on one page, because each takes two queries."""
GROUPS = 100
"""The most groups of failures on the page."""
BUSY_REFRESH_MS = 1_000
IDLE_REFRESH_MS = 3_000
"""Milliseconds between two refreshes, while a job is open, and while only new jobs can change the page.

A text search counts as idle, because it reads every message.
"""
GROUPS_REFRESH_MS = 5_000
"""Milliseconds between two refreshes of grouped failures, which read every failure."""
WEB = "web"
"""The built-in web platform, which ``platforms`` does not list."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


def page_of(filter_: JobFilter) -> str:
    """Return the address of the job list with this filter."""
    return address(PAGE, filter_.model_dump(mode="json", exclude_defaults=True))


def describe_filter(filter_: JobFilter) -> str:
    """Return a job filter in words, such as ``status failed, agent ada``."""
    fields = filter_.model_dump(exclude_defaults=True)
    return ", ".join(f"{name} {_describe_value(value)}" for name, value in fields.items()) or "every job"


def _describe_value(value: object) -> str:
    if isinstance(value, datetime):
        return clock(value)
    text = " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"


@dataclass(frozen=True)
class JobListing:
    """A page of the jobs that match a filter; ``counts`` are of every status, ``total`` only of the selected ones.

    ``jobs`` does not contain the jobs of the ``outages``.
    """

    filter: JobFilter
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    jobs: Sequence[JobSummary] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    groups: Sequence[ErrorGroup] = ()
    outages: Sequence[Outage] = ()
    next: str | None = None
    grouped: bool = False

    @property
    def entries(self) -> Sequence[JobSummary | Outage]:
        """The jobs and outages of the page, sorted by their newest job, newest first."""
        return sorted(
            (*self.jobs, *self.outages),
            key=lambda entry: entry.created_at if isinstance(entry, JobSummary) else entry.until,
            reverse=True,
        )

    @property
    def every(self) -> int:
        """The number of matching jobs of any status."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """The number of matching jobs of the selected statuses."""
        return sum(self.counts.get(status, 0) for status in set(self.filter.status or self.counts))

    @property
    def refresh_ms(self) -> int:
        """Milliseconds until the page refreshes itself."""
        if self.grouped:
            return GROUPS_REFRESH_MS
        busy = any(self.counts.get(status) for status in OPEN) and not self.filter.q
        return BUSY_REFRESH_MS if busy else IDLE_REFRESH_MS


@router.get("")
def show_jobs(request: Request, parts: Parts) -> Response:
    """List the jobs that match a filter, newest first, or the failed ones grouped by error."""
    if same := not_modified(request):
        return same
    query: dict[str, Any] = read_filters(request, (*JobFilter.model_fields, "age", "group", "cursor"))
    query |= {name: tuple(filter(None, request.query_params.getlist(name))) for name in LISTS}
    empty = MAY_BE_EMPTY & request.query_params.keys()
    fields = {name: query[name] for name in JobFilter.model_fields if query[name] or name in empty}
    with parts.store.view() as tx:
        agents = sorted(agent.slug for agent in tx.agents.list_all())
        try:
            filter_ = _job_filter(fields, query["age"], tx.now)
            listing, problem = _read_listing(tx, filter_, query["group"], query["cursor"]), None
        except MaestroError as error:
            listing, problem = JobListing(JobFilter()), error
    return render(
        request,
        "jobs.html",
        query=query,
        besides={name: text for name, text in fields.items() if name not in FORM_FIELDS},
        listing=listing,
        problem=problem,
        agents=agents,
        platforms=(WEB, *platforms()),
        statuses=tuple(JobStatus),
        kinds=tuple(JobKind),
        ages=tuple(AGES),
        at_time=f"{listing.filter.at.astimezone(UTC):%Y-%m-%dT%H:%M}" if listing.filter.at else "",
        errors=sorted({job.error for job in listing.jobs if job.error}),
        most_groups=GROUPS,
        page_of=page_of,
        group_filter=group_filter,
    )


def group_filter(filter_: JobFilter, group: ErrorGroup) -> JobFilter:
    """Return the filter for the jobs of a group: same error and step, and a similar reason."""
    kind = {"error": group.error, "step": group.step, "reason": group.reason}
    return filter_.model_copy(update={**kind, "status": (JobStatus.FAILED,)})


def _job_filter(fields: Mapping[str, Any], age: str, now: datetime) -> JobFilter:
    """Return the job filter of an address, in which ``at`` may lack a time zone; raises ``InvalidEdit``."""
    at = {"at": moment_with_zone(fields["at"])} if "at" in fields else {}
    since = {"since": now - AGES[age]} if age in AGES else {}
    return read(JobFilter, {**fields, **at, **since})


def _read_listing(tx: Transaction, filter_: JobFilter, group: str, cursor: str) -> JobListing:
    if group == "error":
        filter_ = filter_.model_copy(update={"status": ()})
        return JobListing(filter_, groups=group_failures(tx.jobs.counts.group_failures(filter_)).items, grouped=True)
    counts = tx.jobs.counts.count_by_status(filter_)
    if not any(count for status, count in counts.items() if status in (filter_.status or counts)):
        # No job matches, so the list is not queried: for a text search that would read all messages once more.
        return JobListing(filter_, counts)
    try:
        after = PageCursor.decode(cursor) if cursor else None
    except ValueError:
        raise InvalidEdit("this page of the list does not exist; go back to the first page") from None
    outages: list[Outage] = []
    found, following = tx.jobs.lists.list_jobs(filter_, after, PAGE_SIZE)
    while len(outages) < MOST_OUTAGES and (next_outage := _find_outage(tx, filter_, found)):
        outages.append(next_outage)
        excluded = [one.narrow_filter(filter_) for one in outages]
        found, following = tx.jobs.lists.list_jobs(filter_, after, PAGE_SIZE, excluded)
    jobs = tuple(map(job_summary, found))
    return JobListing(
        filter_,
        counts,
        jobs,
        tx.llm.calls.read_costs([job.id for job in jobs]),
        outages=outages,
        next=following.encode() if following else None,
    )


def _find_outage(tx: Transaction, filter_: JobFilter, listed: Sequence[ListedJob]) -> Outage | None:
    """Return the outage to which most failed jobs of a page belong; None if the filter already selects one kind."""
    if filter_.error is not None or filter_.reason is not None:
        return None
    failed = [entry.job for entry in listed if entry.job.status is JobStatus.FAILED]
    kinds = Counter((job.error, pattern_of(job.reason)) for job in failed)
    kind, count = kinds.most_common(1)[0] if kinds else (None, 0)
    if count < OUTAGE_FAILURES:
        return None
    newest = next(job for job in failed if (job.error, pattern_of(job.reason)) == kind)
    since = max(filter(None, (filter_.since, newest.created_at - LOOK_BACK)))
    similar = {"error": newest.error, "status": (JobStatus.FAILED,), "since": since}
    earlier = tx.jobs.counts.list_failed(filter_.model_copy(update=similar))
    whole = find_outage(newest.error, FailedJob(newest.id, newest.reason, newest.created_at), earlier)
    return whole if whole.count >= OUTAGE_FAILURES else None

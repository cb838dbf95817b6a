"""The page of jobs: counts by status, a filter, and failures grouped by cause."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from api.dashboard.forms import moment_with_zone
from api.dashboard.pages import render
from api.dashboard.words import clock
from api.guards import PasswordRoute
from api.live import unchanged
from api.routes.dependencies import Parts
from connectors.platforms import platforms
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import read
from maestro.domain.jobs.failures import ErrorGroup, FailedJob, Outage, grouped, outage, pattern_of
from maestro.domain.jobs.filters import LOOK_BACK, JobFilter, PageCursor
from maestro.domain.jobs.job import OPEN, JobKind, JobStatus
from maestro.domain.jobs.views import JobSummary, ListedJob, job_summary
from maestro.store.transaction import Transaction

PAGE = "/queue"
AGES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
"""How far back the page looks, by the words of its address."""
SEVERAL = frozenset({"status", "kind"})
OFFERED = frozenset({"status", "kind", "agent", "platform", "error", "priority", "at", "q"})
"""What the form asks for; the other fields come with links, and the form keeps them."""
MAY_BE_EMPTY = frozenset({"step", "reason"})
"""A failure may have none of it, and a link may mean just these; no form sends them empty."""
LONGEST = 80
"""Characters of one value that are said in words."""

TITLE = "Jobs – Maestro"
SHOWN = 50
"""Jobs on one page."""
MANY = 5
"""Failures of one kind on a page that are shown as one outage."""
MOST_OUTAGES = 3
"""Outages that are looked for on one page: each takes two queries."""
GROUPS = 100
"""Kinds of failures on the page; more of them than anybody reads would make it heavy."""
LOOK_MS = 1_000
REST_MS = 3_000
"""Milliseconds between two looks, while something is open, and while only new jobs can change the page.

A text is looked for in every message, which is too much work for each second.
"""
GROUPS_MS = 5_000
"""Milliseconds between two looks at failures, every one of which is read."""
BY_ERROR = "error"
WEB = "web"
"""Is part of Maestro, so no package brings it."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class JobListQuery(BaseModel):
    """The parameters of the page's address, which the job filter validates.

    ``age`` is one of ``AGES``, ``group`` is ``error`` to group failures. A form sends ``at`` without a zone.
    """

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    agent: str = ""
    platform: str = ""
    account: str = ""
    channel: str = ""
    priority: str = ""
    client: str = ""
    conversation: str = ""
    schedule: str = ""
    webhook: str = ""
    error: str = ""
    step: str = ""
    reason: str = ""
    batch: str = ""
    since: str = ""
    until: str = ""
    at: str = ""
    q: str = ""
    age: str = ""
    group: str = ""
    cursor: str = ""

    def filter(self, now: datetime) -> JobFilter:
        """Return the job filter; raises ``InvalidEdit``."""
        found: dict[str, Any] = {name: value for name, value in self._given() if name in JobFilter.model_fields}
        if "at" in found:
            found["at"] = moment_with_zone(found["at"])
        if self.age in AGES:
            found["since"] = now - AGES[self.age]
        return read(JobFilter, found)

    def besides(self) -> Mapping[str, str]:
        """Return the filters that have no field in the form."""
        return {name: str(value) for name, value in self._given() if name in _BESIDES}

    def _given(self) -> Iterator[tuple[str, Any]]:
        for name, value in self:
            if name in SEVERAL:
                words = tuple(word for word in value if word)
                if words:
                    yield name, words
            elif value.strip() or (name in MAY_BE_EMPTY and name in self.model_fields_set):
                yield name, value.strip()


_BESIDES = frozenset(JobFilter.model_fields) - OFFERED


def page_of(wanted: JobFilter) -> str:
    """Return the address of the job list with this filter."""
    given = wanted.model_dump(mode="json", exclude_defaults=True)
    return PAGE + (f"?{urlencode(given, doseq=True)}" if given else "")


def words_of(wanted: JobFilter) -> str:
    """Return a filter in words, such as ``status failed, agent ada``."""
    given = wanted.model_dump(exclude_defaults=True)
    return ", ".join(f"{name} {_word(value)}" for name, value in given.items()) or "every job"


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return clock(value)
    text = " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@dataclass(frozen=True)
class JobListing:
    """What the page shows of the jobs that match; ``counts`` are of every status, ``total`` is of those listed.

    The jobs of the ``outages`` are not among the ``jobs``.
    """

    wanted: JobFilter
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    jobs: Sequence[JobSummary] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    groups: Sequence[ErrorGroup] = ()
    outages: Sequence[Outage] = ()
    next: str | None = None
    grouped: bool = False

    @property
    def entries(self) -> Sequence[JobSummary | Outage]:
        """Jobs and outages, those with the newest job first."""
        return sorted((*self.jobs, *self.outages), key=_newest, reverse=True)

    @property
    def every(self) -> int:
        """The number of jobs of any status."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """The number of matching jobs."""
        chosen = self.wanted.status or tuple(self.counts)
        return sum(self.counts.get(status, 0) for status in set(chosen))

    @property
    def pause(self) -> int:
        """Milliseconds until the page refreshes."""
        if self.grouped:
            return GROUPS_MS
        busy = any(self.counts.get(status) for status in OPEN) and not self.wanted.q
        return LOOK_MS if busy else REST_MS


@router.get("")
def show(request: Request, parts: Parts, asked: Annotated[JobListQuery, Query()]) -> Response:
    """List the jobs of a filter, newest first, or group those that failed."""
    same = unchanged(request)
    if same is not None:
        return same
    with parts.store.view() as tx:
        agents = sorted(agent.slug for agent in tx.agents.all())
        try:
            found, problem = _listing(tx, asked), None
        except MaestroError as error:
            found, problem = JobListing(JobFilter()), error
    return render(
        request,
        "jobs.html",
        title=TITLE,
        asked=asked,
        listing=found,
        problem=problem,
        agents=agents,
        platforms=(WEB, *platforms()),
        statuses=tuple(JobStatus),
        kinds=tuple(JobKind),
        ages=tuple(AGES),
        around=f"{found.wanted.at.astimezone(UTC):%Y-%m-%dT%H:%M}" if found.wanted.at else "",
        errors=sorted({job.error for job in found.jobs if job.error}),
        shown=GROUPS,
        page_of=page_of,
        group_filter=group_filter,
    )


def group_filter(wanted: JobFilter, group: ErrorGroup) -> JobFilter:
    """Return the filter of a group of failures: same error and step, and a similar reason."""
    kind = {"error": group.error, "step": group.step, "reason": group.reason}
    return wanted.model_copy(update={**kind, "status": (JobStatus.FAILED,)})


def _listing(tx: Transaction, asked: JobListQuery) -> JobListing:
    wanted = asked.filter(tx.now)
    if asked.group == BY_ERROR:
        wanted = wanted.model_copy(update={"status": ()})
        return JobListing(wanted, groups=grouped(tx.jobs.counts.failures(wanted)).items, grouped=True)
    statuses = tx.jobs.counts.statuses(wanted)
    if not any(count for status, count in statuses.items() if status in (wanted.status or statuses)):
        # No job matches. A list would repeat the scan of the counts, which for a text search reads all messages.
        return JobListing(wanted, statuses)
    after, hidden = _after(asked), list[Outage]()
    found, following = tx.jobs.lists.jobs(wanted, after, SHOWN)
    while len(hidden) < MOST_OUTAGES and (hides := _outage(tx, wanted, found)):
        hidden.append(hides)
        found, following = tx.jobs.lists.jobs(wanted, after, SHOWN, [one.filter(wanted) for one in hidden])
    jobs = tuple(map(job_summary, found))
    return JobListing(
        wanted,
        statuses,
        jobs,
        tx.llm.calls.costs([job.id for job in jobs]),
        outages=hidden,
        next=following.encode() if following else None,
    )


def _outage(tx: Transaction, wanted: JobFilter, found: Sequence[ListedJob]) -> Outage | None:
    """Return the outage that most jobs of a page belong to; none in a list of failures of one kind."""
    if wanted.error is not None or wanted.reason is not None:
        return None
    failed = [one.job for one in found if one.job.status is JobStatus.FAILED]
    kinds = Counter((job.error, pattern_of(job.reason)) for job in failed)
    kind, count = kinds.most_common(1)[0] if kinds else (None, 0)
    if count < MANY:
        return None
    newest = next(job for job in failed if (job.error, pattern_of(job.reason)) == kind)
    since = max(filter(None, (wanted.since, newest.created_at - LOOK_BACK)))
    alike = {"error": newest.error, "status": (JobStatus.FAILED,), "since": since}
    earlier = tx.jobs.counts.failed(wanted.model_copy(update=alike))
    whole = outage(newest.error, FailedJob(newest.id, newest.reason, newest.created_at), earlier)
    return whole if whole.count >= MANY else None


def _newest(entry: JobSummary | Outage) -> datetime:
    return entry.created_at if isinstance(entry, JobSummary) else entry.until


def _after(asked: JobListQuery) -> PageCursor | None:
    if not asked.cursor:
        return None
    try:
        return PageCursor.decode(asked.cursor)
    except ValueError:
        raise InvalidEdit("this page of the list does not exist; go back to the first one") from None

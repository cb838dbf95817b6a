"""The page of jobs: how many of which status, a filter, and what failed by what went wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.dashboard.job_filters import AGES, PAGE, Asked, page_of
from api.dashboard.pages import render
from api.errors import status_of
from api.guards import PasswordRoute
from api.live import unchanged
from api.routes.surroundings import Parts
from connectors.platforms import platforms
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.jobs.cursors import Cursor
from maestro.domain.jobs.failures import ErrorGroup, grouped
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import OPEN, JobKind, JobStatus
from maestro.domain.jobs.views import JobSummary, summary
from maestro.store.transaction import Transaction

TITLE = "Jobs – Maestro"
SHOWN = 50
"""Jobs on one page."""
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


@dataclass(frozen=True)
class Listing:
    """What the page shows of the jobs that match; ``counts`` are of every status, ``total`` is of those listed."""

    wanted: JobFilter
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    jobs: Sequence[JobSummary] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    groups: Sequence[ErrorGroup] = ()
    next: str | None = None
    grouped: bool = False

    @property
    def every(self) -> int:
        """How many there are, whatever their status."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """How many match."""
        chosen = self.wanted.status or tuple(self.counts)
        return sum(self.counts.get(status, 0) for status in set(chosen))

    @property
    def pause(self) -> int:
        """Milliseconds until the page looks again."""
        if self.grouped:
            return GROUPS_MS
        busy = any(self.counts.get(status) for status in OPEN) and not self.wanted.q
        return LOOK_MS if busy else REST_MS


@router.get("")
def show(request: Request, parts: Parts, asked: Annotated[Asked, Query()]) -> Response:
    """List the jobs of a filter, newest first, or group those that failed."""
    same = unchanged(request)
    if same is not None:
        return same
    with parts.store.view() as tx:
        agents = sorted(agent.slug for agent in tx.agents.all())
        try:
            found, problem = _listing(tx, asked), None
        except MaestroError as error:
            found, problem = Listing(JobFilter()), error
    return render(
        request,
        "jobs.html",
        status_of(problem) if problem else HTTPStatus.OK,
        title=TITLE,
        asked=asked,
        listing=found,
        problem=str(problem or ""),
        agents=agents,
        platforms=(WEB, *platforms()),
        statuses=tuple(JobStatus),
        kinds=tuple(JobKind),
        ages=tuple(AGES),
        errors=sorted({job.error for job in found.jobs if job.error}),
        shown=GROUPS,
        page_of=page_of,
        group_filter=group_filter,
    )


def group_filter(wanted: JobFilter, group: ErrorGroup) -> JobFilter:
    """Return the filter of a group of failures: their error and step, and a reason like theirs."""
    kind = {"error": group.error, "step": group.step, "reason": group.reason}
    return wanted.model_copy(update={**kind, "status": (JobStatus.FAILED,)})


def _listing(tx: Transaction, asked: Asked) -> Listing:
    wanted = asked.filter(tx.now)
    if asked.group == BY_ERROR:
        wanted = wanted.model_copy(update={"status": ()})
        return Listing(wanted, groups=grouped(tx.tallies.failures(wanted)).items, grouped=True)
    found, following = tx.browse.jobs(wanted, _after(asked), SHOWN)
    jobs = tuple(map(summary, found))
    return Listing(
        wanted,
        tx.tallies.statuses(wanted),
        jobs,
        tx.calls.costs([job.id for job in jobs]),
        next=following.encode() if following else None,
    )


def _after(asked: Asked) -> Cursor | None:
    if not asked.cursor:
        return None
    try:
        return Cursor.decode(asked.cursor)
    except ValueError:
        raise InvalidEdit("this page of the list does not exist; go back to the first one") from None

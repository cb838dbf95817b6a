"""The page of jobs, with counts, a filter and grouped failures, and the page of questions and approvals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.dashboard.forms import FormRow, FormText, moment_with_zone, read_filters, read_query, submit
from api.dashboard.pages import address, link, not_modified, redirect_to_page, render
from api.dashboard.words import clock
from api.front import SAFE_METHODS
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from api.parts import ApiParts
from connectors.platforms import platforms
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.jobs.filters import (
    LOOK_BACK,
    ErrorGroup,
    FailedJob,
    JobFilter,
    Outage,
    PageCursor,
    error_pattern,
    find_outage,
    group_failures,
)
from maestro.domain.jobs.job import OPEN, JobKind, JobStatus
from maestro.domain.jobs.views import JobSummary, ListedJob, job_summary
from maestro.domain.questions.question import QuestionStatus
from maestro.domain.values import read
from maestro.operations.questions import QuestionQuery
from maestro.store.transaction import Transaction

PAGE = "/queue"
AGES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
"""The maximum ages of jobs that the filter offers, by their names in the page's address."""
LISTS = frozenset({"status", "kind"})
FORM_FIELDS = frozenset({"status", "kind", "agent", "platform", "error", "priority", "at", "q"})
"""The filters with a visible form field; links set the other filters, which are hidden form fields."""
MAX_VALUE_CHARS = 80
"""The most characters of one value in the description of a filter."""

PAGE_SIZE = 50
"""The most jobs on one page."""
OUTAGE_FAILURES = 5
"""The page shows at least this many similar failures as one outage."""
BUSY_REFRESH_MS = 1_000
IDLE_REFRESH_MS = 3_000
"""Milliseconds between two refreshes of the page: BUSY while a job is open, IDLE otherwise and for a text search."""
WEB = "web"
"""The built-in web platform, which ``platforms()`` does not return."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

QUESTIONS_PAGE = "/questions"
MOST_OPEN = 100
"""The most open questions on the page; the command and the API list all."""
SETTLED = tuple(status for status in QuestionStatus if status is not QuestionStatus.OPEN)
MINUTE = "%Y-%m-%d %H:%M"

questions_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=QUESTIONS_PAGE)


def job_list_address(filter_: JobFilter) -> str:
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
    """A page of the job list; ``counts`` cover every status, ``total`` only the statuses that the filter selects.

    ``jobs`` does not contain the jobs in ``outages``, which are groups of similar failures.
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
        """The jobs and outages of the page, newest first; an outage is as new as its newest job."""
        return sorted(
            (*self.jobs, *self.outages),
            key=lambda entry: entry.created_at if isinstance(entry, JobSummary) else entry.until,
            reverse=True,
        )

    @property
    def every(self) -> int:
        """The number of jobs of any status that match the filter."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """The number of matching jobs with a status that the filter selects."""
        return sum(self.counts.get(status, 0) for status in set(self.filter.status or self.counts))

    @property
    def refresh_ms(self) -> int:
        """Milliseconds until the page refreshes itself."""
        if self.grouped:
            return 5_000  # Grouping is slow: it reads every failed job.
        busy = any(self.counts.get(status) for status in OPEN) and not self.filter.q
        return BUSY_REFRESH_MS if busy else IDLE_REFRESH_MS


@router.get("")
def show_jobs(request: Request, parts: Parts) -> Response:
    """List the jobs that match a filter, newest first, or group the failed jobs by error."""
    if same := not_modified(request):
        return same
    query: dict[str, Any] = read_filters(request, (*JobFilter.model_fields, "age", "group", "cursor"))
    query |= {name: tuple(filter(None, request.query_params.getlist(name))) for name in LISTS}
    empty = {"step", "reason"} & request.query_params.keys()  # An empty step or reason is a filter too.
    fields = {name: query[name] for name in JobFilter.model_fields if query[name] or name in empty}
    with parts.store.view() as tx:
        agents = sorted(agent.slug for agent in tx.agents.list_agents())
        try:
            at = {"at": moment_with_zone(fields["at"])} if "at" in fields else {}
            since = {"since": tx.now - AGES[query["age"]]} if query["age"] in AGES else {}
            filter_ = read(JobFilter, {**fields, **at, **since})
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
        most_groups=100,
        page_of=job_list_address,
        group_filter=group_filter,
    )


def group_filter(filter_: JobFilter, group: ErrorGroup) -> JobFilter:
    """Return the filter for the failed jobs of a group: same error and step, and a similar reason."""
    kind = {"error": group.error, "step": group.step, "reason": group.reason}
    return filter_.model_copy(update={**kind, "status": (JobStatus.FAILED,)})


def _read_listing(tx: Transaction, filter_: JobFilter, group: str, cursor: str) -> JobListing:
    if group == "error":
        filter_ = filter_.model_copy(update={"status": ()})
        return JobListing(filter_, groups=group_failures(tx.jobs.counts.group_failures(filter_)).items, grouped=True)
    counts = tx.jobs.counts.count_by_status(filter_)
    if not any(count for status, count in counts.items() if status in (filter_.status or counts)):
        # No job matches, so the list is not queried: a text search would read all messages a second time.
        return JobListing(filter_, counts)
    try:
        after = PageCursor.parse_text(cursor) if cursor else None
    except ValueError:
        raise InvalidEdit("this page of the list does not exist; go back to the first page") from None
    outages: list[Outage] = []
    found, following = tx.jobs.lists.list_jobs(filter_, after, PAGE_SIZE)
    # Each outage takes two queries, so the page shows at most three.
    while len(outages) < 3 and (next_outage := _find_frequent_failure(tx, filter_, found)):
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
        next=following.encode_text() if following else None,
    )


def _find_frequent_failure(tx: Transaction, filter_: JobFilter, listed: Sequence[ListedJob]) -> Outage | None:
    """Return the most frequent kind of failure on a page as an outage; None if it is rare or already filtered."""
    if filter_.error is not None or filter_.reason is not None:
        return None
    failed = [entry.job for entry in listed if entry.job.status is JobStatus.FAILED]
    kinds = Counter((job.error, error_pattern(job.reason)) for job in failed)
    kind, count = kinds.most_common(1)[0] if kinds else (None, 0)
    if count < OUTAGE_FAILURES:
        return None
    newest = next(job for job in failed if (job.error, error_pattern(job.reason)) == kind)
    since = max(filter(None, (filter_.since, newest.created_at - LOOK_BACK)))
    similar = {"error": newest.error, "status": (JobStatus.FAILED,), "since": since}
    earlier = tx.jobs.counts.list_failed_jobs(filter_.model_copy(update=similar))
    whole = find_outage(FailedJob(newest.id, newest.error, newest.reason, newest.created_at), earlier)
    return whole if whole.count >= OUTAGE_FAILURES else None


@questions_router.get("")
def show_questions(request: Request, parts: Parts) -> Response:
    """List the open questions, then the closed questions."""
    # The current minute is part of the page's ETag, because a question expires without a commit.
    return not_modified(request, f"{parts.clock():{MINUTE}}") or _questions_page(request)


@questions_router.post("/answer")
def answer_question(request: Request, parts: Parts, number: FormRow, words: FormText = "") -> Response:
    """Answer a question with a text, and redirect to the list."""
    return _settle_question(request, parts, number, words)


@questions_router.post("/approve")
def approve_tool_call(request: Request, parts: Parts, number: FormRow) -> Response:
    """Approve a tool call, and redirect to the list."""
    return _settle_question(request, parts, number, approves=True)


@questions_router.post("/refuse")
def refuse_tool_call(request: Request, parts: Parts, number: FormRow) -> Response:
    """Refuse a tool call, and redirect to the list."""
    return _settle_question(request, parts, number, approves=False)


def _settle_question(
    request: Request, parts: ApiParts, number: int, words: str = "", *, approves: bool | None = None
) -> Response:
    return submit(
        lambda: parts.questions.settle(number, words or None, approves, OPERATOR),
        lambda question: redirect_to_page(QUESTIONS_PAGE, settled=question.id),
        lambda error: _questions_page(request, number, words, error),
    )


def _questions_page(
    request: Request, number: int = 0, words: str = "", problem: MaestroError | None = None
) -> Response:
    """Return the page of questions; ``words`` is the refused answer to the question ``number``."""
    questions, reading = request_parts(request).questions, request.method in SAFE_METHODS
    query = QuestionQuery()
    if reading:  # After a refused form, the address contains no filter.
        states = list(filter(None, request.query_params.getlist("status")))
        query, problem = read_query(QuestionQuery, {"status": states, "cursor": request.query_params.get("cursor")})
    waiting = questions.waiting(MOST_OPEN + 1)
    settled = tuple(status for status in query.status if status in SETTLED) or SETTLED
    return render(
        request,
        "questions.html",
        waiting=waiting[:MOST_OPEN],
        more=len(waiting) > MOST_OPEN,
        settled=questions.list(query.model_copy(update={"status": settled})),
        statuses=SETTLED,
        chosen=query.status,
        first=query.cursor is None,
        answered=number,
        words=words,
        problem=problem,
        done=request.query_params.get("settled", "") if reading else "",
        address=link(request, settled=None) if reading else QUESTIONS_PAGE,
    )

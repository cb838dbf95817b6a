"""What lists ask: no page of one reads a whole table of those that grow with every message."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.conversations.views import ConversationFilter
from maestro.domain.jobs.filters import JobFilter, PageCursor
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.llm.usage import Period, UsageBy, UsageRequest, UsageScope
from maestro.domain.llm.usage_views import LatencyQuery
from maestro.store.overviews import jobs as browse
from maestro.store.transaction import Transaction
from tests.support.fresh_store import path_of
from tests.support.job_rows import MORNING, JobRows
from tests.support.plans import Plan, explain, queries

Look = Callable[[Transaction], object]

DAYS = Period(MORNING.date() - timedelta(days=29), MORNING.date())
AFTER = PageCursor(MORNING, "message-1")
GROW = ("queue", "messages", "messages_archive", "job_steps", "llm_calls", "usage_log", "deliveries", "inbox")
"""Tables that have a row or more for each message."""
NARROW = {"ix_queue_listed", "ix_queue_told", "ix_queue_status_turn", "ix_job_steps_failed"}
"""What may be read through: indexes that have all that is asked, so that no job itself is read."""


def jobs(**wanted: Any) -> Look:
    return lambda tx: tx.jobs.lists.list_jobs(JobFilter(**wanted), AFTER, 50)


def usage(by: UsageBy) -> Look:
    return lambda tx: tx.llm.usage.list_sums(UsageRequest(by, DAYS), 50)


LOOKS: dict[str, Look] = {
    "jobs": jobs(),
    "jobs, the first page": lambda tx: tx.jobs.lists.list_jobs(JobFilter(), None, 50),
    "jobs that failed": jobs(status=(JobStatus.FAILED,)),
    "jobs that completed": jobs(status=(JobStatus.COMPLETED,)),
    "jobs that ended badly": jobs(status=(JobStatus.FAILED, JobStatus.CANCELLED)),
    "open jobs": jobs(status=(JobStatus.WAITING, JobStatus.RUNNING)),
    "jobs of a kind": jobs(kind=(JobKind.CRON,)),
    "jobs of an agent": jobs(agent="ada"),
    "jobs of a platform": jobs(platform="web"),
    "jobs with an error": jobs(error="ProviderDown"),
    "failed jobs of an agent on a platform": jobs(status=(JobStatus.FAILED,), agent="ada", platform="web"),
    "jobs of a schedule": jobs(schedule="cron-1"),
    "jobs of a webhook": jobs(webhook="orders"),
    "jobs of a conversation": jobs(conversation=1),
    "jobs of a time": jobs(since=MORNING, until=MORNING),
    "jobs open at a time": jobs(at=MORNING),
    "counts of jobs open at a time": lambda tx: tx.jobs.counts.count_by_status(JobFilter(at=MORNING)),
    "jobs without an outage": lambda tx: tx.jobs.lists.list_jobs(
        JobFilter(), AFTER, 50, [JobFilter(status=(JobStatus.FAILED,), error="E", reason="no * s", since=MORNING)]
    ),
    "failed jobs of an error": lambda tx: list(
        tx.jobs.counts.list_failed_jobs(JobFilter(status=(JobStatus.FAILED,), error="E", since=MORNING))
    ),
    "a job": lambda tx: tx.jobs.lists.read_record(tx.jobs.list_running()[0].id),
    "counts of jobs": lambda tx: tx.jobs.counts.count_by_status(JobFilter()),
    "counts of jobs of an agent": lambda tx: tx.jobs.counts.count_by_status(JobFilter(agent="ada", platform="web")),
    "failures": lambda tx: tx.jobs.counts.group_failures(JobFilter()),
    "conversations": lambda tx: tx.conversations.lists.list_conversation_page(ConversationFilter(), None, 50),
    "conversations of an agent": lambda tx: tx.conversations.lists.list_conversation_page(
        ConversationFilter(agent="ada"), None, 50
    ),
    "conversations that mention": lambda tx: tx.conversations.lists.list_conversation_page(
        ConversationFilter(q="hello"), None, 50
    ),
    "messages that mention": lambda tx: tx.conversations.lists.search_messages("hello", None, 50),
    "latency": lambda tx: tx.system.latency.build_latency_page(LatencyQuery(), DAYS),
    "latency of an agent": lambda tx: tx.system.latency.build_latency_page(
        LatencyQuery(agent="ada", platform="web", client="Acme"), DAYS
    ),
    **{f"usage by {by}": usage(by) for by in UsageBy},
    "usage of an agent": lambda tx: tx.llm.usage.read_total(
        DAYS, UsageScope(agent="ada", account="main", model="m", client="c")
    ),
    "usage of days": lambda tx: tx.llm.usage.list_parts(UsageBy.AGENT, DAYS),
}


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    rows.worked(rows.add())
    rows.failed()
    yield rows
    rows.store.close()


def plans(rows: JobRows, look: Look) -> list[Plan]:
    """Return how the database finds what a look asks it."""
    with queries() as asked, rows.store.view() as tx:
        look(tx)
    return [explain(path_of(rows.store), statement, values) for statement, values in asked]


@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
def test_no_page_of_a_list_reads_a_whole_table(rows: JobRows, look: Look) -> None:
    found = plans(rows, look)
    assert found
    for plan in found:
        assert plan.lines
        assert not plan.scanned.intersection(GROW), plan
        assert plan.read_through <= NARROW, plan


SIFTED = [
    name for name in LOOKS if name.startswith(("jobs that", "jobs of a k", "jobs of an", "jobs of a p", "jobs with"))
]


@pytest.mark.parametrize("name", SIFTED)
def test_a_list_that_is_sifted_is_not_sorted(rows: JobRows, name: str) -> None:
    """The order of the list is that of its index: ninety thousand jobs of a status are not put in order for fifty."""
    plan, *_ = plans(rows, LOOKS[name])
    assert "ix_queue_listed" in plan.in_order, plan
    assert plan.sorts <= 1, f"only the page itself is sorted: {plan}"


def test_a_search_reads_narrow_indexes_and_the_messages(rows: JobRows) -> None:
    newest, plan = plans(rows, jobs(q="hello"))[:2]
    assert "inbox" not in newest.scanned, "of the newest jobs, only their own messages"
    assert "ix_queue_told" in plan.indexes, plan
    assert "ix_queue_inbox_id" in plan.covering, plan
    assert plan.scanned <= {"inbox"}, "what people wrote is searched, and nothing else is read whole"


def test_a_search_for_what_many_mention_does_not_read_all_messages(rows: JobRows) -> None:
    for _ in range(2):
        rows.add("an invoice")

    def page(tx: Transaction) -> object:
        return tx.jobs.lists.list_jobs(JobFilter(q="invoice"), None, 1)

    (plan,) = plans(rows, page)
    assert not plan.scanned.intersection(GROW), f"the newest jobs fill the page and say that another follows: {plan}"


def test_a_search_finds_the_same_in_new_and_in_old_jobs(rows: JobRows, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [rows.add(f"an invoice {number}") for number in range(4)]
    rows.add("nothing of the kind")
    wanted = JobFilter(q="invoice")
    pages = []
    for newest in (1, 3, 1_000):
        monkeypatch.setattr(browse, "NEWEST", newest)
        with rows.store.view() as tx:
            first, after = tx.jobs.lists.list_jobs(wanted, None, 3)
            second, end = tx.jobs.lists.list_jobs(wanted, after, 3)
        assert end is None
        pages.append([listed.job.id for listed in (*first, *second)])
    assert pages == [written[::-1]] * 3

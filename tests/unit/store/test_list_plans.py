"""What lists ask: no page of one reads a whole table of those that grow with every message."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from maestro.domain.conversations.views import ConversationFilter
from maestro.domain.jobs.filters import JobFilter, PageCursor
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.llm.usage import Period, UsageBy, UsageRequest, UsageScope
from maestro.domain.llm.usage_views import LatencyQuery
from maestro.store.overviews import jobs as browse
from maestro.store.transaction import Transaction
from tests.support.job_rows import MORNING, JobRows

Look = Callable[[Transaction], object]

DAYS = Period(MORNING.date() - timedelta(days=29), MORNING.date())
AFTER = PageCursor(MORNING, "message-1")
GROW = ("queue", "messages", "messages_archive", "job_steps", "llm_calls", "usage_log", "deliveries", "inbox")
"""Tables that have a row or more for each message."""
NARROW = re.compile(r"USING COVERING INDEX ix_(queue_listed|queue_told|queue_status_turn|job_steps_failed)")
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


def plans(rows: JobRows, path: Path, look: Look) -> list[tuple[str, list[str]]]:
    """Return what a look asks the database, and how the database finds it."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        asked.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with rows.store.view() as tx:
            look(tx)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    with closing(sqlite3.connect(path)) as database:
        return [
            (statement, [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)])
            for statement, values in asked
            if statement.startswith("SELECT")
        ]


def scanned(line: str, statement: str) -> bool:
    """Say whether a line of a plan reads the whole of a table that grows, under its own name or another."""
    found = re.match(r"SCAN (\w+)(.*)", line)
    if found is None or NARROW.search(line):
        return False
    table = re.search(rf"(?:FROM|JOIN) (\w+) AS {found[1]}\b", statement)
    return (table[1] if table else found[1]) in GROW


@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
def test_no_page_of_a_list_reads_a_whole_table(rows: JobRows, tmp_path: Path, look: Look) -> None:
    found = plans(rows, tmp_path / "maestro.db", look)
    assert found
    for statement, plan in found:
        assert plan
        assert not [line for line in plan if scanned(line, statement)], (statement, plan)


SIFTED = [
    name for name in LOOKS if name.startswith(("jobs that", "jobs of a k", "jobs of an", "jobs of a p", "jobs with"))
]


@pytest.mark.parametrize("name", SIFTED)
def test_a_list_that_is_sifted_is_not_sorted(rows: JobRows, tmp_path: Path, name: str) -> None:
    """The order of the list is that of its index: ninety thousand jobs of a status are not put in order for fifty."""
    (_, plan), *_ = plans(rows, tmp_path / "maestro.db", LOOKS[name])
    inner = [line for line in plan if "ix_queue_listed" in line]
    assert inner, plan
    assert sum("TEMP B-TREE FOR ORDER BY" in line for line in plan) <= 1, "only the page itself is sorted"


def test_a_search_reads_narrow_indexes_and_the_messages(rows: JobRows, tmp_path: Path) -> None:
    (_, newest), (_, plan) = plans(rows, tmp_path / "maestro.db", jobs(q="hello"))[:2]
    assert not [line for line in newest if line.startswith("SCAN inbox")], "of the newest jobs, only their own messages"
    assert any("ix_queue_told" in line for line in plan), plan
    assert any("USING COVERING INDEX ix_queue_inbox_id" in line for line in plan), plan
    tables = [line for line in plan if line.startswith("SCAN") and "INDEX" not in line]
    assert tables == ["SCAN inbox"], "what people wrote is searched, and nothing else is read whole"


def test_a_search_for_what_many_mention_does_not_read_all_messages(rows: JobRows, tmp_path: Path) -> None:
    for _ in range(2):
        rows.add("an invoice")

    def page(tx: Transaction) -> object:
        return tx.jobs.lists.list_jobs(JobFilter(q="invoice"), None, 1)

    found = plans(rows, tmp_path / "maestro.db", page)
    assert len(found) == 1, "the newest jobs fill the page and say that another follows"
    for statement, plan in found:
        assert not [line for line in plan if scanned(line, statement)], plan


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

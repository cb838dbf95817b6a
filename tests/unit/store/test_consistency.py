"""Each contradiction between rows that is planted here is found, and nothing is found in a sound store."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from maestro.domain.agents.edits import NewAgent
from maestro.domain.consistency import Finding
from maestro.domain.jobs.job import JobStatus
from maestro.domain.memory.memory import NewFact
from maestro.store.consistency import MOST_NAMED, RowConsistency
from maestro.store.engine.copying import TableCopier
from tests.support import postgresql
from tests.support.database import change, query
from tests.support.job_rows import JobRows
from tests.support.usage_rows import use

EARLY = "2026-11-20T07:00:00.000000+00:00"
LATE = "2036-11-20T07:00:00.000000+00:00"

PLANTED = {
    "messages without a job": ["UPDATE inbox SET job_id = 'message-none' WHERE id = 1"],
    "lanes": ["DROP INDEX ux_queue_running_lane", "UPDATE queue SET status = 'running', completed_at = NULL"],
    "lane positions": ["UPDATE queue SET turn = NULL WHERE status = 'running'"],
    "claims": [f"UPDATE queue SET claimed_at = '{LATE}' WHERE status = 'pending'"],
    "ends of jobs": [f"UPDATE queue SET completed_at = '{EARLY}' WHERE status = 'running'"],
    "waiting jobs": ["UPDATE queue SET status = 'waiting' WHERE status = 'running'"],
    "merged jobs": ["UPDATE queue SET merged_into = 'message-none' WHERE status = 'pending'"],
    "deliveries": [f"UPDATE queue SET status = 'failed', completed_at = '{EARLY}' WHERE status = 'running'"],
    "outbound lanes": [
        f"INSERT INTO outbound_lanes SELECT 'web/x', id, '{EARLY}' FROM queue WHERE status = 'completed' LIMIT 1"
    ],
    "model calls": ["UPDATE llm_calls SET state = 'sent'"],
    "reservations": [
        "INSERT INTO reservations (job_id, purpose, number, day, amount_usd, scopes)"
        " VALUES ('message-none', 'answer', 1, '2026-11-20', 0.5, '')"
    ],
    "budgets": ["UPDATE spending SET reserved_usd = 3"],
    "usage": ["UPDATE usage_days SET calls = calls + 2"],
}


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """A store with ended jobs, a running one with a chunk under way, a pending one, usage, and a fact."""
    rows = JobRows.at(tmp_path)
    use(rows)
    for job_id in ids(tmp_path):
        rows.end(job_id, JobStatus.COMPLETED)
    running, _ = rows.add(), rows.add()
    rows.worked(running)
    with rows.store.begin() as tx:
        agent = tx.agents.create(NewAgent(slug="grace"), "operator")
        tx.memory.add_fact(agent, NewFact(content="the sky is blue"), "operator")
    yield rows
    rows.store.close()


def ids(folder: Path) -> list[str]:
    return [row["id"] for row in query(folder / "maestro.db", "SELECT id FROM queue ORDER BY id")]


def found(rows: JobRows, *, dispatching: bool = False) -> list[Finding]:
    """Return all findings of a store."""
    with rows.store._database.view() as connection:
        return list(RowConsistency(connection, rows.clock()).find_contradictions(dispatching=dispatching))


def repaired(rows: JobRows) -> list[str]:
    """Repair what is found, and return what was done."""
    findings = found(rows)
    with rows.store._database.begin_transaction() as connection:
        return RowConsistency(connection, rows.clock()).repair_rows(findings)


def test_a_sound_store_has_no_findings(rows: JobRows) -> None:
    assert found(rows, dispatching=True) == []


@pytest.mark.parametrize("check", PLANTED)
def test_a_planted_contradiction_is_found_and_its_fix_is_named(rows: JobRows, tmp_path: Path, check: str) -> None:
    change(tmp_path / "maestro.db", *PLANTED[check])
    findings = [finding for finding in found(rows) if finding.check == check]
    assert findings
    assert all(finding.problem and finding.fix for finding in findings)
    assert not any("{" in finding.problem + finding.fix for finding in findings)


def test_a_claim_that_nobody_starts_counts_only_where_something_dispatches(rows: JobRows, tmp_path: Path) -> None:
    change(tmp_path / "maestro.db", f"UPDATE queue SET claimed_at = '{EARLY}' WHERE status = 'pending'")
    assert found(rows) == []
    assert [finding.check for finding in found(rows, dispatching=True)] == ["claims"]


def test_many_findings_of_a_kind_are_counted(rows: JobRows, tmp_path: Path) -> None:
    for _ in range(MOST_NAMED):
        rows.add()
    change(tmp_path / "maestro.db", "UPDATE queue SET turn = NULL WHERE status = 'pending'")
    findings = [finding for finding in found(rows) if finding.check == "lane positions"]
    assert len(findings) == MOST_NAMED + 1
    assert findings[-1].problem == "1 more of this kind"


def test_the_usage_of_a_day_is_computed_again(rows: JobRows, tmp_path: Path) -> None:
    before = usage(tmp_path)
    change(tmp_path / "maestro.db", "UPDATE usage_days SET calls = calls + 2, cost_usd = 7")
    assert repaired(rows) == ["computed the usage of 2026-11-20 again", "computed the usage of 2026-11-21 again"]
    assert found(rows) == []
    assert usage(tmp_path) == before


def usage(folder: Path) -> list[tuple[object, ...]]:
    key = "day, agent_id, client_id, platform, provider, model, account, purpose"
    return [tuple(row) for row in query(folder / "maestro.db", f"SELECT * FROM usage_days ORDER BY {key}")]


def test_a_row_that_names_a_missing_row_is_found(rows: JobRows, tmp_path: Path) -> None:
    if postgresql.wanted():
        alter = "ALTER TABLE job_steps DISABLE TRIGGER ALL"
        change(tmp_path / "maestro.db", alter, "UPDATE job_steps SET job_id = 'message-none'")
    else:
        with closing(sqlite3.connect(tmp_path / "maestro.db")) as database, database:
            database.execute("UPDATE job_steps SET job_id = 'message-none'")
    [finding] = [finding for finding in found(rows) if finding.check == "references"]
    assert "rows of job_steps name message-none of queue, which does not exist" in finding.problem


def test_an_index_or_a_counter_that_lags_behind_is_found_and_repaired(rows: JobRows, tmp_path: Path) -> None:
    if postgresql.wanted():
        change(tmp_path / "maestro.db", "SELECT setval(pg_get_serial_sequence('deliveries', 'id'), 1)")
        with rows.store._database.view() as connection:
            assert [table for table, _, _ in TableCopier(connection).find_late_counters()] == ["deliveries"]
        assert repaired(rows) == ["moved the counter of deliveries"]
    else:
        with closing(sqlite3.connect(tmp_path / "maestro.db")) as database, database:
            database.execute("INSERT INTO memory_index (memory_index) VALUES ('delete-all')")
        assert repaired(rows) == ["built the index of the facts again"]
    assert found(rows) == []

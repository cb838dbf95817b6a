"""Prepared statements, and rows that are read as values."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import bindparam, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import UnmappedInstanceError
from sqlmodel import col, select, update

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import NotFound, StoreBusy, StoreUnreadable
from maestro.domain.jobs.job import OPEN, Job, JobStatus, JobStep, StepRef, StepState
from maestro.store.engine.repository import Repository
from maestro.store.engine.schema import upgrade_database
from maestro.store.engine.statements import PreparedStatement, is_in_list, is_one_of
from maestro.store.store import Store
from maestro.store.transaction import Transaction, open_savepoint
from tests.support.fresh_store import path_of
from tests.support.job_rows import JobRows
from tests.support.locking import locked
from tests.support.plans import explain_prepared

BY_STATUS = PreparedStatement(
    select(Job.id, Job.status, Job.stop_requested, Job.created_at)
    .where(col(Job.status) == JobStatus.PENDING, col(Job.created_at) <= bindparam("until"))
    .order_by(col(Job.turn))
)
OPEN_ONES = PreparedStatement(select(Job).where(is_one_of(col(Job.status), OPEN)).order_by(col(Job.turn)))
RENAMED = PreparedStatement(
    update(Job).where(col(Job.id) == bindparam("job_id")).values(reason=bindparam("its_reason"))
)
BEGUN = PreparedStatement(insert(JobStep))

STATEMENTS = [
    statement
    for repository in Repository.__subclasses__()
    for member in vars(repository).values()
    for statement in (member if isinstance(member, tuple) else (member,))
    if isinstance(statement, PreparedStatement)
]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def repository(tx: Transaction) -> Repository:
    """Return a repository without a noun."""
    return Repository(tx._link, tx.now)


def test_values_go_in_and_come_out_as_what_they_are_in_python(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.view() as tx:
        (found,) = repository(tx)._read_rows(BY_STATUS, until=tx.now)
        assert found == (job_id, JobStatus.PENDING, False, tx.jobs.get(job_id).created_at)
        assert [type(cell) for cell in found[1:3]] == [JobStatus, bool]
        before = found[3] - timedelta(microseconds=1)
        assert repository(tx)._read_rows(BY_STATUS, until=before) == []
        assert repository(tx)._read_row(BY_STATUS, until=before) is None
        assert repository(tx)._read_value(BY_STATUS, until=tx.now) == job_id
        assert repository(tx)._read_value(BY_STATUS, until=before) is None


def test_a_change_says_how_many_rows_it_changed_and_an_insert_the_number_of_its_row(rows: JobRows) -> None:
    job_id = rows.add()
    step: dict[str, Any] = {"step": "route", "activity": "choose", "run": 1, "finished_at": None, "id": None}
    step["activity_attempt"] = 1
    words = dict.fromkeys(("workflow_run", "result", "error", "detail", "process"), "")
    with rows.store.begin() as tx:
        rest = {"job_id": job_id, "state": StepState.RUNNING, "started_at": tx.now}
        numbers = [repository(tx)._insert_row(BEGUN, **step, **words, **rest, attempt=attempt) for attempt in (1, 2)]
        assert [one.id for one in tx.jobs.steps.list_attempts_of_job(job_id)] == numbers
        assert repository(tx)._run_change(RENAMED, job_id=job_id, its_reason="why") == 1
        assert repository(tx)._run_change(RENAMED, job_id="nobody", its_reason="why") == 0
        assert tx.jobs.get(job_id).reason == "why"


def test_a_parameter_without_a_value_is_no_null(rows: JobRows) -> None:
    with rows.store.begin() as tx, pytest.raises(KeyError, match="its_reason"):
        repository(tx)._run_change(RENAMED, job_id="any")


def test_a_list_cannot_be_a_parameter(rows: JobRows) -> None:
    with rows.store.view() as tx, pytest.raises(TypeError, match="in_list"):
        repository(tx)._read_rows(PreparedStatement(select(Job.id).where(col(Job.id).in_(["a", "b"]))))


def test_what_the_driver_refuses_is_a_store_that_did_not_answer(rows: JobRows) -> None:
    refused = pytest.raises((StoreBusy, psycopg.Error), match=r"readonly|read-only")
    with refused, rows.store.view() as tx:
        repository(tx)._run_change(RENAMED, job_id="any", its_reason="")


def test_a_lock_that_somebody_else_holds_is_a_store_that_did_not_answer(rows: JobRows, tmp_path: Path) -> None:
    with closing(Store(tmp_path / "maestro.db", rows.clock, busy_seconds=0.02)) as impatient:
        with locked(tmp_path / "maestro.db"):
            refused = pytest.raises(StoreBusy, match=r"database is locked|lock timeout")
            with refused, impatient.begin() as tx:
                tx.jobs.count_pending()  # PostgreSQL begins a transaction with its first statement
                pytest.fail("two wrote at once")
        with impatient.begin() as tx:
            assert tx.jobs.count_pending() == 0


def test_a_rule_of_the_tables_is_kept_without_quoting_what_was_written(rows: JobRows) -> None:
    """PostgreSQL quotes the values of a key, and of a whole row where one is missing, unless they are taken out."""
    rows.add()
    with rows.store.view() as tx:
        (job,) = repository(tx)._read_models(OPEN_ONES, Job)
    again = {**job.model_dump(), "reason": "a word of a person"}
    incomplete = {**again, "id": "another", "platform": None}
    for refused_row in (again, incomplete):
        with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)) as refused, rows.store.begin() as tx:
            repository(tx)._insert_row(PreparedStatement(insert(Job)), **refused_row)
        assert not re.search(f"a word of a person|{job.id}", str(refused.value))
    with pytest.raises(IntegrityError) as refused_by_session, rows.store.begin() as tx:
        tx._link.session.execute(insert(Job), incomplete)
    assert "a word of a person" not in str(refused_by_session.value)


def test_a_value_is_the_row_as_it_is_now(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        loaded = tx.jobs.get(job_id)
        assert tx.jobs.read(job_id) == loaded
        tx.jobs.update_job(job_id, reason="changed past the session")
        assert tx.jobs.read(job_id).reason == "changed past the session"
        assert loaded.reason == ""


def test_a_value_can_be_used_as_a_row_is(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.view() as tx:
        value, loaded = tx.jobs.read(job_id), tx.jobs.get(job_id)
    assert isinstance(value, Job)
    assert value.model_dump() == loaded.model_dump()
    assert value.address == loaded.address
    assert value.status is JobStatus.PENDING
    assert value.model_copy(update={"reason": "another"}).reason == "another"
    assert value.reason == ""
    assert Job(**value.model_dump()) == value


def test_a_value_cannot_be_changed_and_its_change_cannot_be_lost(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        value = tx.jobs.read(job_id)
        with pytest.raises(AttributeError):
            value.reason = "lost"
        with pytest.raises(AttributeError):
            value.model_copy().reason = "lost"
        with pytest.raises(AttributeError):
            del value.reason
        with pytest.raises(UnmappedInstanceError):
            tx._link.session.add(value)
        assert value.reason == ""


def test_who_is_not_there_is_not_found(rows: JobRows) -> None:
    with rows.store.view() as tx:
        with pytest.raises(NotFound, match="job nobody"):
            tx.jobs.read("nobody")
        with pytest.raises(NotFound, match="agent None"):
            tx.agents.read(None)
        with pytest.raises(NotFound, match="inbox row 7"):
            tx.inbox.read(7)


def test_what_was_added_as_an_object_is_found_once_it_is_written(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        loaded = tx.jobs.get(job_id)
        loaded.reason = "changed as an object"
        assert tx.jobs.read(job_id).reason == ""
        tx._link.flush_writes()
        assert tx.jobs.read(job_id).reason == "changed as an object"
        loaded.reason = "changed once more"
    with rows.store.view() as tx:
        assert tx.jobs.read(job_id).reason == "changed once more"


def test_no_session_is_made_for_who_does_not_need_one(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="route"), "choose", 1)
        tx.jobs.update_job(job_id, agent_id=tx.agents.read(1).id)
        assert "session" not in vars(tx._link)


def test_a_savepoint_takes_back_what_was_written_in_it_and_no_more(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, reason="before")
        with suppress(NotFound), open_savepoint(tx):
            tx.jobs.update_job(job_id, reason="within")
            raise NotFound("as it was")
        assert "session" not in vars(tx._link)
        with open_savepoint(tx):
            tx.jobs.update_job(job_id, agent_id=None)
    with rows.store.view() as tx:
        assert (tx.jobs.read(job_id).reason, tx.jobs.read(job_id).agent_id) == ("before", None)


def test_what_the_tables_refuse_in_a_savepoint_costs_only_that(rows: JobRows) -> None:
    job_id = rows.add()
    for within in (False, True):
        with rows.store.begin() as tx:
            tx.jobs.update_job(job_id, reason=f"kept {within}")
            if within:
                tx.agents.get(1).name = f"Ada {within}"
            with suppress(IntegrityError), open_savepoint(tx):
                tx.jobs.update_job(job_id, reason="lost")
                tx.agents.save_agent(Agent(slug="ada", name="Another", created_at=tx.now, updated_at=tx.now))
            tx.agents.save_agent(Agent(slug=f"eve-{within}", name="Eve", created_at=tx.now, updated_at=tx.now))
        with rows.store.view() as tx:
            assert tx.jobs.read(job_id).reason == f"kept {within}"
            assert [agent.name for agent in tx.agents.list_agents()] == ["Ada True" if within else "Ada"] + ["Eve"] * (
                1 + within
            )


def test_every_prepared_statement_fits_the_tables(rows: JobRows) -> None:
    assert STATEMENTS
    with rows.store.view() as tx:
        for statement in STATEMENTS:
            ready = statement._compiled(tx._link.driver)
            tx._link.driver.execute(f"EXPLAIN {ready.sql}", ready.fixed)


@pytest.mark.sqlite_only(reason="PostgreSQL explains only values of the right types")
def test_no_prepared_statement_reads_a_whole_table_that_grows(rows: JobRows) -> None:
    plans = [explain_prepared(path_of(rows.store), statement) for statement in STATEMENTS]
    assert [plan for plan in plans if plan.reads_growing_table] == []


def test_a_list_parameter_is_looked_up_in_an_index(rows: JobRows) -> None:
    plan = explain_prepared(path_of(rows.store), PreparedStatement(select(Job).where(is_in_list(col(Job.id), "ids"))))
    assert not plan.scanned & {"queue"}
    assert len(plan.indexes) == 1


@pytest.mark.sqlite_only(reason="is about a version of SQLite")
def test_a_sqlite_that_returns_no_changed_rows_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(StoreUnreadable, match=r"needs 3\.35 or later. Use a Python"):
        upgrade_database(tmp_path / "new.db")

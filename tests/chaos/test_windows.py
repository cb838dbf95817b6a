"""Deaths that meet each other, a person, an operator or the very first start."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from maestro.domain.jobs.replay import ReplayMode
from maestro.operations.jobs import JobOperations
from maestro.store.engine.database import Location
from maestro.store.engine.schema import read_revision, upgrade_database
from maestro.store.store import Store
from tests.chaos.promise import assert_answered_once, assert_in_order, assert_journal_closed
from tests.support import postgresql
from tests.support.chatting import person
from tests.support.crashing import is_armed
from tests.support.database import query
from tests.support.evidence import Evidence
from tests.support.forking import FORKING
from tests.support.llm_server import Failure, LLMServer
from tests.support.postgresql import empty_location
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-windows")]

AGAIN = 3


@pytest.mark.parametrize("point", ["after wire", "after send", "before tags done", "before route done"])
async def test_it_dies_again_while_it_recovers(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    said = [f"again-{point.replace(' ', '-')}.{suffix}" for suffix in "ab"]
    maestro.arm(point, times=AGAIN)
    async with person(maestro.web_port, said[0]) as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        for _ in range(AGAIN):
            await maestro.crash_at(point)
        jobs = await evidence.ended(*said)
        await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(evidence, somebody, job, client_id)
    assert_in_order(evidence, somebody, llm, said)
    # Once per crash with a call in flight, and no more; of the first answer the tags are done as it is kept.
    bought = {"after wire": AGAIN, "before tags done": 1}.get(point, 0)
    assert evidence.calls(jobs[0]["id"])["interrupted"] == bought
    assert [len(llm.matching(client_id)) for client_id in said] == [1 + bought, 1]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_it_dies_while_it_frees_the_claims_of_a_death(maestro: Maestro, evidence: Evidence, when: str) -> None:
    client_id = f"claims-{when}.a"
    maestro.arm("after accept")
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @helper")
        await maestro.died()
        maestro.arm(f"{when} release of a claim")
        maestro.begin()
        await maestro.crash_at("forgetting claims")
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert not is_armed(maestro.data)
    assert_answered_once(evidence, somebody, job, client_id)


async def test_an_orderly_end_in_the_middle_of_a_call(maestro: Maestro, evidence: Evidence, llm: LLMServer) -> None:
    """As at an update: the call is longer than the patience at the end, and is made again by the next process."""
    said = ["ended.a", "ended.b"]
    llm.script(match=said[0], delay=30.0)
    async with person(maestro.web_port, said[0]) as somebody:
        for client_id in said:
            await somebody.say(f"{client_id} please, @helper")
        await asyncio.to_thread(llm.wait_for, lambda requests: len(requests) > 0)
        await somebody.acknowledged(*said)
        assert await maestro.kill(signal.SIGTERM) == 0
        llm.script(reply="made again")
        await maestro.start()
        jobs = await evidence.ended(*said)
        await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
    for job, client_id in zip(jobs, said, strict=True):
        assert_answered_once(evidence, somebody, job, client_id)
    assert evidence.calls(jobs[0]["id"]) == {"interrupted": 1, "answered": 1}
    assert [len(llm.matching(client_id)) for client_id in said] == [2, 1]


@pytest.mark.parametrize("point", ["after context done", "before wire", "after model-1 request"])
async def test_a_person_stops_what_a_crash_cut_off(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    """The stop is taken while the job waits for its next attempt; the model is not asked again."""
    stopped, following = (f"stop-{point.replace(' ', '-')}.{suffix}" for suffix in "ab")
    llm.script(match=stopped, delay=30.0)
    maestro.arm(point)
    async with person(maestro.web_port, stopped) as somebody:
        await somebody.say(f"{stopped} please, @helper")
        await maestro.died()
        await somebody.say("/stop", f"{stopped}-stop")
        await somebody.say(f"{following} please, @helper")
        await maestro.start()
        jobs = await evidence.ended(stopped, following)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(jobs[1]["id"])))
    assert jobs[0]["status"] == "cancelled"
    assert evidence.deliveries(jobs[0]["id"]) == []
    assert_journal_closed(evidence, jobs[0])
    assert_answered_once(evidence, somebody, jobs[1], following)


@pytest.mark.parametrize("point", ["after claim", "after model-1 answer", "after send", "before deliver done"])
async def test_it_dies_while_a_failed_job_is_resumed(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    client_id = f"resumed-{point.replace(' ', '-')}.a"
    llm.script(match=client_id, failure=Failure.status(400), times=1)
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @helper")
        (failed,) = await evidence.ended(client_id)
        maestro.arm(point)
        await resume(evidence, failed["id"])
        await maestro.crash_at(point)
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
    assert (failed["status"], job["status"], job["id"]) == ("failed", "completed", failed["id"])
    assert evidence.user_rows(client_id) == (1, 1)
    assert len(evidence.answers(job["id"])) == 1
    sent = evidence.deliveries(job["id"])
    assert [chunk["purpose"] for chunk in sent] == ["notice", "answer", "answer", "answer"]
    assert [frame["id"] for frame in somebody.replies] == [chunk["id"] for chunk in sent]
    assert evidence.calls(job["id"]) == {"failed": 1, "answered": 1}
    assert len(llm.matching(client_id)) == 2


async def resume(evidence: Evidence, job_id: str) -> None:
    """Do what an operator does with a failed job."""

    async def nobody(job_id: str) -> None:
        return None

    store = Store(evidence.path)
    try:
        await JobOperations(store, nobody).replay(job_id, ReplayMode.RESUME, "operator")
    finally:
        store.close()


EVERYTHING = """
SELECT concat_ws(' ', table_name, column_name, data_type, column_default, is_nullable)
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""
"""What a database of PostgreSQL consists of."""
SOME = (1, 10, 100)
"""Statements of the first start that are met by a death."""


@pytest.mark.sqlite_only(reason="copies the files of a database")
async def test_the_first_start_leaves_nothing_half_made_at_any_statement(tmp_path: Path) -> None:
    """The tables are made in one transaction: what the disk has at each statement is a database with nothing in it.

    A copy of the files is what a kill leaves of them, and is made in a thousandth of the time.
    """
    left: list[Path] = []
    with at_every_statement(lambda number: left.append(copied(tmp_path / "whole.db", tmp_path / str(number)))):
        upgrade_database(tmp_path / "whole.db")
    assert len(left) > len(schema(tmp_path / "whole.db")) > 0
    for path in left:
        assert (schema(path), read_revision(path)) == (set(), "")
    upgrade_database(left[-1])
    assert schema(left[-1]) == schema(tmp_path / "whole.db")


@pytest.mark.parametrize("number", SOME)
async def test_the_first_start_dies_at_a_statement(tmp_path: Path, number: int) -> None:
    path, whole = tmp_path / "maestro.db", tmp_path / "whole.db"
    at, whole_at = empty_location(path), empty_location(whole)
    process = FORKING.Process(target=make_tables, args=(at, number), daemon=True)
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == -signal.SIGKILL
    assert (schema(path), read_revision(at)) == (set(), "")
    upgrade_database(at)
    upgrade_database(whole_at)
    assert schema(path) == schema(whole)


def make_tables(at: Location, last: int) -> None:
    """Make the tables and die at a statement."""

    def die(number: int) -> None:
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    with at_every_statement(die):
        upgrade_database(at)


@contextmanager
def at_every_statement(then: Callable[[int], object]) -> Iterator[None]:
    """Do something whenever a statement was executed, knowing how many there were."""
    numbers = count(1)

    def executed(*_: Any) -> None:
        then(next(numbers))

    event.listen(Engine, "after_cursor_execute", executed)
    yield
    event.remove(Engine, "after_cursor_execute", executed)


def copied(database: Path, folder: Path) -> Path:
    """Copy a database with what SQLite keeps beside it."""
    folder.mkdir()
    for file in database.parent.glob(f"{database.name}*"):
        shutil.copy(file, folder)
    return folder / database.name


def schema(path: Path) -> set[str]:
    """Return everything a database consists of."""
    if postgresql.wanted():
        return {str(row[0]) for row in query(path, EVERYTHING)}
    with sqlite3.connect(path) as connection:
        return {str(row[0]) for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

"""The store: two kinds of transaction, its tables, places in lanes and the journal of steps."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import DBAPIError

from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.errors import NewerDatabase, NotFound, OlderDatabase, StepTaken, StoreBusy, StoreUnreadable
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef, StepState
from maestro.domain.values import Value
from maestro.store.engine.repository import with_values
from maestro.store.engine.schema import check_schema
from maestro.store.memory.memory import SHADOWS
from maestro.store.store import Store
from maestro.store.transaction import metadata
from tests.support.database import change, dump
from tests.support.fresh_store import fresh_store, path_of

LAPSES = timedelta(seconds=10)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


class Result(Value):
    """What a step returned."""

    number: int


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def add(store: Store, name: str, lane: str | None = "lane", priority: int = 5) -> None:
    """Add a pending job."""
    job = Job(
        id=name,
        lane=lane,
        priority=priority,
        platform="web",
        account="default",
        channel="c",
        created_at=datetime.now(UTC),
    )
    with store.begin() as tx:
        tx.jobs.add(job)


def claimed(store: Store, clock: Clock, limit: int = 10) -> list[str]:
    """Claim what may start now."""
    with store.begin() as tx:
        return [job.id for job in tx.jobs.claim_jobs(limit, clock.now - LAPSES)]


def running(store: Store, name: str) -> None:
    """Note that the workflow of a job runs."""
    with store.begin() as tx:
        tx.jobs.update_job(name, status=JobStatus.RUNNING)


def begun(store: Store) -> StepRef:
    """Begin an attempt at a step of the job named "job"."""
    ref = StepRef(job_id="job", step="model-1")
    with store.begin() as tx:
        tx.jobs.steps.start_attempt(ref, "call_model", 1)
    return ref


def end(store: Store, name: str) -> None:
    """End a job."""
    with store.begin() as tx:
        tx.jobs.close_job(name, JobEnding(status=JobStatus.COMPLETED))


# Transactions


def test_a_hundred_threads_write_without_a_locked_database(store: Store) -> None:
    other = Store(Path(store_path(store)))

    def write(number: int) -> None:
        with (store if number % 2 else other).begin() as tx:
            tx.system.audit.add_entry(
                "thread", "counted", str(number), str(len(tx.system.audit.list_latest_entries(1000)))
            )

    with ThreadPoolExecutor(100) as threads:
        list(threads.map(write, range(300)))
    other.close()
    with store.view() as tx:
        seen = [int(entry.detail) for entry in tx.system.audit.list_latest_entries(1000)]
    assert sorted(seen) == list(range(300)), "each saw all that was written before it"


def store_path(store: Store) -> str:
    """Return the file of a store."""
    return str(path_of(store))


def test_a_view_cannot_write(store: Store) -> None:
    with pytest.raises((StoreBusy, DBAPIError), match=r"readonly|read-only"), store.view() as tx:
        tx.jobs.release_claims_of([""])


def test_a_view_sees_one_moment_and_blocks_no_writer(store: Store) -> None:
    with store.view() as before:
        assert before.system.audit.list_latest_entries(10) == []
        with store.begin() as tx:
            tx.system.audit.add_entry("ada", "wrote")
        assert before.system.audit.list_latest_entries(10) == []
    with store.view() as after:
        assert len(after.system.audit.list_latest_entries(10)) == 1


def test_an_exception_rolls_back(store: Store) -> None:
    def write_and_fail() -> None:
        with store.begin() as tx:
            tx.system.audit.add_entry("ada", "wrote")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    with store.view() as tx:
        assert tx.system.audit.list_latest_entries(10) == []


# Tables


# One of them is on an expression, which cannot be compared; ``test_memory`` sees that it is used.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_migrations_make_the_tables_that_the_models_describe(store: Store) -> None:
    search = {*SHADOWS, "ix_memory_facts_words"}  # what each database has for full-text search
    options = {"compare_type": True, "include_name": lambda name, *_: name not in search}
    with store.view() as tx:
        differences = compare_metadata(MigrationContext.configure(tx._link.connection, opts=options), metadata)
    assert differences == []


def test_opening_again_keeps_what_is_there(store: Store) -> None:
    with store.begin() as tx:
        tx.system.audit.add_entry("ada", "wrote")
    again = Store.open(Path(store_path(store)))
    with again.view() as tx:
        assert len(tx.system.audit.list_latest_entries(10)) == 1
    again.close()


def test_a_newer_database_is_left_alone(store: Store) -> None:
    path = Path(store_path(store))
    change(path, "UPDATE alembic_version SET version_num = 'from-the-future', contract = 9")
    with pytest.raises(NewerDatabase, match="from-the-future"):
        Store.open(path)


def test_an_older_database_is_told_and_left_alone(store: Store) -> None:
    path = Path(store_path(store))
    check_schema(path)
    change(path, "DELETE FROM alembic_version")
    before = dump(path)
    with pytest.raises(OlderDatabase, match="maestro migrate"):
        check_schema(path)
    assert dump(path) == before


def test_a_check_tells_a_newer_database(store: Store) -> None:
    path = Path(store_path(store))
    change(path, "UPDATE alembic_version SET version_num = 'from-the-future', contract = 9")
    with pytest.raises(NewerDatabase, match="from-the-future"):
        check_schema(path)


@pytest.mark.sqlite_only(reason="is about a file")
@pytest.mark.parametrize("content", [b"this is no database " * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "maestro.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnreadable, match=r"maestro\.db"):
        Store.open(path)
    assert path.read_bytes() == content


@pytest.mark.sqlite_only(reason="is about a file")
def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="cannot be opened"):
        Store.open(tmp_path / "nowhere" / "maestro.db")


def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    naive = Store(Path(store_path(store)), clock=lambda: datetime(2026, 1, 1))
    with pytest.raises(Exception, match="without a time zone"), naive.begin() as tx:
        tx.system.audit.add_entry("ada", "wrote")
    naive.close()


# Turns


def test_only_the_head_of_a_lane_is_claimed(store: Store, clock: Clock) -> None:
    for name in ("a1", "a2"):
        add(store, name, lane="a")
    add(store, "b1", lane="b")
    assert claimed(store, clock) == ["a1", "b1"]
    assert claimed(store, clock) == []
    end(store, "a1")
    assert claimed(store, clock) == ["a2"]


def test_a_running_head_holds_its_lane_and_a_waiting_one_does_not(store: Store, clock: Clock) -> None:
    add(store, "first")
    add(store, "second")
    assert claimed(store, clock) == ["first"]
    running(store, "first")
    assert claimed(store, clock) == []
    with store.begin() as tx:
        tx.jobs.update_job("first", status=JobStatus.WAITING)
    assert claimed(store, clock) == ["second"]


def test_jobs_without_a_lane_never_wait(store: Store, clock: Clock) -> None:
    for name in ("one", "two"):
        add(store, name, lane=None)
    assert claimed(store, clock) == ["one", "two"]


def test_the_most_urgent_lane_goes_first_but_nobody_overtakes_inside_a_lane(store: Store, clock: Clock) -> None:
    add(store, "message", lane="a")
    add(store, "owner behind it", lane="a", priority=1)
    add(store, "scheduled", lane="b", priority=10)
    add(store, "owner", lane="c", priority=1)
    assert claimed(store, clock) == ["owner", "message", "scheduled"]


def test_a_claim_that_led_to_nothing_lapses(store: Store, clock: Clock) -> None:
    add(store, "job")
    assert claimed(store, clock) == ["job"]
    clock.now += LAPSES
    assert claimed(store, clock) == []
    clock.now += timedelta(microseconds=1)
    assert claimed(store, clock) == ["job"]


def test_a_claim_is_given_back(store: Store, clock: Clock) -> None:
    add(store, "job")
    assert claimed(store, clock) == ["job"]
    with store.begin() as tx:
        tx.jobs.release_claims(["job"])
    assert claimed(store, clock) == ["job"]
    with store.begin() as tx:
        tx.jobs.release_claims_of([""])
    assert claimed(store, clock) == ["job"]


def test_a_reopened_job_goes_to_the_end_of_its_lane(store: Store, clock: Clock) -> None:
    for name in ("first", "second"):
        add(store, name)
    with store.begin() as tx:
        tx.jobs.close_job("first", JobEnding(status=JobStatus.FAILED, error="X", reason="y"))
        tx.jobs.reopen_job(tx.jobs.get("first"))
    assert claimed(store, clock) == ["second"]
    with store.view() as tx:
        job = tx.jobs.get("first")
    assert (job.status, job.run, job.error, job.reason) == (JobStatus.PENDING, 2, "", "")


def test_a_rerun_keeps_its_place(store: Store, clock: Clock) -> None:
    for name in ("first", "second"):
        add(store, name)
    claimed(store, clock)
    running(store, "first")
    with store.begin() as tx:
        tx.jobs.restart_workflow(tx.jobs.get("first"))
    assert claimed(store, clock) == ["first"]


def test_a_job_ends_once(store: Store) -> None:
    add(store, "job")
    with store.begin() as tx:
        assert tx.jobs.close_job("job", JobEnding(status=JobStatus.CANCELLED)) is True
        assert tx.jobs.close_job("job", JobEnding(status=JobStatus.FAILED)) is False
        assert tx.jobs.read_status("job") is JobStatus.CANCELLED
        assert tx.jobs.request_stop("job") is False


def test_a_stopped_job_is_seen_while_it_waits_and_not_while_it_is_inside_a_step(store: Store) -> None:
    add(store, "job")
    running(store, "job")
    ref = begun(store)
    with store.begin() as tx:
        tx.jobs.request_stop("job")
        assert tx.jobs.list_stopped_without_step() == []
    with store.begin() as tx:
        tx.jobs.steps.fail_attempt(ref, "RateLimited", "")
        assert tx.jobs.list_stopped_without_step() == ["job"]
    end(store, "job")
    with store.view() as tx:
        assert tx.jobs.list_stopped_without_step() == []


def test_what_does_not_exist_is_not_found(store: Store) -> None:
    with store.view() as tx, pytest.raises(NotFound):
        tx.jobs.get("nothing")


# Outbound lanes


def test_one_job_at_a_time_sends_in_a_channel(store: Store) -> None:
    for name in ("one", "two"):
        add(store, name, lane=None)
    with store.begin() as tx:
        one, two = tx.jobs.read("one"), tx.jobs.read("two")
        elsewhere = with_values(two, channel="elsewhere")
        begun = [
            tx.deliveries.begin_delivery(job, DeliveryPurpose.ANSWER).has_lane for job in (one, one, two, elsewhere)
        ]
        assert begun == [True, True, False, True]
    end(store, "one")
    with store.begin() as tx:
        assert tx.deliveries.begin_delivery(two, DeliveryPurpose.ANSWER).has_lane


# Steps


def test_a_finished_step_is_found_finished(store: Store) -> None:
    add(store, "job")
    ref = begun(store)
    with store.begin() as tx:
        assert tx.jobs.steps.read_history(ref).result is None
        tx.jobs.steps.fail_attempt(ref, "RateLimited", "wait")
    begun(store)
    with store.begin() as tx:
        tx.jobs.steps.finish_step(ref, Result(number=7))
        assert tx.jobs.steps.read_history(ref).result == '{"number":7}'
        assert [(row.attempt, row.state) for row in tx.jobs.steps.list_attempts_of_job("job")] == [
            (1, StepState.FAILED),
            (2, StepState.DONE),
        ]


def test_an_attempt_cut_off_by_a_crash_is_marked_when_the_next_begins(store: Store) -> None:
    add(store, "job")
    for _ in range(3):
        ref = begun(store)
    with store.view() as tx:
        past = tx.jobs.steps.read_history(ref)
        assert [attempt.state for attempt in past.attempts].count(StepState.INTERRUPTED) == 2
        assert (past.count_crashes(1), past.count_crashes(2)) == (3, 0)


def test_of_two_attempts_the_second_to_finish_is_rolled_back(store: Store) -> None:
    add(store, "job")
    ref = begun(store)
    with store.begin() as tx:
        tx.jobs.steps.finish_step(ref, Result(number=1))

    def finish_late() -> None:
        with store.begin() as tx:
            tx.system.audit.add_entry("late", "acted")
            tx.jobs.steps.finish_step(ref, Result(number=2))

    with pytest.raises(StepTaken):
        finish_late()
    with store.view() as tx:
        assert tx.jobs.steps.read_history(ref).result == '{"number":1}'
        assert tx.system.audit.list_latest_entries(10) == []

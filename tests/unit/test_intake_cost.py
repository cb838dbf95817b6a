"""What a plain message costs the intake, counted exactly, and when its job begins without a dispatcher's look."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.precedence import IN_HAND, Priority
from maestro.intake import Intake, IntakeRules
from maestro.store.jobs.claims import CLAIM_LAPSES, ClaimedJob
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.doors import EVERYBODY
from tests.support.fresh_store import sqlite_connection
from tests.support.job_rows import JobRows

RULES = IntakeRules(100, EVERYBODY)


class Starter:
    """A dispatcher that notes what it is to start, and whether that was committed."""

    owner = "this process"

    def __init__(self, rows: JobRows) -> None:
        self.ready = True
        self.started: list[str] = []
        self.wakes = 0
        self._rows = rows

    def start(self, claimed: ClaimedJob) -> None:
        """Note the job, as another connection sees it."""
        with self._rows.store.view() as tx:
            assert tx.jobs.read(claimed.id).claimed_at == tx.now
        assert claimed.precedence.key
        self.started.append(claimed.id)

    def wake(self) -> None:
        """Count the calls."""
        self.wakes += 1


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def starter(rows: JobRows) -> Starter:
    return Starter(rows)


@pytest.fixture
def intake(rows: JobRows, starter: Starter) -> Intake:
    return Intake(rows.store, lambda: RULES, starter.wake, starter)


def said(rows: JobRows, name: str, channel: str = "quiet", content: str = "hello") -> IncomingMessage:
    return IncomingMessage(
        id=name,
        address=Address(platform="web", channel=channel),
        user_id="grace",
        content=content,
        sent_at=rows.clock.now,
        is_direct=True,
    )


@pytest.fixture
def statements(rows: JobRows, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is written down of each statement from now on; a read transaction fails the test."""
    noted: list[str] = []
    with rows.store.begin() as tx:
        sqlite_connection(tx).set_trace_callback(noted.append)

    def view(_: Store) -> AbstractContextManager[Transaction]:
        raise AssertionError("the intake needs no read transaction")

    monkeypatch.setattr(Store, "view", view)
    noted.clear()
    return noted


def test_a_plain_message_is_one_transaction_of_few_statements(rows: JobRows, statements: list[str]) -> None:
    intake = Intake(rows.store, lambda: RULES, lambda: None)
    intake.accept_message(said(rows, "first"))
    assert [line.split()[0] for line in statements] == [
        *("BEGIN", "SELECT", "INSERT", "INSERT"),
        "INSERT",  # when the account's connector brought something
        "COMMIT",
    ]
    statements.clear()
    intake.accept_message(said(rows, "second"))
    assert [line.split()[0] for line in statements] == ["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"]


def test_a_message_that_came_before_is_found_by_the_first_statement(rows: JobRows, statements: list[str]) -> None:
    intake = Intake(rows.store, lambda: RULES, lambda: None)
    first = intake.accept_message(said(rows, "again"))
    statements.clear()
    assert intake.accept_message(said(rows, "again")) == first.model_copy(update={"duplicate": True})
    assert [line.split()[0] for line in statements] == ["BEGIN", "SELECT", "COMMIT"]


def test_a_job_with_nothing_before_it_is_claimed_with_its_message(
    rows: JobRows, intake: Intake, starter: Starter
) -> None:
    accepted = intake.accept_message(said(rows, "m"))
    assert (starter.started, starter.wakes) == ([accepted.job_id], 0)
    with rows.store.begin() as tx:
        assert tx.jobs.claim_jobs(10, tx.now - CLAIM_LAPSES) == [], "nobody else starts it"
        tx.jobs.release_claims_of([starter.owner])
        [claimed] = tx.jobs.claim_jobs(10, tx.now - CLAIM_LAPSES)
    assert claimed.id == accepted.job_id, "a dispatcher that is gone keeps nothing to itself"


def test_a_claim_that_led_to_nothing_lapses(rows: JobRows, intake: Intake) -> None:
    accepted = intake.accept_message(said(rows, "m"))
    rows.clock.now += CLAIM_LAPSES + timedelta(seconds=1)
    with rows.store.begin() as tx:
        assert [one.id for one in tx.jobs.claim_jobs(10, tx.now - CLAIM_LAPSES)] == [accepted.job_id]


def nobody_is_ready(_: JobRows, intake: Intake, starter: Starter) -> None:
    starter.ready = False


def one_is_before_it(rows: JobRows, intake: Intake, _: Starter) -> None:
    intake.accept_message(said(rows, "before"))


def another_waits_for_a_dispatcher(rows: JobRows, _: Intake, __: Starter) -> None:
    rows.add()


def another_has_waited_long_enough(rows: JobRows, _: Intake, __: Starter) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.WAITING, waits_since=tx.now, wake_at=tx.now)


def many_are_open(rows: JobRows, _: Intake, __: Starter) -> None:
    for number in range(IN_HAND):
        job_id = rows.add(platform=f"platform{number}")
        with rows.store.begin() as tx:
            tx.jobs.update_job(job_id, status=JobStatus.RUNNING, started_at=tx.now)


@pytest.mark.parametrize(
    "before",
    [nobody_is_ready, one_is_before_it, another_waits_for_a_dispatcher, another_has_waited_long_enough, many_are_open],
)
def test_a_dispatcher_decides_where_there_is_something_to_decide(
    rows: JobRows, intake: Intake, starter: Starter, before: Callable[[JobRows, Intake, Starter], None]
) -> None:
    before(rows, intake, starter)
    starter.started.clear()
    accepted = intake.accept_message(said(rows, "m"))
    assert (starter.started, starter.wakes) == ([], 1)
    with rows.store.view() as tx:
        assert tx.jobs.read(accepted.job_id).claimed_at is None


def test_a_control_word_is_left_to_the_dispatcher(rows: JobRows, intake: Intake, starter: Starter) -> None:
    intake.accept_message(said(rows, "m", content="/status"))
    assert (starter.started, starter.wakes) == ([], 1)


def test_a_job_that_is_entered_is_as_one_that_is_added(rows: JobRows, intake: Intake) -> None:
    intake.accept_message(said(rows, "first"))
    accepted = intake.accept_message(said(rows, "m"))
    with rows.store.begin() as tx:
        entered = tx.jobs.get(accepted.job_id).model_dump(exclude={"id", "inbox_id", "turn"})
        added = tx.jobs.add(
            type(tx.jobs.get(accepted.job_id))(
                id="added",
                lane="web/default/quiet//",
                priority=Priority.MESSAGE,
                platform="web",
                account="default",
                channel="quiet",
                created_at=tx.now,
            )
        )
        assert added.model_dump(exclude={"id", "inbox_id", "turn"}) == entered
        assert added.turn == (tx.jobs.get(accepted.job_id).turn or 0) + 1

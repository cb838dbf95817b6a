"""A message that its author changes on the platform: while it waits the new text counts, later it is only counted."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.agents.agent import CONDUCTOR, Agent
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import AcceptedMessage, Address, InboxRow, IncomingMessage
from maestro.domain.people.people import AccessRules, DmPolicy
from maestro.intake import Intake, IntakeRules
from maestro.intake.messages import TOO_LATE, UNKNOWN
from tests.support.job_rows import JobRows

HERE = Address(platform="discord", channel="dm")
RULES = IntakeRules(max_pending=10, access=AccessRules(dm_policies={"discord": DmPolicy.OPEN}))


class Desk:
    """An intake with a conductor."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.woken = 0
        self._intake = Intake(rows.store, lambda: RULES, self._wake)
        with rows.store.begin() as tx:
            now = tx.now
            tx.agents.save_agent(Agent(slug="boss", name="Boss", role=CONDUCTOR, created_at=now, updated_at=now))

    def accept(self, number: str, content: str, edit_of: str = "", user: str = "grace") -> AcceptedMessage:
        """Accept a direct message, or a change of one."""
        sent = self.rows.clock.now + timedelta(seconds=1)
        message = IncomingMessage(
            id=number, address=HERE, user_id=user, content=content, sent_at=sent, is_direct=True, edit_of=edit_of
        )
        return self._intake.accept_message(message)

    def row(self) -> InboxRow:
        """Return the one message there is."""
        with self.rows.store.view() as tx:
            return tx.inbox.read(1)

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    rows = JobRows.at(tmp_path)
    yield Desk(rows)
    rows.store.close()


def test_the_new_text_counts_while_nobody_works_on_the_message(desk: Desk) -> None:
    first = desk.accept("1", "helo")
    edited = desk.accept("1:2", "hello", edit_of="1")
    assert (edited.job_id, edited.duplicate, edited.ignored, desk.woken) == (first.job_id, True, "", 1)
    assert (desk.row().content, desk.row().message_id) == ("hello", "1")


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.WAITING, JobStatus.COMPLETED])
def test_an_edit_that_comes_later_is_only_counted(desk: Desk, status: JobStatus) -> None:
    first = desk.accept("1", "helo")
    with desk.rows.store.begin() as tx:
        tx.jobs.update_job(first.job_id, status=status, started_at=tx.now)
    assert desk.accept("1:2", "hello", edit_of="1").ignored == TOO_LATE
    assert desk.accept("1:3", "helo", edit_of="1").ignored == "", "a platform that only adds a preview edits nothing"
    assert desk.row().content == "helo"


def test_nobody_edits_what_never_came_in_or_what_somebody_else_said(desk: Desk) -> None:
    assert desk.accept("9:1", "hello", edit_of="9").ignored == UNKNOWN
    desk.accept("1", "helo")
    assert desk.accept("1:2", "give me the keys", edit_of="1", user="mallory").ignored == UNKNOWN
    assert desk.row().content == "helo"
    with desk.rows.store.view() as tx:
        assert tx.inbox.ignored.count_by_reason() == {UNKNOWN: 2}

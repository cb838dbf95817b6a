"""What the intake takes in, obeys and refuses.

See docs/invariants.md: durable before ack; docs/decisions.md: access, control words.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.errors import Backlogged
from maestro.domain.jobs.job import Job, JobKind, JobStatus
from maestro.domain.messages import AcceptedMessage, Address, Attachment, IncomingMessage
from maestro.domain.people.people import PersonId
from maestro.domain.precedence import Priority
from maestro.intake import UNSAID, Intake, IntakeRules
from maestro.store.store import Store
from tests.support.doors import EVERYBODY
from tests.support.fresh_store import fresh_store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
LIMIT = 3
CHANNEL = "general"
ANNOUNCEMENTS = "announcements"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", lambda: NOW)
    with store.begin() as tx:
        agent = tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=NOW, updated_at=NOW))
        tx.agents.save_binding(
            AgentChannel(
                agent_id=agent.id or 0,
                platform="web",
                account="default",
                channel=ANNOUNCEMENTS,
                permission=Permission.READ_ONLY,
            )
        )
    yield store
    store.close()


@pytest.fixture
def intake(store: Store) -> Intake:
    return Intake(store, lambda: IntakeRules(LIMIT, EVERYBODY), lambda: None)


def said(name: str, content: str, channel: str = CHANNEL, user: str = "grace") -> IncomingMessage:
    return IncomingMessage(
        id=name,
        address=Address(platform="web", channel=channel),
        user_id=user,
        content=content,
        sent_at=NOW,
        is_direct=True,
    )


def job(store: Store, accepted: AcceptedMessage) -> Job:
    with store.view() as tx:
        return tx.jobs.get(accepted.job_id)


def waiting(store: Store) -> int:
    with store.view() as tx:
        return tx.jobs.count_pending()


def fill(intake: Intake, channel: str = CHANNEL) -> list[AcceptedMessage]:
    return [intake.accept_message(said(f"m-{number}", "hello", channel)) for number in range(LIMIT)]


def test_text_that_no_store_takes_comes_in_with_marks_in_its_place(store: Store, intake: Intake) -> None:
    odd = said("odd", "half \ud83d of an emoji\0").model_copy(update={"user_name": "Gr\ud83dace"})
    files = (Attachment(id="f", filename="a\udc00.txt"),)
    accepted = intake.accept_message(odd.model_copy(update={"attachments": files}))
    with store.view() as tx:
        row = tx.inbox.get(job(store, accepted).inbox_id or 0)
    assert row is not None
    assert row.content == "half \ufffd of an emoji"


# The limit


@pytest.mark.parametrize("content", ["hello", "/status", "/new"])
def test_at_the_limit_control_words_are_refused_like_any_message(store: Store, intake: Intake, content: str) -> None:
    fill(intake)
    with pytest.raises(Backlogged):
        intake.accept_message(said("one more", content))
    assert waiting(store) == LIMIT


def test_work_of_machines_keeps_nobody_out(store: Store, intake: Intake) -> None:
    with store.begin() as tx:
        for number in range(2 * LIMIT):
            tx.jobs.add(
                Job(
                    id=f"webhook-{number}",
                    kind=JobKind.WEBHOOK,
                    platform="web",
                    account="a",
                    channel="c",
                    created_at=NOW,
                )
            )
    fill(intake)
    with pytest.raises(Backlogged):
        intake.accept_message(said("one more", "hello"))


def test_a_control_word_in_a_loop_stays_within_the_limit(store: Store, intake: Intake) -> None:
    for number in range(LIMIT):
        intake.accept_message(said(f"status-{number}", "/status"))
    with pytest.raises(Backlogged):
        intake.accept_message(said("status", "/status"))
    assert waiting(store) == LIMIT


def test_a_stop_takes_effect_at_the_limit_and_only_its_reply_is_left_out(store: Store, intake: Intake) -> None:
    first, *_ = fill(intake)
    stop = intake.accept_message(said("stop", "/stop"))
    assert job(store, first).status is JobStatus.CANCELLED
    assert (job(store, stop).status, job(store, stop).reason) == (JobStatus.COMPLETED, UNSAID)
    assert waiting(store) == LIMIT - 1


def test_a_stop_that_came_before_stops_nothing_else(store: Store, intake: Intake) -> None:
    _, second, _ = fill(intake)
    stop = intake.accept_message(said("stop", "/stop"))
    assert intake.accept_message(said("stop", "/stop")) == stop.model_copy(update={"duplicate": True})
    assert job(store, second).status is JobStatus.PENDING


def test_a_stop_that_has_nothing_to_stop_is_refused_at_the_limit(intake: Intake) -> None:
    fill(intake, "elsewhere")
    with pytest.raises(Backlogged):
        intake.accept_message(said("stop", "/stop"))


def test_a_stop_of_what_is_stopping_already_is_refused_at_the_limit(store: Store, intake: Intake) -> None:
    first, *_ = fill(intake)
    with store.begin() as tx:
        tx.jobs.update_job(first.job_id, status=JobStatus.RUNNING)
    intake.accept_message(said("m", "hello"))
    intake.accept_message(said("stop", "/stop"))
    with pytest.raises(Backlogged):
        intake.accept_message(said("stop again", "/stop"))


# Permission


@pytest.mark.parametrize("content", ["/stop", "/new", "/status"])
def test_who_may_not_talk_here_is_not_obeyed(store: Store, intake: Intake, content: str) -> None:
    owners = intake.accept_message(said("first", "hello", ANNOUNCEMENTS, "boss"))
    refused = job(store, intake.accept_message(said("word", content, ANNOUNCEMENTS)))
    assert (refused.status, refused.reason) == (JobStatus.DROPPED, "the channel's permission is read_only")
    assert refused.notice == ""
    assert job(store, owners).status is JobStatus.PENDING


def test_an_owner_is_obeyed_everywhere(store: Store, intake: Intake) -> None:
    question = intake.accept_message(said("first", "hello", ANNOUNCEMENTS, "boss"))
    intake.accept_message(said("word", "/stop", ANNOUNCEMENTS, "boss"))
    assert job(store, question).status is JobStatus.CANCELLED


# Owners


def test_who_is_made_an_owner_is_one_with_the_next_message(intake: Intake, store: Store) -> None:
    with store.begin() as tx:
        tx.users.owners.add_owner(PersonId("web", "guest"), "operator")
    accepted = intake.accept_message(said("as owner", "hello", user="guest"))
    assert job(store, accepted).priority is Priority.OWNER
    with store.begin() as tx:
        tx.users.owners.remove_owner(PersonId("web", "guest"))
    accepted = intake.accept_message(said("as anybody", "hello", user="guest"))
    assert job(store, accepted).priority is Priority.MESSAGE

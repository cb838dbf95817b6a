"""``/new`` divides a channel by the order of arrival: what waited before it belongs to the older conversation."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.conversations import ConversationActivities
from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.conversations.conversation import ConversationStatus
from maestro.domain.jobs.job import StepRef
from maestro.domain.messages import Address, IncomingMessage
from maestro.intake import Intake, IntakeRules
from maestro.store.store import Store
from tests.support.doors import EVERYBODY
from tests.support.fresh_store import fresh_store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
KEYED = "each-user-alone"

Say = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", lambda: NOW)
    with store.begin() as tx:
        agent = tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=NOW, updated_at=NOW))
        tx.agents.save_binding(
            AgentChannel(agent_id=agent.id or 0, platform="web", account="default", channel=KEYED, key_by_user=True)
        )
    yield store
    store.close()


@pytest.fixture
def say(store: Store) -> Say:
    """Accept a message; return its job."""
    intake = Intake(store, lambda: IntakeRules(100, EVERYBODY), lambda: None)
    numbers = iter(range(100))

    def accept(content: str, user: str = "grace", channel: str = "general") -> str:
        return intake.accept_message(
            IncomingMessage(
                id=str(next(numbers)),
                address=Address(platform="web", channel=channel),
                user_id=user,
                content=content,
                is_direct=True,
                sent_at=NOW,
            )
        ).job_id

    return accept


def recorded(store: Store, job_id: str) -> int:
    """Record the message of a job as the flow does; return its conversation."""
    ref = StepRef(job_id=job_id, step="conversation")
    with store.begin() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        tx.jobs.update_job(job_id, agent_id=agent and agent.id)
        tx.jobs.steps.start_attempt(ref, "record_message", 1)
    return ConversationActivities(store, lambda _: 200_000).record_message(ref).conversation_id


def test_what_waited_before_it_stays_in_the_older_conversation(store: Store, say: Say) -> None:
    older = recorded(store, say("first"))
    waiting = say("second")
    say("/new")
    later = say("third")
    assert recorded(store, waiting) == older
    newer = recorded(store, later)
    assert newer != older
    with store.view() as tx:
        assert tx.conversations.get(older).status is ConversationStatus.CLOSED
        assert tx.conversations.get(newer).status is ConversationStatus.ACTIVE


def test_it_divides_messages_of_which_none_was_recorded_yet(store: Store, say: Say) -> None:
    jobs = [say(text) for text in ("one", "two", "/new", "three", "/new", "/new", "four")]
    one, two, three, four = (recorded(store, jobs[number]) for number in (0, 1, 3, 6))
    assert one == two
    assert len({one, three, four}) == 3


def test_the_order_in_which_they_are_recorded_does_not_matter(store: Store, say: Say) -> None:
    earlier, _, later = say("a resumed one"), say("/new"), say("the next one")
    newer = recorded(store, later)
    assert recorded(store, earlier) != newer
    assert recorded(store, say("one more")) == newer


def test_where_each_user_talks_alone_only_the_own_conversation_is_divided(store: Store, say: Say) -> None:
    grace, alan = (recorded(store, say("hello", user, KEYED)) for user in ("grace", "alan"))
    say("/new", "grace", KEYED)
    assert recorded(store, say("again", "alan", KEYED)) == alan
    assert recorded(store, say("again", "grace", KEYED)) != grace


def test_another_channel_is_not_divided(store: Store, say: Say) -> None:
    elsewhere = recorded(store, say("hello", channel="elsewhere"))
    say("/new")
    assert recorded(store, say("again", channel="elsewhere")) == elsewhere

"""Which waiting messages are answered together, and what a newer one interrupts (docs/decisions.md: busy agents)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from maestro.domain.agents.agent import AgentChannel, BusyMode, channel_busy_mode
from maestro.domain.jobs.busy import MOST_MERGED, QueuedMessage, jobs_to_interrupt, jobs_to_merge
from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.messages import InboxRow

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def row(number: int, user: str = "grace", **changes: Any) -> InboxRow:
    return InboxRow(
        id=number,
        platform="web",
        account="default",
        channel="general",
        message_id=str(number),
        user_id=user,
        sent_at=NOW,
        received_at=NOW,
        job_id=f"message-{number}",
        **changes,
    )


def asked(number: int, user: str = "grace", job: dict[str, Any] | None = None, **changes: Any) -> QueuedMessage:
    columns = {"platform": "web", "account": "default", "channel": "general", "created_at": NOW, **(job or {})}
    return QueuedMessage(Job(id=f"message-{number}", **columns), row(number, user, **changes))


def numbers(found: tuple[QueuedMessage, ...]) -> list[int | None]:
    return [one.row.id for one in found]


def test_the_mode_of_the_channel_counts_before_that_of_the_settings() -> None:
    channel = AgentChannel(agent_id=1, platform="web", account="default", channel="c", busy=BusyMode.INTERRUPT)
    assert channel_busy_mode(channel, BusyMode.COLLECT) is BusyMode.INTERRUPT
    channel.busy = None
    assert channel_busy_mode(channel, BusyMode.COLLECT) is BusyMode.COLLECT
    assert channel_busy_mode(None, BusyMode.QUEUE) is BusyMode.QUEUE


def test_what_waits_is_collected_in_order() -> None:
    assert numbers(jobs_to_merge(row(1), [asked(2), asked(3)], None, lambda _: True)) == [2, 3]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(asked(3, "alan"), id="another person"),
        pytest.param(asked(3, is_owner=True), id="the same person, with other rights"),
        pytest.param(asked(3, from_bot=True), id="a bot"),
        pytest.param(asked(3, job={"restarted_from": "message-0"}), id="asked for by an operator"),
        pytest.param(asked(3, job={"run": 2}), id="begun before"),
        pytest.param(asked(3, job={"started_at": NOW}), id="begun before, and given back"),
        pytest.param(asked(3, job={"stop_requested": True}), id="taken back"),
        pytest.param(asked(3, job={"notice": "Which one?"}), id="something of our own"),
        pytest.param(asked(3, job={"kind": JobKind.DELEGATION}), id="a task"),
    ],
)
def test_another_matter_ends_the_collection(other: QueuedMessage) -> None:
    waiting = [asked(2), other, asked(4)]
    assert numbers(jobs_to_merge(row(1), waiting, None, lambda _: True)) == [2]


def test_a_message_that_somebody_else_would_answer_ends_it() -> None:
    waiting = [asked(2), asked(3, content="@other"), asked(4)]
    assert numbers(jobs_to_merge(row(1), waiting, None, lambda one: one.content != "@other")) == [2]


def test_what_came_after_a_new_conversation_is_another_turn() -> None:
    assert numbers(jobs_to_merge(row(1), [asked(2), asked(4)], 3, lambda _: True)) == [2]


def test_a_turn_has_a_bound() -> None:
    waiting = [asked(number) for number in range(2, MOST_MERGED + 10)]
    assert len(jobs_to_merge(row(1), waiting, None, lambda _: True)) == MOST_MERGED


def test_a_newer_message_interrupts_what_the_same_agent_does_for_the_same_person() -> None:
    lane = [
        asked(1, job={"agent_id": 7}),
        asked(2, "alan", job={"agent_id": 7}),
        asked(3, job={"agent_id": 8}),
        asked(4, job={"agent_id": 7, "stop_requested": True}),
        asked(5),  # no agent is chosen yet: it will collect the newer one
    ]
    assert numbers(jobs_to_interrupt(row(6), 7, lane)) == [1]
    assert jobs_to_interrupt(row(6), None, lane) == ()

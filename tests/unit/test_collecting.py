"""Collecting and interrupting over a real store: intake and the steps, as the flow calls them.

See docs/decisions.md: busy agents.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from activities.conversations import ConversationActivities
from activities.routing import RoutingActivities
from maestro.domain.agents.agent import Agent, AgentChannel, BusyMode
from maestro.domain.conversations.conversation import Message
from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.busy import INTERRUPTED
from maestro.domain.jobs.flow import RouteAction, RouteOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address, Attachment, IncomingMessage, LaneKey
from maestro.domain.people.people import AccessRules, DmPolicy
from maestro.domain.settings.jobs import RoutingSettings
from maestro.intake import Intake, IntakeRules
from maestro.intake.access import AccessControl
from maestro.operations.jobs import JobOperations
from maestro.store.store import Store
from tests.support.api_client import no_temporal
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import Clock
from tests.support.spoken import NoTyping

HERE = Address(platform="web", channel="team")
MODES = {"team": BusyMode.COLLECT, "hasty": BusyMode.INTERRUPT, "slow": BusyMode.QUEUE}


class Silent(NoTyping):
    """Types nowhere, and notes what it should acknowledge."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        del job_id, address
        self.seen += message_ids
        return True


@dataclass
class Room:
    """A store with an agent in three channels, and what happens in it."""

    store: Store
    clock: Clock
    channel: str = "team"
    said: int = 0
    typing: Silent = field(default_factory=Silent)
    access: AccessControl = field(
        default_factory=lambda: AccessControl(
            AccessRules(frozenset({"web:boss"}), {"web": DmPolicy.OPEN}), RoutingSettings()
        )
    )

    def say(self, content: str, user: str = "grace", *files: str) -> str:
        """Take a message in and return its job."""
        self.said += 1
        self.clock.go(seconds=1)
        rules = IntakeRules(100, AccessRules(frozenset({"web:boss"}), {"web": DmPolicy.OPEN}))
        message = IncomingMessage(
            id=str(self.said),
            address=HERE.model_copy(update={"channel": self.channel}),
            user_id=user,
            content=content,
            sent_at=self.clock(),
            attachments=tuple(Attachment(id=name, filename=name) for name in files),
        )
        return Intake(self.store, lambda: rules, lambda: None).accept_message(message).job_id

    def route(self, job_id: str) -> RouteOutcome:
        """Do the first step of a job."""
        return RoutingActivities(self.store, self.typing, lambda: self.access).choose_agent(self.begun(job_id, "route"))

    def record(self, job_id: str) -> int:
        """Do the step that records what was said; return the conversation."""
        step = self.begun(job_id, "conversation")
        return ConversationActivities(self.store, lambda _: 200_000).record_message(step).conversation_id

    def begun(self, job_id: str, step: str) -> StepRef:
        """Begin a step as the journal does."""
        ref = StepRef(job_id=job_id, step=step)
        with self.store.begin() as tx:
            tx.jobs.mark_started(job_id)
            tx.jobs.steps.start_attempt(ref, step, 1)
        return ref

    def end(self, job_id: str, status: JobStatus = JobStatus.COMPLETED) -> None:
        """End a job."""
        with self.store.begin() as tx:
            tx.jobs.close_job(job_id, JobEnding(status=status))

    def job(self, job_id: str) -> Job:
        """Return a job as it is now."""
        with self.store.view() as tx:
            return tx.jobs.get(job_id)

    def asked(self, job_id: str) -> list[str]:
        """Return what a job answers; what it sends refers to the newest of it."""
        with self.store.view() as tx:
            job = tx.jobs.get(job_id)
            asked = tx.jobs.merged.list_answered_messages(job)
            assert tx.deliveries.read_start(job, DeliveryPurpose.ANSWER).asked == asked[-1].message_id
            return [row.content for row in asked]

    def history(self, conversation: int) -> list[str]:
        """Return what a conversation holds."""
        with self.store.view() as tx:
            return [message.content for message in tx.conversations.list_messages(conversation)]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    clock = Clock()
    store = fresh_store(tmp_path / "maestro.db", clock)
    with store.begin() as tx:
        agents = [
            tx.agents.save_agent(Agent(slug=slug, name=slug, created_at=tx.now, updated_at=tx.now))
            for slug in ("ada", "bob")
        ]
        for channel, mode in MODES.items():
            tx.agents.save_binding(
                AgentChannel(agent_id=agents[0].id or 0, platform="web", account="default", channel=channel, busy=mode)
            )
    yield Room(store, clock)
    store.close()


def test_the_host_answers_for_what_waits_behind_it(room: Room) -> None:
    host, *others = (room.say(text) for text in ("one", "two", "three"))
    outcome = room.route(host)
    assert outcome.action is RouteAction.ANSWER
    assert room.typing.seen == ["1", "2", "3"], "each of them is acknowledged"
    assert outcome.reason.endswith("2 more messages are answered by the same job")
    assert [(room.job(one).status, room.job(one).merged_into) for one in others] == [(JobStatus.MERGED, host)] * 2
    assert room.history(room.record(host)) == ["one", "two", "three"]
    with room.store.view() as tx:
        assert tx.jobs.count_pending_in(LaneKey("web/default/team//")) == 0


def test_a_job_that_begins_knows_whether_it_answers_in_the_place_of_others(room: Room) -> None:
    for merged in (False, True):
        host, other = room.say("one"), room.say("two")
        with room.store.begin() as tx:
            if merged:
                tx.jobs.merged.merge_jobs([other], host)
            begun = tx.jobs.mark_started(host)
        assert begun is not None
        assert begun.has_merged is merged
        room.end(host)
        room.end(other)


def test_another_persons_message_is_a_turn_of_its_own(room: Room) -> None:
    host, other, later = room.say("one"), room.say("create an agent", "boss"), room.say("three")
    room.route(host)
    assert room.asked(host) == ["one"]
    assert {room.job(one).status for one in (other, later)} == {JobStatus.PENDING}


def test_where_messages_queue_nothing_is_collected(room: Room) -> None:
    room.channel = "slow"
    host, other = room.say("one"), room.say("two")
    room.route(host)
    assert room.job(other).status is JobStatus.PENDING


def test_the_host_fetches_what_came_with_the_others(room: Room) -> None:
    host = room.say("look")
    room.say("at this", "grace", "cat.png")
    assert room.route(host).media


def test_a_mention_of_another_agent_is_not_collected_where_no_agent_is_bound(room: Room) -> None:
    room.channel = "unbound"
    host, other = room.say("@ada hello"), room.say("@bob hello")
    access = replace(room.access, routing=RoutingSettings(busy="collect"))
    activities = RoutingActivities(room.store, Silent(), lambda: access)
    activities.choose_agent(room.begun(host, "route"))
    assert room.asked(host) == ["@ada hello"]
    assert room.job(other).status is JobStatus.PENDING


def test_a_new_conversation_divides_a_turn(room: Room) -> None:
    host, joins, _, later = (room.say(text) for text in ("one", "two", "/new", "three"))
    room.route(host)
    assert room.asked(host) == ["one", "two"]
    assert room.job(joins).status is JobStatus.MERGED
    assert room.job(later).status is JobStatus.PENDING


async def test_a_restart_answers_for_everything_again(room: Room) -> None:
    host, other = room.say("one"), room.say("two")
    room.route(host)
    conversation = room.record(host)
    room.end(host, JobStatus.FAILED)
    control = JobOperations(room.store, no_temporal)
    again = await control.replay(other, ReplayMode.RESTART, "a test")
    assert room.job(again).restarted_from == host
    later = room.say("three")
    room.route(again)
    assert room.job(later).merged_into == again
    assert room.asked(again) == ["one", "two", "three"]
    assert room.record(again) == conversation
    assert room.history(conversation) == ["one", "two", "three"]


def test_a_message_that_comes_before_the_route_is_chosen_is_collected(room: Room) -> None:
    room.channel = "hasty"
    host = room.say("one")
    room.begun(host, "typing")
    newer = room.say("two")
    assert not room.job(host).stop_requested
    room.route(host)
    assert room.job(newer).merged_into == host


@dataclass
class Interruption:
    """An older message whose agent is chosen, and the newer one that interrupts it."""

    room: Room
    older: str
    newer: str


@pytest.fixture
def interruption(room: Room) -> Interruption:
    room.channel = "hasty"
    older = room.say("for two")
    room.route(older)
    return Interruption(room, older, room.say("for three"))


def test_an_interrupted_message_is_answered_with_the_newer_one(interruption: Interruption) -> None:
    room, older, newer = interruption.room, interruption.older, interruption.newer
    assert room.job(older).stop_requested
    room.end(older, JobStatus.CANCELLED)
    room.route(newer)
    assert room.asked(newer) == ["for two", "for three"]
    assert room.history(room.record(newer)) == ["for two", "for three"]
    with room.store.view() as tx:
        assert {tx.inbox.get(number).job_id for number in (1, 2)} == {newer}


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED])
def test_a_message_that_ended_by_itself_keeps_its_answer(interruption: Interruption, status: JobStatus) -> None:
    room, older, newer = interruption.room, interruption.older, interruption.newer
    room.end(older, status)
    room.route(newer)
    assert room.asked(newer) == ["for three"]
    assert room.job(older).merged_into is None


def test_what_the_interrupted_one_would_have_answered_for_goes_along(interruption: Interruption) -> None:
    room, older, newer = interruption.room, interruption.older, interruption.newer
    room.end(older, JobStatus.CANCELLED)
    with room.store.begin() as tx:
        tx.jobs.update_job(newer, agent_id=tx.jobs.get(older).agent_id, started_at=tx.now, status=JobStatus.RUNNING)
    room.route(newer)
    newest = room.say("for four")
    room.end(newer, JobStatus.CANCELLED)
    room.route(newest)
    assert room.asked(newest) == ["for two", "for three", "for four"]


def test_an_answer_that_nobody_received_is_superseded(interruption: Interruption) -> None:
    room, older, newer = interruption.room, interruption.older, interruption.newer
    conversation = room.record(older)
    with room.store.begin() as tx:
        answer = Message(
            conversation_id=conversation,
            role=Role.ASSISTANT,
            content="a table for two",
            token_estimate=4,
            job_id=older,
            created_at=tx.now,
        )
        tx.conversations.add_message(answer)
    room.end(older, JobStatus.CANCELLED)
    room.route(newer)
    room.record(newer)
    with room.store.view() as tx:
        told = tx.conversations.list_newest_messages(conversation, 1000, 10)
    assert [message.content for message in reversed(told)] == ["for two", "for three"]


def test_a_stop_takes_back_the_newer_message_of_an_interruption(interruption: Interruption) -> None:
    room, newer = interruption.room, interruption.newer
    room.say("/stop")
    assert room.job(newer).status is JobStatus.CANCELLED
    assert room.job(newer).reason == "stopped before it began"


def test_somebody_else_interrupts_nothing(room: Room) -> None:
    room.channel = "hasty"
    older = room.say("for two")
    room.route(older)
    room.say("for three", "alan")
    assert not room.job(older).stop_requested


def test_what_came_before_a_new_conversation_is_answered_in_the_one_it_belongs_to(room: Room) -> None:
    room.channel = "hasty"
    older = room.say("for two")
    room.route(older)
    room.say("/new")
    newer = room.say("something else")
    assert not room.job(older).stop_requested
    earlier = room.record(older)
    room.end(older)
    room.route(newer)
    assert (room.asked(newer), room.record(newer) == earlier) == (["something else"], False)


def test_what_waits_outside_its_place_ends_at_once(room: Room) -> None:
    room.channel = "hasty"
    older = room.say("for two")
    room.route(older)
    with room.store.begin() as tx:
        tx.jobs.update_job(older, status=JobStatus.WAITING, told_to_wait=True)
    newer = room.say("for three")
    assert (room.job(older).status, room.job(older).reason) == (JobStatus.CANCELLED, INTERRUPTED)
    assert room.job(newer).told_to_wait


async def test_an_interrupted_message_is_not_resumed_beside_the_one_that_answers_it(interruption: Interruption) -> None:
    room, older, newer = interruption.room, interruption.older, interruption.newer
    room.end(older, JobStatus.CANCELLED)
    room.route(newer)
    control = JobOperations(room.store, no_temporal)
    with pytest.raises(Exception, match=f"answered by job {newer} now"):
        await control.replay(older, ReplayMode.RESUME, "a test")

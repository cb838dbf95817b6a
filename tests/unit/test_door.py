"""What ends at the door: lines for nobody, bots, haste, and control words of who may not talk.

See docs/decisions.md: routing, access, bots.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus, Permission
from maestro.domain.agents.routing import UNMENTIONED
from maestro.domain.connectors import BotInstance
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Job, JobKind, JobStatus, new_notice_job
from maestro.domain.messages import AcceptedMessage, Address, Addressing, FloodState, IncomingMessage
from maestro.domain.people.people import MOST_GUESSES, AccessRules, DmPolicy
from maestro.domain.precedence import Priority
from maestro.domain.settings.jobs import RoutingSettings
from maestro.intake import Intake, IntakeRules
from maestro.intake.messages import BOT, BOT_LOOP, GUESSING, TOO_FAST
from tests.support.conversations import talk_with
from tests.support.job_rows import JobRows

GROUP, BOUND, OPEN_TO_BOTS, ANNOUNCEMENTS, DIRECT = "group", "bound", "bots", "news", "direct"
MOST, MOST_OF_A_BOT = 3, 2


@dataclass
class Door:
    """An intake with a conductor, a coder for whom two channels are bound, and small limits."""

    rows: JobRows
    intake: Intake
    numbers: Iterator[int] = field(default_factory=count)

    def accept(self, content: str, channel: str = GROUP, user: str = "grace", **more: Any) -> AcceptedMessage:
        """Accept a message."""
        return self.intake.accept_message(
            IncomingMessage(
                id=f"m-{next(self.numbers)}",
                address=Address(platform="web", channel=channel, thread=more.pop("thread", "")),
                user_id=user,
                content=content,
                sent_at=self.rows.clock.now,
                **{"is_direct": channel == DIRECT, **more},
            )
        )

    def say(self, content: str, channel: str = DIRECT, user: str = "grace", **more: Any) -> Job:
        """Accept a message; return its job."""
        return self.job(self.accept(content, channel, user, **more).job_id)

    def job(self, job_id: str) -> Job:
        """Return a job as it is now."""
        with self.rows.store.view() as tx:
            return tx.jobs.get(job_id)

    def ignored(self) -> dict[tuple[str, str], int]:
        """Return what was only counted, by channel and reason."""
        with self.rows.store.view() as tx:
            return {(row.channel, row.reason): row.count for row in tx.inbox.ignored.list_ignored_page(0, 100)}

    def notices(self) -> list[str]:
        """Return what people are told by Maestro itself, oldest first."""
        with self.rows.store.view() as tx:
            found, _ = tx.jobs.lists.list_jobs(JobFilter(), None, 100)
        return [one.job.notice for one in reversed(found) if one.job.notice]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="boss", name="Boss", role=CONDUCTOR, created_at=tx.now, updated_at=tx.now))
        coder = tx.agents.save_agent(
            Agent(slug="coder", name="Coder", allow_users="web:alan", created_at=tx.now, updated_at=tx.now)
        )
        for channel, permission in ((BOUND, "full"), (OPEN_TO_BOTS, "full"), (ANNOUNCEMENTS, "read_only")):
            tx.agents.save_binding(
                AgentChannel(
                    agent_id=coder.id or 0,
                    platform="web",
                    account="default",
                    channel=channel,
                    permission=Permission(permission),
                    allow_bots=channel == OPEN_TO_BOTS,
                )
            )
    rules = IntakeRules(
        max_pending=100,
        access=AccessRules(frozenset({"web:chief"}), {"web": DmPolicy.OPEN}),
        routing=RoutingSettings(
            conductor_channels=("web:throne",), messages_per_minute=MOST, bot_messages_per_minute=MOST_OF_A_BOT
        ),
    )
    yield Door(rows, Intake(rows.store, lambda: rules, lambda: None))
    rows.store.close()


# Lines for nobody


def test_in_a_group_a_line_that_mentions_nobody_is_only_counted(door: Door) -> None:
    lines = [door.accept(line) for line in ("hello", "mail ada@coder.example", "@nobody")]
    assert [(line.job_id, bool(line.ignored), line.duplicate) for line in lines] == [("", True, False)] * 3
    assert door.ignored() == {(GROUP, "no agent is bound to the channel and none is mentioned"): 3}
    with door.rows.store.view() as tx:
        assert tx.jobs.count_pending() == 0


@pytest.mark.parametrize(
    ("content", "channel"),
    [("hi @coder", GROUP), ("hello", BOUND), ("hello", "throne"), ("hello", DIRECT), ("/status", GROUP)],
)
def test_what_is_for_somebody_waits_for_them(door: Door, content: str, channel: str) -> None:
    assert door.say(content, channel).status is JobStatus.PENDING
    assert door.ignored() == {}


def test_an_agent_that_is_not_active_is_not_mentioned(door: Door) -> None:
    with door.rows.store.begin() as tx:
        coder = tx.agents.find_agent_by_slug("coder")
        assert coder is not None
        coder.status = AgentStatus.PAUSED
        tx.agents.save_agent(coder)
    assert door.accept("hi @coder").ignored
    assert door.say("hello", BOUND).status is JobStatus.PENDING  # the routing step says why, on its row


# A bot of ours that has an agent


@pytest.fixture
def coders(door: Door) -> Door:
    """The door when what comes in by the account is for the coder."""
    with door.rows.store.begin() as tx:
        coder = tx.agents.find_agent_by_slug("coder")
        assert coder is not None
        tx.bots.save_bot(BotInstance(platform="web", account="default", agent_id=coder.id), "grace", "connector.add")
    return door


def test_the_agent_of_a_bot_is_not_asked_for_what_others_say_to_each_other(coders: Door) -> None:
    assert coders.accept("hello").ignored == UNMENTIONED
    assert coders.accept("@boss hello").ignored == UNMENTIONED  # a bot of the boss's may hear it as well
    assert coders.ignored() == {(GROUP, UNMENTIONED): 2}


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("hello @coder", {}),
        ("hello", {"addressing": Addressing.US}),
        ("hello", {"addressing": Addressing.REPLY}),
        ("hello", {"addressing": Addressing.ANYBODY}),
        ("hello", {"channel": BOUND}),
        ("hello", {"channel": DIRECT}),
        ("/status", {}),
    ],
)
def test_the_agent_of_a_bot_is_asked_what_is_said_to_it(coders: Door, content: str, more: dict[str, Any]) -> None:
    assert coders.accept(content, **more).ignored == ""


def test_in_a_thread_it_need_be_mentioned_only_once(coders: Door) -> None:
    assert coders.accept("before", thread="t").ignored == UNMENTIONED
    coders.accept("@coder look", thread="t")
    assert coders.accept("and this", thread="t").ignored == ""  # while the first one waits
    assert coders.accept("elsewhere", thread="long ago").ignored == UNMENTIONED
    with coders.rows.store.begin() as tx:
        coder, old = tx.agents.find_agent_by_slug("coder"), Address(platform="web", channel=GROUP, thread="long ago")
        talk_with(tx, (coder and coder.id) or 0, old, ("u", "U"))
    assert coders.accept("and this", thread="long ago").ignored == ""


# Bots


def test_a_bot_is_ignored_where_bots_may_not_talk(door: Door) -> None:
    for channel in (GROUP, BOUND, DIRECT):
        assert door.accept("@coder", channel, from_bot=True).ignored == BOT
    assert door.accept("/stop", BOUND, "chief", from_bot=True).ignored == BOT


def test_a_bot_that_may_talk_is_cut_off_when_it_goes_round_in_circles(door: Door) -> None:
    said = [door.accept(f"{number}", OPEN_TO_BOTS, "robot", from_bot=True) for number in range(MOST_OF_A_BOT + 2)]
    assert [one.ignored for one in said] == [*[""] * MOST_OF_A_BOT, BOT_LOOP, BOT_LOOP]
    assert door.ignored() == {(OPEN_TO_BOTS, BOT_LOOP): 2}
    assert door.accept("another bot", OPEN_TO_BOTS, "droid", from_bot=True).ignored == ""
    assert door.accept("a person", OPEN_TO_BOTS, "alan").ignored == ""
    door.rows.clock.go(minutes=1, seconds=1)
    assert door.accept("later", OPEN_TO_BOTS, "robot", from_bot=True).ignored == ""


def test_a_bot_has_no_more_guesses_at_a_code_than_a_person(door: Door) -> None:
    said = []
    for _ in range(MOST_GUESSES + 1):
        said.append(door.accept("/pair wrong", OPEN_TO_BOTS, "robot", from_bot=True).ignored)
        door.rows.clock.go(minutes=1)
    assert said == [*[""] * MOST_GUESSES, GUESSING]


# Haste


def test_who_writes_too_fast_is_dropped_and_told_so_once_a_minute(door: Door) -> None:
    jobs = [door.say(f"{number}") for number in range(MOST + 3)]
    assert [job.status for job in jobs] == [*[JobStatus.PENDING] * MOST, *[JobStatus.DROPPED] * 3]
    assert {job.reason for job in jobs[MOST:]} == {TOO_FAST}
    assert len(door.notices()) == 1
    assert f"at most {MOST} messages a minute" in door.notices()[0]
    assert all(job.lane is not None for job in jobs)  # so that an operator can restart it


def test_what_was_dropped_does_not_count_against_the_person(door: Door) -> None:
    for number in range(MOST):
        door.say(f"{number}")
    door.rows.clock.go(seconds=59)
    assert door.say("too early").status is JobStatus.DROPPED
    door.rows.clock.go(seconds=2)
    assert [door.say(f"{number}").status for number in range(MOST)] == [JobStatus.PENDING] * MOST
    assert door.say("again").status is JobStatus.DROPPED
    with door.rows.store.view() as tx:
        told = [tx.inbox.get(number) for number in (MOST + 1, 2 * MOST + 2)]
    assert [row.pace for row in told] == [FloodState.TOLD, FloodState.OVER]


def test_a_clock_that_was_set_back_keeps_nobody_out(door: Door) -> None:
    for number in range(MOST):
        door.say(f"{number}")
    door.rows.clock.go(hours=-1)
    assert door.say("an hour ago").status is JobStatus.PENDING


def test_owners_and_a_stop_have_no_limit_but_other_control_words_do(door: Door) -> None:
    assert all(door.say(f"{number}", user="chief").status is JobStatus.PENDING for number in range(MOST + 2))
    for number in range(MOST):
        door.say(f"{number}")
    assert door.say("/status").status is JobStatus.DROPPED
    assert door.say("/stop").notice == "Stopped."
    assert door.say("hello", user="alan").status is JobStatus.PENDING


# Who is obeyed


@pytest.mark.parametrize(
    ("user", "channel", "status", "reason"),
    [
        ("grace", BOUND, JobStatus.DROPPED, "the user is not on the list of coder (allowUsers)"),
        ("alan", BOUND, JobStatus.PENDING, ""),
        ("chief", BOUND, JobStatus.PENDING, ""),
        ("alan", ANNOUNCEMENTS, JobStatus.DROPPED, "the channel's permission is read_only"),
        ("chief", ANNOUNCEMENTS, JobStatus.PENDING, ""),
        ("grace", GROUP, JobStatus.PENDING, ""),
    ],
)
def test_a_control_word_is_obeyed_for_who_may_talk_to_the_agent(
    door: Door, user: str, channel: str, status: JobStatus, reason: str
) -> None:
    job = door.say("/new", channel, user)
    assert (job.status, job.reason) == (status, reason)


def test_an_owner_comes_first(door: Door) -> None:
    assert (door.say("hi", user="chief").priority, door.say("hi").priority) == (Priority.OWNER, Priority.MESSAGE)


# Tasks


def task(door: Door, channel: str, status: JobStatus, inbox_id: int | None = None, thread: str = "") -> str:
    """Add a task that one agent gave another for what was said in this channel."""
    job_id = f"delegation-{next(door.numbers)}"
    with door.rows.store.begin() as tx:
        address = Address(platform="web", channel=channel, thread=thread)
        tx.jobs.add(
            Job(
                id=job_id,
                kind=JobKind.DELEGATION,
                task="count",
                parent_id="message-before",
                inbox_id=inbox_id,
                created_at=tx.now,
                **address.model_dump(),
            )
        )
        tx.jobs.update_job(job_id, status=status)
    return job_id


def test_a_stop_reaches_the_tasks_of_the_channel_and_the_status_names_them(door: Door) -> None:
    running, waiting = task(door, DIRECT, JobStatus.RUNNING), task(door, DIRECT, JobStatus.WAITING)
    with door.rows.store.begin() as tx:  # a notice that tells of a task is none
        tx.jobs.add(new_notice_job(tx.jobs.get(waiting), "notice", "Every model is busy.", tx.now))
    in_a_thread = task(door, DIRECT, JobStatus.RUNNING, thread="aside")
    elsewhere, over = task(door, BOUND, JobStatus.RUNNING), task(door, DIRECT, JobStatus.COMPLETED)
    assert door.say("/status").notice == "Nothing is running here. 2 tasks passed on to other agents."
    assert door.say("/stop").notice == "Stopped."
    assert door.job(running).stop_requested
    assert door.job(waiting).status is JobStatus.CANCELLED
    assert not door.job(elsewhere).stop_requested
    assert not door.job(in_a_thread).stop_requested
    assert door.job(over).status is JobStatus.COMPLETED
    assert door.say("/status").notice == "Nothing is running here. 1 task passed on to other agents."


def test_where_each_user_talks_alone_a_stop_reaches_only_their_tasks(door: Door) -> None:
    with door.rows.store.begin() as tx:
        binding = tx.agents.find_binding(Address(platform="web", channel=BOUND))
        assert binding is not None
        binding.key_by_user = True
        tx.agents.save_binding(binding)
    asked = door.say("hello", BOUND, "alan")
    theirs = task(door, BOUND, JobStatus.RUNNING, asked.inbox_id)
    assert door.say("/stop", BOUND, "chief").notice == "Nothing is running here."
    door.say("/stop", BOUND, "alan")
    assert door.job(theirs).stop_requested

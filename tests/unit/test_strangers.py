"""Unknown users cost nothing, and get access with a code (docs/decisions.md: access)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel
from maestro.domain.errors import Backlogged, Conflict, NotFound
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.jobs.replay import ReplayMode, replay_refusal
from maestro.domain.messages import AcceptedMessage, Address, IncomingMessage, pairing_code
from maestro.domain.people.people import (
    CODE_LENGTH,
    CODE_LETTERS,
    MOST_GUESSES,
    MOST_PENDING,
    UNKNOWN_USER_REASONS,
    AccessRules,
    DmPolicy,
    PairingStatus,
    PersonId,
)
from maestro.domain.settings.jobs import PairingSettings, RoutingSettings
from maestro.intake import Intake, IntakeRules, pairing
from maestro.intake.messages import GUESSING, UNKNOWN_USER_TOO_FAST
from maestro.intake.pairing import AN_OWNER, FULL, LET_IN, REFUSED, WRONG
from maestro.store.transaction import Transaction
from tests.support.job_rows import JobRows

MINE = "mine"
UNKNOWN = UNKNOWN_USER_REASONS[DmPolicy.PAIRING]
LIFETIME = timedelta(minutes=60)
MOST = 200
LIMIT = 250


@dataclass
class Door:
    """An intake of a platform where people have to be paired, and of one where only those on a list are answered."""

    rows: JobRows
    intake: Intake
    numbers: Iterator[int] = field(default_factory=count)

    def accept(self, content: str, user: str, channel: str = MINE, platform: str = "slack") -> AcceptedMessage:
        """Accept a message in a direct channel."""
        return self.intake.accept_message(
            IncomingMessage(
                id=f"m-{next(self.numbers)}",
                address=Address(platform=platform, channel=channel),
                user_id=user,
                user_name=user.title(),
                content=content,
                sent_at=self.rows.clock.now,
                is_direct=True,
            )
        )

    def say(self, content: str, user: str = "grace", channel: str = MINE, platform: str = "slack") -> Job:
        """Accept a message in a direct channel; return its job."""
        return self.job(self.accept(content, user, channel, platform).job_id)

    def job(self, job_id: str) -> Job:
        """Return a job as it is now."""
        with self.rows.store.view() as tx:
            return tx.jobs.get(job_id)

    def told(self) -> list[str]:
        """Return what people were told, oldest first."""
        with self.rows.store.view() as tx:
            found, _ = tx.jobs.lists.list_jobs(JobFilter(), None, 500)
        return [one.job.notice for one in reversed(found) if one.job.notice]

    def codes(self) -> list[str]:
        """Return the codes of the wishes, newest first."""
        with self.rows.store.view() as tx:
            return [row.code for row in tx.users.pairings.list_pairing_page(None, 500)]

    def decide(self, act: Callable[[Transaction], object]) -> None:
        """Do something as the operator."""
        with self.rows.store.begin() as tx:
            act(tx)

    def approve(self, which: str, *, as_owner: bool = False) -> None:
        """Give a user access."""
        self.decide(lambda tx: pairing.approve_pairing(tx, which, "operator", as_owner=as_owner))

    def invite(self, *, as_owner: bool = False) -> str:
        """Return the code of an invitation."""
        with self.rows.store.begin() as tx:
            return pairing.create_invitation(tx, PairingSettings(), "operator", as_owner=as_owner)[0]

    def log(self) -> list[tuple[str, str, str]]:
        """Return the audit log, oldest first."""
        with self.rows.store.view() as tx:
            return [
                (entry.actor, entry.action, entry.subject)
                for entry in reversed(tx.system.audit.list_latest_entries(50))
            ]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="boss", name="Boss", role=CONDUCTOR, created_at=tx.now, updated_at=tx.now))
        listed = "slack:listed irc:listed"
        coder = Agent(slug="coder", name="Coder", allow_users=listed, created_at=tx.now, updated_at=tx.now)
        tx.agents.save_agent(coder)
        tx.agents.save_binding(
            AgentChannel(agent_id=coder.id or 0, platform="slack", account="default", channel="bound")
        )
    access = AccessRules(frozenset({"slack:chief"}), {"irc": DmPolicy.ALLOWLIST})
    rules = IntakeRules(LIMIT, access, RoutingSettings(messages_per_minute=MOST))
    yield Door(rows, Intake(rows.store, lambda: rules, lambda: None))
    rows.store.close()


# Who is a stranger


def test_a_stranger_is_dropped_and_told_a_code_once(door: Door) -> None:
    first, second = door.say("hello"), door.say("are you there?")
    assert [(job.status, job.reason) for job in (first, second)] == [(JobStatus.DROPPED, UNKNOWN)] * 2
    (code,) = door.codes()
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(CODE_LETTERS)
    (told,) = door.told()
    assert f"this code: {code}. It is valid for 60 minutes;" in told


@pytest.mark.parametrize("content", ["/status", "/stop", "/new"])
def test_a_stranger_is_not_obeyed(door: Door, content: str) -> None:
    assert (door.say(content).status, len(door.told())) == (JobStatus.DROPPED, 1)


@pytest.mark.parametrize(
    ("user", "content", "channel"),
    [("chief", "hello", MINE), ("listed", "hi @coder", MINE), ("grace", "hello", "bound")],
)
def test_owners_who_is_listed_and_a_channel_of_an_agent_need_no_code(
    door: Door, user: str, content: str, channel: str
) -> None:
    assert door.say(content, user, channel).status is JobStatus.PENDING
    assert door.codes() == []


def test_who_is_listed_for_one_agent_is_a_stranger_to_another(door: Door) -> None:
    assert door.say("hello", "listed").status is JobStatus.DROPPED


def test_an_allow_list_has_no_codes(door: Door) -> None:
    dropped = door.say("hello", platform="irc")
    assert (dropped.status, dropped.reason) == (JobStatus.DROPPED, UNKNOWN_USER_REASONS[DmPolicy.ALLOWLIST])
    assert (door.codes(), door.told()) == ([], [])
    assert door.say("hi @coder", "listed", platform="irc").status is JobStatus.PENDING


def test_at_the_limit_a_stranger_is_refused_like_anybody(door: Door) -> None:
    for _ in range(LIMIT):
        door.say("hello", "chief")
    with pytest.raises(Backlogged):
        door.say("/stop")
    assert door.codes() == []


# Codes that strangers are told


def test_the_code_is_told_again_after_ten_minutes_where_the_person_is_then(door: Door) -> None:
    door.say("hello")
    door.rows.clock.go(minutes=9)
    door.say("hello?")
    assert len(door.told()) == 1
    door.rows.clock.go(minutes=1)
    door.say("hello??", channel="elsewhere")
    (code,) = door.codes()
    assert [code in notice for notice in door.told()] == [True, True]
    assert "50 minutes" in door.told()[1]
    with door.rows.store.view() as tx:
        assert tx.users.pairings.find_by_number_or_code(code).channel == "elsewhere"


def test_a_code_that_ran_out_is_followed_by_another(door: Door) -> None:
    door.say("hello")
    (old,) = door.codes()
    door.rows.clock.now += LIFETIME
    with pytest.raises(Conflict, match="has expired"):
        door.approve(old)
    door.say("hello again")
    (new,) = door.codes()
    assert new != old
    assert new in door.told()[1]


def test_so_many_may_wait_and_the_others_are_told_nothing(door: Door) -> None:
    for number in range(MOST_PENDING):
        door.say("hello", f"user-{number}")
    late = door.say("hello", "late")
    assert (late.status, late.reason) == (JobStatus.DROPPED, FULL)
    assert (len(door.told()), len(set(door.codes()))) == (MOST_PENDING, MOST_PENDING)
    door.rows.clock.now += LIFETIME
    assert door.say("hello", "late").reason == UNKNOWN
    assert len(door.codes()) == MOST_PENDING + 1
    with door.rows.store.view() as tx:
        newest, *_ = tx.users.pairings.list_pairing_page(None, 1)
    door.rows.clock.go(days=2)
    door.say("hello", "later")
    assert len(door.codes()) == 1  # what ran out long ago is forgotten
    with door.rows.store.view() as tx:
        assert (
            tx.users.pairings.list_pairing_page(None, 1)[0].id == (newest.id or 0) + 1
        )  # and no number means another person


def test_a_stranger_in_haste_leaves_no_more_rows(door: Door) -> None:
    said = [door.accept("hello", "grace") for _ in range(MOST + 2)]
    assert [one.ignored for one in said] == [*[""] * MOST, *[UNKNOWN_USER_TOO_FAST] * 2]


# What an operator says


@pytest.mark.parametrize("as_owner", [False, True])
def test_who_is_approved_is_told_so_and_answered_from_then_on(door: Door, as_owner: bool) -> None:
    dropped = door.say("hello")
    (code,) = door.codes()
    door.approve(f" {code[:4].lower()}-{code[4:].lower()} ", as_owner=as_owner)
    assert door.told()[1] == (AN_OWNER if as_owner else LET_IN)
    assert door.say("hello again").status is JobStatus.PENDING
    with door.rows.store.view() as tx:
        assert tx.users.owners.is_owner(PersonId("slack", "grace")) is as_owner
        assert [person.user_name for person in tx.users.pairings.list_known_users(None, 10)] == ["Grace"]
        assert replay_refusal(door.job(dropped.id), door.job(dropped.id), ReplayMode.RESTART) is None
    assert ("operator", "pairing.approve", "slack:grace") in door.log()
    with pytest.raises(Conflict, match="approved already"):
        door.approve(code)


def test_who_is_refused_is_told_nothing_any_more_until_an_operator_thinks_better_of_it(door: Door) -> None:
    door.say("hello")
    door.decide(lambda tx: pairing.refuse_pairing(tx, "1", "operator"))
    door.rows.clock.go(hours=2)
    assert door.say("hello?").reason == REFUSED
    assert len(door.told()) == 1
    door.approve("1")
    assert door.say("thanks").status is JobStatus.PENDING
    with pytest.raises(Conflict, match="people remove slack:grace"):
        door.decide(lambda tx: pairing.refuse_pairing(tx, "1", "operator"))


def test_who_is_forgotten_is_a_stranger_again(door: Door) -> None:
    door.say("hello")
    door.approve("1")
    door.decide(lambda tx: pairing.revoke_access(tx, PersonId("slack", "grace"), "operator"))
    assert door.say("hello?").status is JobStatus.DROPPED
    assert len(set(door.codes())) == 2
    with pytest.raises(NotFound, match="has no access to remove"):
        door.decide(lambda tx: pairing.revoke_access(tx, PersonId("slack", "alan"), "operator"))


def test_a_pairing_that_does_not_exist_is_not_found(door: Door) -> None:
    for which in ("1", "ABCDEFGH", "", "9" * 30):
        with pytest.raises(NotFound):
            door.approve(which)


# Invitations


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("/pair ABCD", "ABCD"),
        (" /PAIR  ab-cd ", "ab-cd"),
        ("/pair ABCD EFGH", "ABCD EFGH"),
        ("/pair", ""),
        ("/pairs ABCD", None),
        ("say /pair ABCD", None),
        ("", None),
    ],
)
def test_how_a_code_is_sent(content: str, code: str | None) -> None:
    found = pairing_code(content)
    assert (found.text if found else None) == code


@pytest.mark.parametrize("as_owner", [False, True])
def test_an_invitation_lets_in_who_sends_it_once(door: Door, as_owner: bool) -> None:
    code = door.invite(as_owner=as_owner)
    door.say("hello")  # who asked before is answered by the same word
    paired = door.say(f"/pair {code[:4]} {code[4:].lower()}")
    assert (paired.lane, paired.notice) == (None, AN_OWNER if as_owner else LET_IN)
    assert door.say("hello again").status is JobStatus.PENDING
    with door.rows.store.view() as tx:
        assert tx.users.owners.is_owner(PersonId("slack", "grace")) is as_owner
        assert tx.inbox.get(paired.inbox_id).content == "/pair"
        (wish,) = tx.users.pairings.list_pairing_page(None, 10)
        assert wish.status is PairingStatus.APPROVED
    assert door.say(f"/pair {code}", "alan").notice == WRONG
    assert door.say("and me?", "alan").status is JobStatus.DROPPED
    actions = [(actor, action) for actor, action, _ in door.log()]
    assert actions[0] == ("operator", "pairing.invite")
    assert ("slack:grace", "pairing.redeem") in actions
    assert ("slack:alan", "pairing.wrong_code") in actions


def test_an_invitation_runs_out(door: Door) -> None:
    code = door.invite()
    door.rows.clock.now += LIFETIME
    assert door.say(f"/pair {code}").notice == WRONG


def test_who_guesses_is_not_looked_at_for_a_while(door: Door) -> None:
    code = door.invite()
    assert [door.say(f"/pair {number}").notice for number in range(MOST_GUESSES)] == [WRONG] * MOST_GUESSES
    assert door.accept(f"/pair {code}", "grace").ignored == GUESSING
    assert door.say("/pair again", "alan").notice == WRONG
    door.rows.clock.go(minutes=10)
    assert door.say(f"/pair {code}").notice == LET_IN


def test_a_clock_that_was_set_back_keeps_nobody_from_pairing(door: Door) -> None:
    for _ in range(MOST_GUESSES):
        door.say("/pair wrong")
    door.rows.clock.go(days=-1)
    assert door.say(f"/pair {door.invite()}").notice == LET_IN


def test_all_who_guess_together_are_stopped_too(door: Door) -> None:
    said = [door.accept("/pair wrong", f"user-{number}").ignored for number in range(101)]
    assert said == [*[""] * 100, GUESSING]

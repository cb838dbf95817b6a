"""Answers at the door: they go to the job that waits and never into a lane (docs/decisions.md: control words)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from maestro.domain.agents.agent import AgentChannel, Permission
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.errors import Backlogged, WaitReason
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, Wait
from maestro.domain.messages import Address, Attachment, IncomingMessage, Receipt
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus, choices_json, question_job_id
from maestro.intake import Intake, IntakeRules
from tests.support.doors import EVERYBODY
from tests.support.job_rows import JobRows

LIMIT = 5
GENERAL, ALONE, ANNOUNCEMENTS = "general", "each-user-alone", "announcements"


@dataclass
class Door:
    """An intake, and jobs that ask."""

    rows: JobRows
    intake: Intake
    numbers: Iterator[int] = field(default_factory=count)

    def say(self, content: str, user: str = "grace", channel: str = GENERAL, reply_to: str = "", files: int = 0) -> Job:
        """Accept a message; return its job."""
        message = IncomingMessage(
            id=f"m-{next(self.numbers)}",
            address=Address(platform="web", channel=channel),
            user_id=user,
            content=content,
            sent_at=self.rows.clock.now,
            is_direct=True,
            reply_to=reply_to,
            attachments=tuple(Attachment(id=str(number)) for number in range(files)),
        )
        return self.job(self.intake.accept_message(message).job_id)

    def job(self, job_id: str) -> Job:
        """Return a job as it is now."""
        with self.rows.store.view() as tx:
            return tx.jobs.get(job_id)

    def asks(self, user: str = "grace", channel: str = GENERAL, *, shown: bool = True) -> Question:
        """Have a job of this person ask, and wait for the answer; it came with a file, so it answers nothing itself."""
        return self._waits(self.say("do it", user, channel, files=1), QuestionKind.QUESTION, user, shown=shown)

    def offers(self, *choices: str) -> Question:
        """Have a job of grace's ask with answers to choose from."""
        question = self.asks()
        with self.rows.store.begin() as tx:
            kept = tx.jobs.questions.get_question(question.id or 0).question
            kept.choices = choices_json(choices)
            return tx.jobs.questions.add_question(kept)

    def wants(self, user: str = "grace", channel: str = GENERAL, approvers: str = "web:alan") -> Question:
        """Have a job of this person wait for a yes or no."""
        return self._waits(self.say("do it", user, channel, files=1), QuestionKind.APPROVAL, user, approvers)

    def question(self, question: Question) -> Question:
        """Return a question as it is now."""
        with self.rows.store.view() as tx:
            return tx.jobs.questions.get_question(question.id or 0).question

    def goes_on(self, question: Question) -> bool:
        """Say whether the job that waits for this question would go on now."""
        with self.rows.store.begin() as tx:
            tx.jobs.resume_due()
            return tx.jobs.read_status(question.job_id or "") is JobStatus.PENDING

    def log(self) -> list[tuple[str, str, str]]:
        """Return the audit log, oldest first."""
        with self.rows.store.view() as tx:
            return [
                (entry.actor, entry.action, entry.subject)
                for entry in reversed(tx.system.audit.list_latest_entries(20))
            ]

    def _waits(self, job: Job, kind: QuestionKind, user: str, approvers: str = "", *, shown: bool = True) -> Question:
        with self.rows.store.begin() as tx:
            question = tx.jobs.questions.add_question(
                Question(
                    job_id=job.id,
                    number=1,
                    place=0,
                    kind=kind,
                    text="?",
                    lane=job.lane,
                    asked_of=user,
                    approvers=approvers,
                    asked_at=tx.now,
                    expires_at=tx.now + timedelta(hours=1),
                )
            )
            tx.jobs.mark_started(job.id)
            tx.jobs.park_job(job.id, Wait(reason=WaitReason.PERSON, wake_at=question.expires_at))
        if shown:
            self.show(question)
        self.rows.clock.go(seconds=1)
        return question

    def show(self, question: Question) -> None:
        """Send the message that puts a question, in two chunks: the second is ``put-1`` for the first question."""
        with self.rows.store.begin() as tx:
            at = tx.jobs.get(question.job_id or "").address.model_dump()
            notice = tx.jobs.add(Job(id=question_job_id(question, "01K"), notice="?", created_at=tx.now, **at))
            for seq, known_as in enumerate((f"head-{question.id}", f"put-{question.id}")):
                purpose = DeliveryPurpose.NOTICE
                chunk = Delivery(job_id=notice.id, purpose=purpose, seq=seq, content="?", created_at=tx.now, **at)
                tx.deliveries.mark_sent(tx.deliveries.add_chunk(chunk).id or 0, Receipt(platform_message_id=known_as))
            tx.jobs.close_job(notice.id, JobEnding(status=JobStatus.COMPLETED))


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        assert agent is not None
        agent_id = agent.id or 0
        keyed = AgentChannel(agent_id=agent_id, platform="web", account="default", channel=ALONE, key_by_user=True)
        tx.agents.save_binding(keyed)
        tx.agents.save_binding(
            AgentChannel(
                agent_id=agent_id,
                platform="web",
                account="default",
                channel=ANNOUNCEMENTS,
                permission=Permission.READ_ONLY,
            )
        )
    rules = IntakeRules(LIMIT, EVERYBODY)
    yield Door(rows, Intake(rows.store, lambda: rules, lambda: None))
    rows.store.close()


# Words


def test_the_next_message_of_who_was_asked_is_the_answer_and_takes_no_place(door: Door) -> None:
    question = door.asks()
    behind = door.say("something else", "alan")
    answer = door.say("dark blue")
    assert (answer.lane, answer.status) == (None, JobStatus.COMPLETED)
    assert answer.reason == f"answers question #{question.id}"
    assert answer.notice == ""
    answered = door.question(question)
    assert (answered.status, answered.answer, answered.answered_by) == ("answered", "dark blue", "web:grace")
    assert answered.answered_at == door.rows.clock.now
    assert door.goes_on(question)
    assert (behind.lane, behind.status) == (question.lane, JobStatus.PENDING)
    assert door.log() == [("web:grace", "question.answer", str(question.id))]


def test_what_follows_an_answer_is_an_ordinary_message_again(door: Door) -> None:
    door.asks()
    door.say("blue")
    assert door.say("thanks").lane is not None


def test_an_answer_that_comes_twice_counts_once(door: Door) -> None:
    first, second = door.asks(), door.asks()
    message = IncomingMessage(
        id="same",
        address=Address(platform="web", channel=GENERAL),
        user_id="grace",
        content="blue",
        sent_at=door.rows.clock.now,
    )
    accepted = door.intake.accept_message(message)
    assert door.intake.accept_message(message) == accepted.model_copy(update={"duplicate": True})
    assert [door.question(one).status for one in (first, second)] == ["answered", "open"]


def test_a_number_or_a_reply_picks_the_question(door: Door) -> None:
    first, second, third = door.asks(), door.asks(), door.asks()
    door.say(f"#{second.id} green")
    door.say("red", reply_to=f"put-{third.id}")
    door.say("blue", reply_to="some-other-message")
    answers = [door.question(one).answer for one in (first, second, third)]
    assert answers == ["blue", "green", "red"]


def test_a_message_that_comes_before_the_question_has_left_is_no_answer(door: Door) -> None:
    question = door.asks(shown=False)
    early = door.say("and another thing")
    assert early.lane is not None
    assert door.question(question).status is QuestionStatus.OPEN
    door.show(question)
    door.say("blue")
    assert door.question(question).answer == "blue"


@pytest.mark.parametrize("content", ["Blue #{}", "2 #{}", "#{} 2", "#{} blue"])
@pytest.mark.parametrize("user", ["grace", "boss"])
def test_a_choice_names_its_question_whoever_may_answer_it(door: Door, content: str, user: str) -> None:
    older, question = door.offers("Yes", "No"), door.offers("Red", "Blue")
    assert door.say(content.format(question.id), user).lane is None
    assert [door.question(one).answer for one in (older, question)] == ["", "Blue"]


def test_the_number_of_a_choice_is_enough_where_one_question_waits(door: Door) -> None:
    question = door.offers("Red", "Blue")
    assert door.say("1").lane is None
    assert door.question(question).answer == "Red"


@pytest.mark.parametrize("content", ["Green #{}", "3 #{}"])
def test_other_words_with_a_number_behind_them_are_read_whole(door: Door, content: str) -> None:
    other, question = door.asks(), door.offers("Red", "Blue")
    said = content.format(question.id)
    door.say(said)
    assert [door.question(one).answer for one in (other, question)] == [said, ""]


def test_a_choice_that_is_pressed_too_late_or_by_somebody_else_answers_nothing(door: Door) -> None:
    question = door.offers("Red", "Blue")
    assert door.say(f"Red #{question.id}", "alan").lane is not None
    assert door.question(question).status is QuestionStatus.OPEN
    door.say(f"Red #{question.id}")
    late = door.say(f"Blue #{question.id}")
    assert late.notice.startswith(f"#{question.id} was answered already.")
    assert door.question(question).answer == "Red"


@pytest.mark.parametrize("content", ["/status", "/new"])
def test_a_control_word_is_no_answer(door: Door, content: str) -> None:
    question = door.asks()
    door.say(content)
    assert door.question(question).status is QuestionStatus.OPEN


def test_a_message_with_a_file_is_no_answer(door: Door) -> None:
    question = door.asks()
    assert door.say("look at this", files=1).lane is not None
    assert door.question(question).status is QuestionStatus.OPEN


def test_another_channel_is_another_matter(door: Door) -> None:
    question = door.asks()
    assert door.say("blue", channel="elsewhere").lane is not None
    assert door.say(f"#{question.id} blue", channel="elsewhere").lane is not None
    assert door.question(question).status is QuestionStatus.OPEN


def test_where_each_user_talks_alone_a_question_is_in_its_own_lane(door: Door) -> None:
    of_grace, of_alan = door.asks(user="grace", channel=ALONE), door.asks(user="alan", channel=ALONE)
    door.say("blue", "alan", ALONE)
    assert (door.question(of_grace).status, door.question(of_alan).answer) == ("open", "blue")


def test_after_its_time_a_question_takes_no_answer(door: Door) -> None:
    question = door.asks()
    door.rows.clock.go(hours=1)
    assert door.say("blue").lane is not None
    late = door.say(f"#{question.id} blue")
    assert (late.lane, late.status) == (None, JobStatus.PENDING)
    assert late.notice.startswith(f"#{question.id} has expired.")
    assert door.question(question).answer == ""


def test_at_the_limit_an_answer_is_refused_like_a_control_word(door: Door) -> None:
    question = door.asks()
    for _ in range(LIMIT):
        door.say("hello", "alan")
    with pytest.raises(Backlogged):
        door.say("blue")
    assert door.question(question).status is QuestionStatus.OPEN


def test_who_may_not_talk_here_answers_nothing(door: Door) -> None:
    question = door.wants("boss", ANNOUNCEMENTS)
    refused = door.say("yes", "alan", ANNOUNCEMENTS)
    assert (refused.status, refused.reason) == (JobStatus.DROPPED, "the channel's permission is read_only")
    assert refused.notice == ""
    assert door.question(question).status is QuestionStatus.OPEN


# Yes and no


@pytest.mark.parametrize(
    ("content", "user", "status", "reply", "action"),
    [
        ("yes", "alan", QuestionStatus.ANSWERED, "Approved", "question.approve"),
        ("no", "alan", QuestionStatus.DENIED, "Denied", "question.deny"),
        ("ok", "boss", QuestionStatus.ANSWERED, "Approved", "question.approve"),
    ],
)
def test_an_approval_is_decided_and_confirmed(
    door: Door, content: str, user: str, status: QuestionStatus, reply: str, action: str
) -> None:
    question = door.wants()
    confirmed = door.say(content, user)
    assert (confirmed.lane, confirmed.status) == (None, JobStatus.PENDING)
    assert confirmed.notice == f"{reply}: #{question.id}."
    decided = door.question(question)
    assert (decided.status, decided.answer, decided.answered_by) == (status, content, f"web:{user}")
    assert door.goes_on(question)
    assert door.log() == [(f"web:{user}", action, str(question.id))]


@pytest.mark.parametrize("content", ["yes", "no", "yes #1", "#1 deny"])
def test_who_is_not_on_the_list_decides_nothing_and_is_told_so(door: Door, content: str) -> None:
    question = door.wants()
    refused = door.say(content, "grace")
    assert (refused.lane, refused.notice) == (None, f"Only an owner or an approver may decide about #{question.id}.")
    assert door.question(question).status is QuestionStatus.OPEN
    assert not door.goes_on(question)
    assert door.log() == [("web:grace", "question.refused", str(question.id))]


def test_an_approver_of_the_same_name_on_another_platform_is_somebody_else(door: Door) -> None:
    question = door.wants(approvers="slack:alan")
    door.say("yes", "alan")
    assert door.question(question).status is QuestionStatus.OPEN


def test_anything_else_is_an_ordinary_message(door: Door) -> None:
    question = door.wants()
    assert door.say("what would it do?", "alan").lane is not None
    assert door.question(question).status is QuestionStatus.OPEN


def test_with_several_approvals_the_number_is_needed(door: Door) -> None:
    first, second = door.wants(), door.wants()
    told = door.say("yes", "alan")
    assert f"#{first.id}, #{second.id}" in told.notice
    door.say(f"yes #{second.id}", "alan")
    assert [door.question(one).status for one in (first, second)] == ["open", "answered"]


def test_an_approver_who_is_elsewhere_names_the_number(door: Door) -> None:
    question = door.wants(channel=ALONE)
    assert door.say("yes", "alan", ALONE).lane is not None
    door.say(f"yes #{question.id}", "alan", "elsewhere")
    assert door.question(question).status is QuestionStatus.ANSWERED


def test_a_yes_to_what_was_decided_already_changes_nothing(door: Door) -> None:
    question = door.wants()
    door.say("no", "alan")
    late = door.say(f"yes #{question.id}", "boss")
    assert late.notice.startswith(f"#{question.id} was answered already.")
    assert door.question(question).status is QuestionStatus.DENIED


# Stop, status, and the end of the job


def test_a_stop_ends_the_job_that_waits_and_its_question(door: Door) -> None:
    question = door.asks()
    assert door.say("/stop").notice == "Stopped."
    job = door.job(question.job_id or "")
    assert (job.status, job.reason) == (JobStatus.CANCELLED, "stopped while waiting")
    assert door.question(question).status is QuestionStatus.CANCELLED
    assert door.say("blue").lane is not None


def test_a_stop_takes_what_is_being_answered_first_and_then_the_newest_that_waits(door: Door) -> None:
    older, newer = door.asks(), door.asks()
    head = door.say("hello", "alan")
    stopped = []
    for _ in range(3):
        before = {job_id: door.job(job_id).status for job_id in (older.job_id or "", newer.job_id or "", head.id)}
        door.say("/stop")
        stopped += [job_id for job_id, status in before.items() if door.job(job_id).status is not status]
    assert stopped == [head.id, newer.job_id, older.job_id]
    assert door.say("/stop").notice == "Nothing is running here."


def test_the_status_tells_what_waits_for_an_answer(door: Door) -> None:
    question, approval = door.asks(), door.wants("alan")
    assert door.say("/status").notice == (
        f"Nothing is running here. #{question.id} waits for an answer. #{approval.id} waits for a yes or no."
    )


def test_a_job_that_ends_asks_nobody_any_more(door: Door) -> None:
    question = door.asks()
    with door.rows.store.begin() as tx:
        tx.jobs.close_job(question.job_id or "", JobEnding(status=JobStatus.FAILED, error="Bug"))
    assert door.question(question).status is QuestionStatus.CANCELLED
    assert door.say(f"#{question.id} blue").notice.startswith(f"#{question.id} was cancelled.")

"""Questions of jobs to users, with their choices; a job waits outside its lane (docs/decisions.md: questions)."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type, partial_index
from maestro.domain.errors import Conflict, InvalidMessage
from maestro.domain.messages import MAX_LABEL_CHARS, Button, control_word, pairing_code
from maestro.domain.people.people import PersonId
from maestro.domain.texts import storable_text

LEAST_CHOICES = 2
MOST_CHOICES = 10
CHOICE_CHARS = MAX_LABEL_CHARS
"""The most characters of a choice, which has to fit on a button."""

ANSWER_CHARS = 20_000
"""The most characters of an operator's answer."""
YES = frozenset({"yes", "y", "ok", "approve"})
NO = frozenset({"no", "n", "deny"})


def tidy_choices(choices: Sequence[str]) -> tuple[str, ...]:
    """Return the choices as users see them, each on one line."""
    return tuple(" ".join(choice.split()) for choice in choices)


def problem_of_choices(choices: Sequence[str]) -> str:
    """Return why choices are not valid, as a sentence for their author; empty for valid choices or none."""
    if not all(choices):
        return "A choice is empty. Write a text for each choice."
    if len({choice.casefold() for choice in choices}) < len(choices):
        return "Two choices are the same. Each must differ from the others."
    command = next((choice for choice in choices if control_word(choice) or pairing_code(choice)), None)
    if command is not None:
        return f"The choice {command} is a command of Maestro itself. Use another word."
    return ""


def pick_choice(choices: Sequence[str], words: str) -> str | None:
    """Return the choice that a reply selects by its text or its number; None if it selects none."""
    reply = " ".join(words.split()).casefold()
    numbered = re.fullmatch(r"([0-9]{1,2})[.)]?", reply)
    exact = next((choice for choice in choices if choice.casefold() == reply), None)
    if exact is not None or numbered is None or not 1 <= int(numbered[1]) <= len(choices):
        return exact
    return choices[int(numbered[1]) - 1]


def choices_text(choices: Sequence[str]) -> str:
    """Return the numbered choices below a question; empty without choices."""
    if not choices:
        return ""
    lines = (f"{number}. {choice}" for number, choice in enumerate(choices, 1))
    return "\n".join(("Answer with a number or your own words:", *lines))


def choices_json(choices: Sequence[str]) -> str:
    """Return the choices as the JSON list that a row stores; empty without choices."""
    return json.dumps(list(choices), ensure_ascii=False) if choices else ""


class QuestionKind(StrEnum):
    """The kind of a question: one that is answered with a text, or an approval of a tool call."""

    QUESTION = "question"
    APPROVAL = "approval"


class QuestionStatus(StrEnum):
    """The state of a question; an approval ends as ``answered`` (yes) or ``denied`` (no)."""

    OPEN = "open"
    ANSWERED = "answered"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Question(SQLModel, table=True):
    """A question of a tool call, or of an external agent, which has no job and is answered by operators.

    ``asked_of`` is the user id of the job's user. ``lane`` is the lane (queue) whose messages are read as answers.
    ``choices`` is the JSON of the offered answers.

    ``approvers`` are ``platform:userId``, separated by blanks; owners may always approve. ``answered_by`` has the same
    form, or names the operator; ``inbox_id`` is the message with the answer, if there is one.
    """

    __tablename__ = "questions"
    __table_args__ = (
        UniqueConstraint("job_id", "number", "place"),
        partial_index("ix_questions_open", "lane", where="status = 'open'"),
        partial_index("ix_questions_outside", "agent_id", where="job_id IS NULL"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str | None = Field(default=None, foreign_key="queue.id")
    number: int = 0
    place: int = 0
    agent_id: int | None = Field(default=None, foreign_key="agents.id")
    kind: QuestionKind = Field(sa_type=enum_column_type(QuestionKind))
    status: QuestionStatus = Field(default=QuestionStatus.OPEN, sa_type=enum_column_type(QuestionStatus))
    text: str
    context: str = ""
    choices: str = ""
    tool: str = ""
    lane: str | None = None
    asked_of: str = ""
    approvers: str = ""
    answer: str = ""
    answered_by: str = ""
    inbox_id: int | None = Field(default=None, foreign_key="inbox.id")
    asked_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    answered_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def approval(self) -> bool:
        """Whether the question is an approval, which is answered with yes or no."""
        return self.kind is QuestionKind.APPROVAL

    @property
    def offered(self) -> tuple[str, ...]:
        """The offered answers; the user may also give any other answer."""
        return tuple(json.loads(self.choices)) if self.choices else ()

    def build_buttons(self) -> tuple[Button, ...]:
        """Return the buttons below a question: Approve and Deny for an approval, else its choices."""
        if self.approval:
            return (Button(label="Approve", value=f"yes #{self.id}"), Button(label="Deny", value=f"no #{self.id}"))
        return tuple(Button(label=choice, value=f"{choice} #{self.id}") for choice in self.offered)

    def answer_text(self, words: str) -> str:
        """Return the text of an answer; the number of a choice becomes the text of that choice."""
        return pick_choice(self.offered, words) or words

    def status_at(self, now: datetime) -> QuestionStatus:
        """Return the state at a time; an open question past its expiry counts as expired, whatever its row says."""
        is_expired = self.status is QuestionStatus.OPEN and self.expires_at <= now
        return QuestionStatus.EXPIRED if is_expired else self.status


@dataclass(frozen=True)
class Speaker:
    """The sender of a message that may be an answer."""

    person: PersonId
    is_owner: bool


@dataclass(frozen=True)
class ReplyText:
    """A message read as a reply: the question number in it, the other words, and the yes or no that they mean."""

    text: str
    number: int | None
    words: str
    approves: bool | None


@dataclass(frozen=True)
class QuestionAnswer:
    """A valid answer to a question; ``approves`` is None for a question that is no approval."""

    question: Question
    words: str
    approves: bool | None = None

    @property
    def action(self) -> str:
        """The name of the action in the audit log."""
        return "question." + ("answer" if self.approves is None else "approve" if self.approves else "deny")


@dataclass(frozen=True)
class AnswerRefusal:
    """The refusal of an answer: the reply, and the approval (``withheld``) that the sender may not decide."""

    reply: str
    withheld: Question | None = None


def parse_reply(content: str) -> ReplyText:
    """Read a message as a reply; a question's number precedes any words (``#7 blue``) or follows a yes or no."""
    text = content.strip()
    number_first, number_last = re.match(r"#([0-9]{1,9})(?:[:.,]?\s+|$)", text), parse_choice(text)
    if number_first is not None:
        words = text[number_first.end() :].strip()
        return ReplyText(text, int(number_first[1]), words, _read_approval(words))
    if number_last is not None and (approves := _read_approval(number_last.words)) is not None:
        return replace(number_last, approves=approves)
    return ReplyText(text, None, text, _read_approval(text))


def parse_choice(content: str) -> ReplyText | None:
    """Read a message as a choice followed by the question number, which is the form of buttons: ``dark blue #7``.

    Whether the words are a choice depends on the question; any other text that ends in a number is an ordinary message.
    """
    text = content.strip()
    before, _, number = text.rpartition("#")
    words = before.rstrip()
    # Only the number is matched: a pattern for the whole text would backtrack at each of thousands of blanks.
    is_choice = words and words != before and re.fullmatch(r"[0-9]{1,9}", number)
    return ReplyText(text, int(number), words, None) if is_choice else None


def may_answer(question: Question, speaker: Speaker) -> bool:
    """Return whether a sender may answer: an owner, the user of a question, or an approver of an approval."""
    if speaker.is_owner:
        return True
    if question.approval:
        return str(speaker.person) in question.approvers.split()
    return question.asked_of == speaker.person.user_id


def answer_named_question(
    reply: ReplyText, speaker: Speaker, question: Question, now: datetime
) -> QuestionAnswer | AnswerRefusal | None:
    """Return how a message answers the question that it names or replies to; None for an ordinary message.

    The result is an ``AnswerRefusal`` if the question has ended, or if the sender may not decide an approval.
    """
    is_answer = reply.approves is not None if question.approval else bool(reply.words)
    is_allowed = may_answer(question, speaker)
    status = question.status_at(now)
    if not is_answer:
        return None
    if status is not QuestionStatus.OPEN:
        reasons = {QuestionStatus.EXPIRED: "has expired", QuestionStatus.CANCELLED: "was cancelled"}
        why = reasons.get(status, "was answered already")
        refusal = f"#{question.id} {why}. To say this to the agent, send it without the number."
        return AnswerRefusal(refusal) if is_allowed else None
    if is_allowed:
        return QuestionAnswer(
            question, question.answer_text(reply.words), reply.approves if question.approval else None
        )
    return _approval_refusal(question) if question.approval else None


def answer_other_lane(
    reply: ReplyText, speaker: Speaker, question: Question, now: datetime
) -> QuestionAnswer | AnswerRefusal | None:
    """Return how a message answers a question of another lane (queue), which it names; None for an ordinary message.

    Only an approval can be answered from another lane, because an approver need not be in the channel of the job. A
    sender without the right to approve does not learn that the question exists.
    """
    if not question.approval or not may_answer(question, speaker):
        return None
    return answer_named_question(reply, speaker, question, now)


def answer_own_lane(
    reply: ReplyText, speaker: Speaker, waiting: Sequence[Question]
) -> QuestionAnswer | AnswerRefusal | None:
    """Return how a message without a question's number answers a question of its lane; None for an ordinary message.

    ``waiting`` are the open questions of the lane that users see, oldest first. A yes or no decides the only approval;
    any other text answers the oldest question to its sender. If a yes or no could answer several questions, the result
    is an ``AnswerRefusal``. An owner has to name a question to another user, so that an ordinary message of the owner
    is not read as the answer.
    """
    questions = [one for one in waiting if not one.approval and one.asked_of == speaker.person.user_id]
    approvals = [one for one in waiting if one.approval]
    if reply.approves is not None and reply.number is None and approvals:
        allowed = [approval for approval in approvals if may_answer(approval, speaker)]
        if allowed and len(allowed) + len(questions) > 1:
            numbers = sorted(one.id or 0 for one in (*allowed, *questions))
            listed = ", ".join(f"#{number}" for number in numbers)
            which = f"Say which one you mean, such as: yes #{numbers[0]}"
            return AnswerRefusal(f"Several questions wait for an answer here: {listed}. {which}")
        if allowed:
            return QuestionAnswer(allowed[0], reply.words, reply.approves)
        if not questions:
            return _approval_refusal(approvals[0])
    return QuestionAnswer(questions[0], questions[0].answer_text(reply.text)) if questions and reply.text else None


def operator_answer(question: Question, words: str | None, approves: bool | None, now: datetime) -> QuestionAnswer:
    """Return an operator's answer; raises ``Conflict`` if the question has ended, ``InvalidMessage`` if invalid."""
    answer, status = storable_text(words or "").strip(), question.status_at(now)
    if len(answer) > ANSWER_CHARS:
        raise InvalidMessage(f"an answer may have at most {ANSWER_CHARS} characters")
    if status is not QuestionStatus.OPEN:
        raise Conflict(f"question {question.id} is {status} already; there is nothing to answer")
    if question.approval and approves is None:
        raise InvalidMessage(f"question {question.id} is an approval: approve or deny it")
    if not question.approval and not answer:
        raise InvalidMessage(f"question {question.id} is no approval: answer it with a text")
    if question.approval:
        return QuestionAnswer(question, "yes" if approves else "no", approves)
    return QuestionAnswer(question, question.answer_text(answer))


def question_job_id(question: Question, unique: str) -> str:
    """Return a new id for the job that sends this question; ``unique`` makes it differ from all other ids."""
    return f"question-{question.id}-{unique}"


def question_of_job(job_id: str) -> int | None:
    """Return the number of the question that a job sends, from the job's id; None for any other job."""
    kind, _, rest = job_id.partition("-")
    number = rest.partition("-")[0]
    return int(number) if kind == "question" and number.isdecimal() else None


def _read_approval(words: str) -> bool | None:
    word = words.lower().rstrip(".!")
    return word in YES if word in YES | NO else None


def _approval_refusal(question: Question) -> AnswerRefusal:
    return AnswerRefusal(f"Only an owner or an approver may decide about #{question.id}.", question)

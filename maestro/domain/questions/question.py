"""Questions that a job puts to a person, with their choices: the job waits for the answer outside its lane.

See docs/decisions.md: questions.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.errors import Conflict, InvalidMessage
from maestro.domain.messages import MAX_LABEL_CHARS, Button, control_word, pairing_code
from maestro.domain.people.people import PersonId
from maestro.domain.texts import storable

LEAST_CHOICES = 2
MOST_CHOICES = 10
CHOICE_CHARS = MAX_LABEL_CHARS
"""Characters of the longest choice, which has to fit on a button."""
_CHOICE_NUMBER = re.compile(r"([0-9]{1,2})[.)]?")

ANSWER_CHARS = 20_000
"""Characters of the longest answer of an operator."""
YES = frozenset({"yes", "y", "ok", "approve"})
NO = frozenset({"no", "n", "deny"})
_FIRST = re.compile(r"#([0-9]{1,9})(?:[:.,]?\s+|$)")
_NUMBER = re.compile(r"[0-9]{1,9}")


def tidy_choices(choices: Sequence[str]) -> tuple[str, ...]:
    """Return choices as people see them, each on one line."""
    return tuple(" ".join(choice.split()) for choice in choices)


def problem_of_choices(choices: Sequence[str]) -> str:
    """Return why tidied choices cannot be offered, in words for who offers them; empty for those that can, or none."""
    if not all(choices):
        return "A choice is empty. Write what each of them means."
    if len({choice.casefold() for choice in choices}) < len(choices):
        return "Two choices are the same. Each must differ from the others."
    command = next((choice for choice in choices if control_word(choice) or pairing_code(choice)), None)
    if command is not None:
        return f"The choice {command} is what people say to Maestro itself. Name it otherwise."
    return ""


def pick_choice(choices: Sequence[str], words: str) -> str | None:
    """Return the choice that is meant by words that are one, or just the number of one; None for any other words."""
    said = " ".join(words.split()).casefold()
    exact = next((choice for choice in choices if choice.casefold() == said), None)
    number = _CHOICE_NUMBER.fullmatch(said)
    if exact is not None or number is None:
        return exact
    return choices[int(number[1]) - 1] if 1 <= int(number[1]) <= len(choices) else None


def choices_text(choices: Sequence[str]) -> str:
    """Return what people read below a question; empty where it offers nothing."""
    if not choices:
        return ""
    lines = (f"{number}. {choice}" for number, choice in enumerate(choices, 1))
    return "\n".join(("Answer with a number or your own words:", *lines))


def choices_json(choices: Sequence[str]) -> str:
    """Return choices as a row keeps them: a list in JSON, empty for none."""
    return json.dumps(list(choices), ensure_ascii=False) if choices else ""


def read_choices(kept: str) -> tuple[str, ...]:
    """Return the choices that a row keeps."""
    return tuple(json.loads(kept)) if kept else ()


class QuestionKind(StrEnum):
    """What is asked for: words, or a yes or no to a tool call."""

    QUESTION = "question"
    APPROVAL = "approval"


class QuestionStatus(StrEnum):
    """Where a question stands; an approval is answered with ``answered`` (yes) or ``denied`` (no)."""

    OPEN = "open"
    ANSWERED = "answered"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Question(SQLModel, table=True):
    """One question of one tool call, or of an agent outside, which has no job: operators answer that one.

    ``asked_of`` is the user of the job, ``lane`` where an answer counts, ``choices`` the answers that it offers, as
    JSON.

    ``approvers`` are ``platform:userId``, separated by blanks; owners may always approve. ``answered_by`` is written
    alike, or names the operator; ``inbox_id`` is the message that answered, if one did.
    """

    __tablename__ = "questions"
    __table_args__ = (
        UniqueConstraint("job_id", "number", "place"),
        Index(
            "ix_questions_open",
            "lane",
            sqlite_where=text("status = 'open'"),
            postgresql_where=text("status = 'open'"),
        ),
        Index(
            "ix_questions_outside",
            "agent_id",
            sqlite_where=text("job_id IS NULL"),
            postgresql_where=text("job_id IS NULL"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str | None = Field(default=None, foreign_key="queue.id")
    number: int = 0
    place: int = 0
    agent_id: int | None = Field(default=None, foreign_key="agents.id")
    kind: QuestionKind = Field(sa_type=text_of(QuestionKind))
    status: QuestionStatus = Field(default=QuestionStatus.OPEN, sa_type=text_of(QuestionStatus))
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
        """Say whether only yes or no counts."""
        return self.kind is QuestionKind.APPROVAL

    @property
    def offered(self) -> tuple[str, ...]:
        """Return the answers that it offers; any other one counts as well."""
        return read_choices(self.choices)

    def buttons(self) -> tuple[Button, ...]:
        """Return what people may press below it: yes and no to an approval, else its choices."""
        if self.approval:
            return (Button(label="Approve", value=f"yes #{self.id}"), Button(label="Deny", value=f"no #{self.id}"))
        return tuple(Button(label=choice, value=f"{choice} #{self.id}") for choice in self.offered)

    def words_of(self, words: str) -> str:
        """Return what these words answer: the number of a choice means the choice."""
        return pick_choice(self.offered, words) or words

    def status_at(self, now: datetime) -> QuestionStatus:
        """Return where it stands; an open one whose time is over counts as expired before anybody has noted it."""
        over = self.status is QuestionStatus.OPEN and self.expires_at <= now
        return QuestionStatus.EXPIRED if over else self.status


@dataclass(frozen=True)
class Speaker:
    """Who says something that may be an answer."""

    person: PersonId
    is_owner: bool


@dataclass(frozen=True)
class ReplyText:
    """A message as an answer would be read: the number it names, the words beside it, and the yes or no they are."""

    text: str
    number: int | None
    words: str
    approves: bool | None


@dataclass(frozen=True)
class QuestionAnswer:
    """What a person says to a question; ``approves`` is None for one that asks for words."""

    question: Question
    words: str
    approves: bool | None = None

    @property
    def action(self) -> str:
        """The name of this in the audit log."""
        return "question." + ("answer" if self.approves is None else "approve" if self.approves else "deny")


@dataclass(frozen=True)
class AnswerRefusal:
    """A message is meant as an answer and is none: what its sender is told.

    ``withheld`` is the question that the sender may not decide about, if that is why.
    """

    reply: str
    withheld: Question | None = None


def parse_reply(content: str) -> ReplyText:
    """Read a message: a number may stand before any words, as in ``#7 blue``, and after a yes or no."""
    whole = content.strip()
    first, last = _FIRST.match(whole), _numbered(whole)
    if first is not None:
        words = whole[first.end() :].strip()
        return ReplyText(whole, int(first[1]), words, _approves(words))
    if last is not None and _approves(last[0]) is not None:
        return ReplyText(whole, last[1], last[0], _approves(last[0]))
    return ReplyText(whole, None, whole, _approves(whole))


def parse_choice(content: str) -> ReplyText | None:
    """Read a message as a choice with the number of its question behind it, as buttons say it: ``dark blue #7``.

    Only the question can tell whether it is one; any other text that ends in a number is an ordinary one.
    """
    whole = content.strip()
    last = _numbered(whole)
    return ReplyText(whole, last[1], last[0], None) if last is not None else None


def may_answer(question: Question, speaker: Speaker) -> bool:
    """Say whether this person's answer counts.

    A question is for who was asked, or an owner; an approval for an owner or one of its approvers (docs/decisions.md:
    questions).
    """
    if speaker.is_owner:
        return True
    if question.approval:
        return str(speaker.person) in question.approvers.split()
    return question.asked_of == speaker.person.user_id


def meant_for(
    what: ReplyText, speaker: Speaker, pointed: Question, now: datetime
) -> QuestionAnswer | AnswerRefusal | None:
    """Read a message that names this question of its lane by number or replies to it; None makes it an ordinary one."""
    meant = what.approves is not None if pointed.approval else bool(what.words)
    allowed = may_answer(pointed, speaker)
    standing = pointed.status_at(now)
    if not meant:
        return None
    if standing is not QuestionStatus.OPEN:
        return _late(pointed, standing) if allowed else None
    if allowed:
        return QuestionAnswer(pointed, pointed.words_of(what.words), what.approves if pointed.approval else None)
    return _not_allowed(pointed) if pointed.approval else None


def meant_from_afar(
    what: ReplyText, speaker: Speaker, pointed: Question, now: datetime
) -> QuestionAnswer | AnswerRefusal | None:
    """Read a message that names a question of another lane by number: only an approval can be answered from there.

    An approver need not be where the job is. Who may not approve does not learn that there is such a question.
    """
    if not pointed.approval or not may_answer(pointed, speaker):
        return None
    return meant_for(what, speaker, pointed, now)


def meant_here(what: ReplyText, speaker: Speaker, waiting: Sequence[Question]) -> QuestionAnswer | AnswerRefusal | None:
    """Read a message that points to no question; ``waiting`` are those that people see in its lane, oldest first.

    A yes or no decides the only approval; anything else answers the oldest question that its sender was asked. An owner
    who was not asked points to a question, so that the owner's own talk is not taken for somebody else's answer.
    """
    asked = [one for one in waiting if not one.approval and one.asked_of == speaker.person.user_id]
    approvals = [one for one in waiting if one.approval]
    if what.approves is not None and what.number is None and approvals:
        mine = [one for one in approvals if may_answer(one, speaker)]
        if mine and len(mine) + len(asked) > 1:
            return _which([*mine, *asked])
        if mine:
            return QuestionAnswer(mine[0], what.words, what.approves)
        if not asked:
            return _not_allowed(approvals[0])
    return QuestionAnswer(asked[0], asked[0].words_of(what.text)) if asked and what.text else None


def of_operator(question: Question, words: str | None, approves: bool | None, now: datetime) -> QuestionAnswer:
    """Return the answer of an operator, who counts as an owner: ``words`` for a question, ``approves`` for an approval.

    Raises ``Conflict`` when the question is not open any more, ``InvalidMessage`` when it asks for something else or
    the words are too many.
    """
    answer, standing = storable(words or "").strip(), question.status_at(now)
    if len(answer) > ANSWER_CHARS:
        raise InvalidMessage(f"an answer may have at most {ANSWER_CHARS} characters")
    if standing is not QuestionStatus.OPEN:
        raise Conflict(f"question {question.id} is {standing} already; there is nothing to answer")
    if question.approval and approves is None:
        raise InvalidMessage(f"question {question.id} is an approval: approve or deny it")
    if not question.approval and not answer:
        raise InvalidMessage(f"question {question.id} asks for words: answer it with a text")
    if question.approval:
        return QuestionAnswer(question, "yes" if approves else "no", approves)
    return QuestionAnswer(question, question.words_of(answer))


def notice_id(question: Question, unique: str) -> str:
    """Return the id of the job that puts this question to people; ``unique`` tells it from every other job's."""
    return f"question-{question.id}-{unique}"


def question_of_job(job_id: str) -> int | None:
    """Return the number of the question that a job puts to people, by the job's id; None where it puts none."""
    kind, _, rest = job_id.partition("-")
    number = rest.partition("-")[0]
    return int(number) if kind == "question" and number.isdecimal() else None


def _numbered(whole: str) -> tuple[str, int] | None:
    """Return the words of a text and the number behind them, None where there are not both."""
    before, _, number = whole.rpartition("#")
    words = before.rstrip()
    # One look at its end: a pattern for all of it would try every blank of a text of thousands.
    return (words, int(number)) if words and words != before and _NUMBER.fullmatch(number) else None


def _approves(words: str) -> bool | None:
    word = words.lower().rstrip(".!")
    return word in YES if word in YES | NO else None


def _not_allowed(question: Question) -> AnswerRefusal:
    return AnswerRefusal(f"Only an owner or an approver may decide about #{question.id}.", question)


def _late(question: Question, standing: QuestionStatus) -> AnswerRefusal:
    ended = {QuestionStatus.EXPIRED: "has expired", QuestionStatus.CANCELLED: "is not asked any more"}
    why = ended.get(standing, "was answered already")
    return AnswerRefusal(f"#{question.id} {why}. To say this to the agent, send it without the number.")


def _which(several: Sequence[Question]) -> AnswerRefusal:
    numbers = sorted(one.id or 0 for one in several)
    listed = ", ".join(f"#{number}" for number in numbers)
    return AnswerRefusal(
        f"Several things wait for an answer here: {listed}. Say which one you mean, such as: yes #{numbers[0]}"
    )

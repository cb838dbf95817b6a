"""Questions to users: asked once for a tool call or a directive, and read when they are answered.

See docs/decisions.md: questions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ulid import ULID

from maestro.domain.conducting.conductor import without_tags
from maestro.domain.errors import WaitsForPerson
from maestro.domain.jobs.flow import AnswerStep, ToolStep
from maestro.domain.jobs.job import Job, is_background, notice_of
from maestro.domain.llm.prompts import ToolCall
from maestro.domain.messages import lane_of
from maestro.domain.questions.question import (
    Question,
    QuestionKind,
    QuestionStatus,
    choices_json,
    choices_text,
    notice_id,
)
from maestro.domain.tags.grammar import Tag
from maestro.domain.texts import storable
from maestro.store.transaction import Transaction
from maestro.tools.base import ToolQuestion, shortened

ARGUMENT_CHARS = 1_000
"""The number of characters of a call's arguments that an approver sees; more would hide the question."""

AFTER_READING = "May I do this? I have read text from outside, which may have asked for it."
ANSWER_PLACE = -1
"""The index of the question about the answer itself; tool calls have indexes from 0."""


@dataclass(frozen=True)
class AskingRules:
    """How long a question stays open, which tools need approval, and who may approve besides owners.

    Approvers are written as ``platform:userId``.
    """

    expiry: timedelta
    approval: Collection[str] = ()
    approvers: tuple[str, ...] = ()


def ask_question(tx: Transaction, job: Job, step: ToolStep, what: ToolQuestion, rules: AskingRules) -> Question:
    """Return the question of this call; on the first call, also send the question to the user."""
    known = _earlier_question(tx, step)
    if known is not None:
        return known
    question = _question(tx, job, step, rules)
    question.kind, question.text, question.context = QuestionKind.QUESTION, storable(what.text), storable(what.context)
    choices = tuple(map(storable, what.choices))
    question.choices = choices_json(choices)
    text = "\n\n".join(filter(None, (question.context, question.text, choices_text(choices))))
    return _send_question(tx, job, question, text)


def ask_approval(tx: Transaction, job: Job, step: ToolStep, call: ToolCall, rules: AskingRules) -> Question:
    """Return the approval question of this call; on the first call, also send the question to the channel."""
    known = _earlier_question(tx, step)
    if known is not None:
        return known
    question = _question(tx, job, step, rules)
    question.tool, question.approvers = call.name, " ".join(rules.approvers)
    question.text = f"May I call the tool {call.name}?"
    question.context = shortened(call.arguments, ARGUMENT_CHARS)
    return _put_approval(tx, job, question, "It would get:")


def ask_directives_approval(
    tx: Transaction, job: Job, step: AnswerStep, wanted: Sequence[Tag], rules: AskingRules
) -> Question:
    """Return the approval question for these directives of an answer; on the first call, also send it."""
    place = ToolStep(job_id=step.job_id, step=step.step, number=step.number, place=ANSWER_PLACE)
    known = _earlier_question(tx, place)
    if known is not None:
        return known
    question = _question(tx, job, place, rules)
    question.text, question.approvers = AFTER_READING, " ".join(rules.approvers)
    shown = (f"{tag.name} {tag.key}".strip() + f"\n{shortened(tag.body, ARGUMENT_CHARS)}" for tag in wanted)
    question.context = without_tags("\n\n".join(shown))
    return _put_approval(tx, job, question)


def wait_for_person(question: Question) -> WaitsForPerson:
    """Return the exception that a step raises while its question is open."""
    waits = WaitsForPerson(f"question {question.id} is open")
    waits.wake_at = question.expires_at
    return waits


def _earlier_question(tx: Transaction, step: ToolStep) -> Question | None:
    """Return the question that was asked for this call, if any; an overdue one is marked as expired.

    A question that was cancelled with its job is ignored, so that the resumed job asks again.
    """
    question = tx.jobs.questions.of(step.job_id, step.number, step.place)
    if question is not None and question.status is QuestionStatus.OPEN and question.expires_at <= tx.now:
        question.status = QuestionStatus.EXPIRED
    return None if question is not None and question.status is QuestionStatus.CANCELLED else question


def _question(tx: Transaction, job: Job, step: ToolStep, rules: AskingRules) -> Question:
    return Question(
        job_id=job.id,
        number=step.number,
        place=step.place,
        agent_id=job.agent_id,
        kind=QuestionKind.QUESTION,
        text="",
        lane=_answer_lane(tx, job),
        asked_of=tx.inbox.get(job.inbox_id).user_id if job.inbox_id else "",
        asked_at=tx.now,
        expires_at=tx.now + rules.expiry,
    )


def _answer_lane(tx: Transaction, job: Job) -> str | None:
    """Return the lane whose messages can answer the question: None, or the job's own lane, if no user began the job.

    The question of such a job is shown in the job's channel, and answered there.
    """
    began = tx.jobs.delegations.lineage(job)[-1]
    return lane_of(began.address, None) if is_background(began) else job.lane or began.lane


def _put_approval(tx: Transaction, job: Job, question: Question, lead: str = "") -> Question:
    question.kind = QuestionKind.APPROVAL
    question = tx.jobs.questions.ask(question)
    asks = f"{question.text} {lead}".rstrip()
    return _send_question(
        tx, job, question, f"{asks}\n{question.context}\n\nAnswer yes #{question.id} or no #{question.id}."
    )


def _send_question(tx: Transaction, job: Job, question: Question, text: str) -> Question:
    """Store the question, and add a job without a lane that sends it."""
    kept = tx.jobs.questions.ask(question)
    tx.jobs.add(notice_of(job, notice_id(kept, str(ULID())), text, tx.now))
    return kept

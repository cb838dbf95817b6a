"""Questions to users: asked once for a tool call or a directive, and read when they are answered.

See docs/decisions.md: questions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ulid import ULID

from maestro.domain.conducting.conductor import escape_tags
from maestro.domain.errors import WaitsForPerson
from maestro.domain.jobs.flow import AnswerStep, ToolStep
from maestro.domain.jobs.job import Job, is_background, new_notice_job
from maestro.domain.llm.prompts import ToolCall
from maestro.domain.messages import lane_key
from maestro.domain.questions.question import (
    Question,
    QuestionKind,
    QuestionStatus,
    choices_json,
    choices_text,
    question_job_id,
)
from maestro.domain.tags.grammar import Tag
from maestro.domain.texts import storable_text
from maestro.store.transaction import Transaction
from maestro.tools.base import ToolQuestion, shorten_text

ARGUMENT_CHARS = 1_000
"""The most characters of a tool call's arguments that an approver sees; more would hide the question."""

ANSWER_PLACE = -1
"""The index of the question about an answer's directives; questions about tool calls have indexes from 0."""


@dataclass(frozen=True)
class AskingRules:
    """Settings of questions: how long one stays open, which tools need approval, and who may approve besides owners.

    Approvers are written as ``platform:userId``.
    """

    expiry: timedelta
    approval: Collection[str] = ()
    approvers: tuple[str, ...] = ()


def ask_question(tx: Transaction, job: Job, step: ToolStep, draft: ToolQuestion, rules: AskingRules) -> Question:
    """Return the question of a tool call; if the question is new, also send it to the user."""
    question = _find_question(tx, job, step, rules)
    if question.id is not None:
        return question
    question.text, question.context = storable_text(draft.text), storable_text(draft.context)
    choices = tuple(map(storable_text, draft.choices))
    question.choices = choices_json(choices)
    text = "\n\n".join(filter(None, (question.context, question.text, choices_text(choices))))
    return _send_question(tx, job, question, text)


def ask_approval(tx: Transaction, job: Job, step: ToolStep, call: ToolCall, rules: AskingRules) -> Question:
    """Return the approval question of a tool call; if the question is new, also send it to the channel."""
    question = _find_question(tx, job, step, rules)
    if question.id is not None:
        return question
    question.tool, question.approvers = call.name, " ".join(rules.approvers)
    question.text = f"May I call the tool {call.name}?"
    question.context = shorten_text(call.arguments, ARGUMENT_CHARS)
    return _send_approval(tx, job, question, "The tool would get:")


def ask_directives_approval(
    tx: Transaction, job: Job, step: AnswerStep, directives: Sequence[Tag], rules: AskingRules
) -> Question:
    """Return the approval question for directives of an answer; if the question is new, also send it."""
    answer_step = ToolStep(job_id=step.job_id, step=step.step, number=step.number, place=ANSWER_PLACE)
    question = _find_question(tx, job, answer_step, rules)
    if question.id is not None:
        return question
    question.text = "May I do this? I have read text from outside, which may have asked for it."
    question.approvers = " ".join(rules.approvers)
    texts = (f"{tag.name} {tag.key}".strip() + f"\n{shorten_text(tag.body, ARGUMENT_CHARS)}" for tag in directives)
    question.context = escape_tags("\n\n".join(texts))
    return _send_approval(tx, job, question)


def open_question_error(question: Question) -> WaitsForPerson:
    """Return the exception with which a step waits for the answer to its open question."""
    error = WaitsForPerson(f"question {question.id} is open")
    error.wake_at = question.expires_at
    return error


def _find_question(tx: Transaction, job: Job, step: ToolStep, rules: AskingRules) -> Question:
    """Return the question asked for a tool call, or a new one without an id, which the caller completes.

    A question past its deadline is marked as expired. A question that was cancelled with its job is ignored, so that
    the resumed job asks again.
    """
    asked = tx.jobs.questions.find_question_of_tool_call(step.job_id, step.number, step.place)
    if asked is not None and asked.status is QuestionStatus.OPEN and asked.expires_at <= tx.now:
        asked.status = QuestionStatus.EXPIRED
    if asked is not None and asked.status is not QuestionStatus.CANCELLED:
        return asked
    first = tx.jobs.delegations.read_lineage(job)[-1]
    return Question(
        job_id=job.id,
        number=step.number,
        place=step.place,
        agent_id=job.agent_id,
        kind=QuestionKind.QUESTION,
        text="",
        # Users answer the question in the job's lane, or for background work in the job's channel.
        lane=lane_key(first.address, None) if is_background(first) else job.lane or first.lane,
        asked_of=tx.inbox.get(job.inbox_id).user_id if job.inbox_id else "",
        asked_at=tx.now,
        expires_at=tx.now + rules.expiry,
    )


def _send_approval(tx: Transaction, job: Job, question: Question, introduction: str = "") -> Question:
    question.kind = QuestionKind.APPROVAL
    question = tx.jobs.questions.add_question(question)
    first_line = f"{question.text} {introduction}".rstrip()
    reply_hint = f"Answer yes #{question.id} or no #{question.id}."
    return _send_question(tx, job, question, f"{first_line}\n{question.context}\n\n{reply_hint}")


def _send_question(tx: Transaction, job: Job, question: Question, text: str) -> Question:
    """Store the question, and add a job that sends it without waiting in a lane (queue)."""
    question = tx.jobs.questions.add_question(question)
    tx.jobs.add(new_notice_job(job, question_job_id(question, str(ULID())), text, tx.now))
    return question

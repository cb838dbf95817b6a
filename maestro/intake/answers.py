"""Answers to open questions, which go to the waiting job and not into a lane (docs/decisions.md: questions)."""

from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.questions.question import (
    AnswerRefusal,
    QuestionAnswer,
    ReplyText,
    answer_named_question,
    answer_other_lane,
    answer_own_lane,
    parse_choice,
    parse_reply,
    pick_choice,
)
from maestro.intake.access import ReceivedMessage, new_job
from maestro.store.transaction import Transaction


def read_answer(tx: Transaction, received: ReceivedMessage) -> QuestionAnswer | AnswerRefusal | None:
    """Read a message as an answer to an open question; None for an ordinary message, such as one with files."""
    if received.message.attachments:
        return None
    text = _read_text(tx, received.message.content)
    waiting = tx.jobs.questions.open_in(received.lane) if received.state.asking else ()
    named, replied_to = None, received.message.reply_to
    if text.number is not None:
        named = tx.jobs.questions.find(text.number)
    elif replied_to:
        named = tx.jobs.questions.delivered_as(waiting, replied_to)
    if named is not None and named.lane == received.lane:
        return answer_named_question(text, received.speaker, named, tx.now)
    elsewhere = answer_other_lane(text, received.speaker, named, tx.now) if named is not None else None
    return elsewhere or answer_own_lane(text, received.speaker, tx.jobs.questions.possibly_delivered(waiting))


def record_answer(tx: Transaction, received: ReceivedMessage, answer: QuestionAnswer | AnswerRefusal) -> Job:
    """Record the answer to the question, or reply why the message is not accepted as an answer.

    An approval or denial is confirmed, in case another question was meant.
    """
    job = new_job(tx, received)
    job.inbox_id = tx.inbox.add(received.message, job.id).id
    if isinstance(answer, AnswerRefusal):
        job.notice = answer.reply
        if answer.withheld is not None:
            tx.system.audit.add(str(received.person.id), "question.refused", str(answer.withheld.id))
        return tx.jobs.add(job)
    tx.jobs.answer_question(answer, str(received.person.id), job.inbox_id)
    if answer.approves is not None:
        job.notice = f"{'Approved' if answer.approves else 'Denied'}: #{answer.question.id}."
        return tx.jobs.add(job)
    tx.jobs.add(job)
    tx.jobs.close(job.id, JobEnding(status=JobStatus.COMPLETED, reason=f"answers question #{answer.question.id}"))
    return job


def _read_text(tx: Transaction, content: str) -> ReplyText:
    """Parse a message as an answer; a final number names a question only if the question offers the preceding text."""
    choice = parse_choice(content)
    question = tx.jobs.questions.find(choice.number) if choice is not None and choice.number is not None else None
    if choice is not None and question is not None and pick_choice(question.offered, choice.words) is not None:
        return choice
    return parse_reply(content)

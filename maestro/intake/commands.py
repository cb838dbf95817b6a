"""Messages that are executed at once: control words, such as ``/stop``, and answers to open questions.

See docs/decisions.md: control words, questions."""

from collections.abc import Sequence

from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import ControlWord
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
from maestro.store.jobs.delegations import STOPPED
from maestro.store.transaction import Transaction

UNSAID = "obeyed without a reply, because too many jobs were waiting"


def execute_control_word(tx: Transaction, received: ReceivedMessage, word: ControlWord) -> Job:
    """Execute a control word; the returned job sends the reply, without waiting in a lane (queue)."""
    job = new_job(tx, received)
    job.inbox_id = tx.inbox.add(received.message, job.id, control=word).id
    if word is ControlWord.STOP:
        job.notice = _stop_jobs(tx, list_stoppable_jobs(tx, received))
    elif word is ControlWord.STATUS:
        job.notice = compose_status_text(tx, received)
    else:
        tx.conversations.close_conversations(received.message.address, received.sole_sender, job.inbox_id or 0)
        job.notice = "A new conversation begins with your next message."
    return tx.jobs.add(job)


def can_stop(tx: Transaction, received: ReceivedMessage) -> bool:
    """Return whether ``/stop`` would stop a job that is not stopping already."""
    return any(not job.stop_requested for job in list_stoppable_jobs(tx, received))


def compose_status_text(tx: Transaction, received: ReceivedMessage) -> str:
    lane = received.inbound_lane
    working = "I am working on an answer" if tx.jobs.find_running_in(lane) else "Nothing is running here"
    waiting = tx.jobs.count_pending_in(lane)
    # The job of a delegator that continues has a lane, and is counted above as a waiting job.
    tasks = sum(task.lane is None for task in list_delegated_tasks(tx, received))
    delegated = [f"{tasks} {'task' if tasks == 1 else 'tasks'} passed on to other agents."] if tasks else []
    questions = [
        f"#{question.id} waits for {'a yes or no' if question.approval else 'an answer'}."
        for question in tx.jobs.questions.list_open_questions(lane)
    ]
    return " ".join([f"{working}; {waiting} more waiting." if waiting else f"{working}.", *delegated, *questions])


def list_stoppable_jobs(tx: Transaction, received: ReceivedMessage) -> Sequence[Job]:
    """Return the jobs that ``/stop`` ends: the running or next job, else the newest waiting job, and all tasks."""
    head, tasks = tx.jobs.find_lane_head(received.inbound_lane), list_delegated_tasks(tx, received)
    if head is None or head.stop_requested:
        head = next(iter(tx.jobs.list_waiting_in(received.inbound_lane)), head)
    return [*([head] if head is not None else []), *(task for task in tasks if head is None or task.id != head.id)]


def list_delegated_tasks(tx: Transaction, received: ReceivedMessage) -> Sequence[Job]:
    """Return the open tasks that agents delegated while answering messages of this conversation."""
    return tx.jobs.delegations.list_open_tasks(received.message.address, received.sole_sender)


def _stop_jobs(tx: Transaction, jobs: Sequence[Job]) -> str:
    """Request a stop of the jobs, and return the reply; a pending or waiting job ends at once."""
    if not jobs:
        return "Nothing is running here."
    for job in jobs:
        tx.jobs.request_stop(job.id)
    tx.jobs.delegations.stop_reporting_results(jobs)
    for job in jobs:
        if job.status is JobStatus.PENDING:
            tx.jobs.close_job(job.id, JobEnding(status=JobStatus.CANCELLED, reason=STOPPED))
        if job.status is JobStatus.WAITING:
            tx.jobs.close_job(job.id, JobEnding(status=JobStatus.CANCELLED, reason="stopped while waiting"))
    return "Stopped."


def read_answer(tx: Transaction, received: ReceivedMessage) -> QuestionAnswer | AnswerRefusal | None:
    """Read a message as an answer to an open question; None for an ordinary message, such as one with files."""
    if received.message.attachments:
        return None
    text = _parse_reply_text(tx, received.message.content)
    waiting = tx.jobs.questions.list_open_questions(received.inbound_lane) if received.state.asking else ()
    named, replied_to = None, received.message.reply_to
    if text.number is not None:
        named = tx.jobs.questions.find_question(text.number)
    elif replied_to:
        named = tx.jobs.questions.find_delivered_as(waiting, replied_to)
    if named is not None and named.lane == received.inbound_lane:
        return answer_named_question(text, received.sender_key, named, tx.now)
    elsewhere = answer_other_lane(text, received.sender_key, named, tx.now) if named is not None else None
    return elsewhere or answer_own_lane(text, received.sender_key, tx.jobs.questions.filter_possibly_delivered(waiting))


def record_answer(tx: Transaction, received: ReceivedMessage, answer: QuestionAnswer | AnswerRefusal) -> Job:
    """Record the answer to the question, or reply why the message is not accepted as an answer.

    An approval or denial is confirmed, so that the user notices if another question was meant.
    """
    job = new_job(tx, received)
    job.inbox_id = tx.inbox.add(received.message, job.id).id
    if isinstance(answer, AnswerRefusal):
        job.notice = answer.reply
        if answer.withheld is not None:
            tx.system.audit.add_entry(str(received.person.id), "question.refused", str(answer.withheld.id))
        return tx.jobs.add(job)
    tx.jobs.answer_question(answer, str(received.person.id), job.inbox_id)
    if answer.approves is not None:
        job.notice = f"{'Approved' if answer.approves else 'Denied'}: #{answer.question.id}."
        return tx.jobs.add(job)
    tx.jobs.add(job)
    tx.jobs.close_job(job.id, JobEnding(status=JobStatus.COMPLETED, reason=f"answers question #{answer.question.id}"))
    return job


def _parse_reply_text(tx: Transaction, content: str) -> ReplyText:
    """Parse a message as an answer; a number at its end names a question only if that question offers the rest."""
    choice = parse_choice(content)
    question = (
        tx.jobs.questions.find_question(choice.number) if choice is not None and choice.number is not None else None
    )
    if choice is not None and question is not None and pick_choice(question.offered, choice.words) is not None:
        return choice
    return parse_reply(content)

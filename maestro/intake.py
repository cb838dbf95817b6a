"""Accepts a message: one transaction, and only then may the platform be told that we have it (design section 4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ulid import ULID

from maestro.domain.agents import AgentChannel, Permission
from maestro.domain.control import ControlWord, control_word
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import Ending, Job, JobStatus, Priority
from maestro.domain.lanes import lane_of
from maestro.domain.messages import Accepted, IncomingMessage, LaneKey
from maestro.domain.owners import PersonId
from maestro.domain.questions import (
    Answer,
    Question,
    Refusal,
    Said,
    Speaker,
    meant_for,
    meant_from_afar,
    meant_here,
    said,
)
from maestro.store.store import Store
from maestro.store.transaction import Transaction

MAX_CONTENT_CHARS = 300_000
UNSAID = "obeyed without a reply, because too many jobs were waiting"


@dataclass(frozen=True)
class IntakeRules:
    """How many jobs may wait before new messages are refused, and who the owners are.

    ``owners`` are those of the configuration, written ``platform:userId``; the store may name more (decision 3).
    """

    max_pending: int
    owners: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Arrival:
    """A message at the door: its lane, whose conversation alone it means, and why this person may not talk, if so."""

    message: IncomingMessage
    lane: LaneKey
    alone: str | None
    refusal: str | None

    @property
    def speaker(self) -> Speaker:
        """Who sent it."""
        return Speaker(PersonId(self.message.address.platform, self.message.user_id), self.message.is_owner)


class Intake:
    """The only way in: every message of every connector passes here once."""

    def __init__(self, store: Store, rules: IntakeRules, wake: Callable[[], None]) -> None:
        self._store = store
        self._rules = rules
        self._wake = wake

    def accept(self, message: IncomingMessage) -> Accepted:
        """Commit the message and its job, and wake the dispatcher; a message that came before changes nothing.

        Raises ``Backlogged`` when too many jobs wait and ``InvalidMessage`` when there is nothing to answer.
        """
        _check(message)
        with self._store.begin() as tx:
            accepted = self._accept(tx, message)
        if not accepted.duplicate:
            self._wake()
        return accepted

    def _accept(self, tx: Transaction, message: IncomingMessage) -> Accepted:
        known = tx.inbox.find(message)
        if known is not None:
            return Accepted(message_id=message.id, job_id=known.job_id, duplicate=True)
        arrival = _arrival(tx, message.model_copy(update={"is_owner": self._is_owner(tx, message)}))
        word, backlog = control_word(message.content), self._backlog(tx)
        stops = word is ControlWord.STOP and arrival.refusal is None and _can_stop(_stoppable(tx, arrival.lane))
        if backlog is not None and not stops:
            raise backlog
        job = _take(tx, arrival, word)
        if backlog is not None:
            tx.close_job(job.id, Ending(status=JobStatus.COMPLETED, reason=UNSAID))
        return Accepted(message_id=message.id, job_id=job.id, duplicate=False)

    def _is_owner(self, tx: Transaction, message: IncomingMessage) -> bool:
        """Ask the store too, for each message: who is made an owner is one from the next message on."""
        person = PersonId(message.address.platform, message.user_id)
        return message.is_owner or str(person) in self._rules.owners or tx.owners.has(person)

    def _backlog(self, tx: Transaction) -> Backlogged | None:
        """Return the refusal of what would wait beyond the limit.

        Control words count as well, for their replies wait like any job. Only a ``/stop`` that has something to stop
        is obeyed even then, because it makes room; its reply is what is left out.
        """
        waiting = tx.jobs.pending()
        if waiting < self._rules.max_pending:
            return None
        return Backlogged(
            f"{waiting} messages are waiting already; this one was not taken. Please send it again in a while."
        )


def _check(message: IncomingMessage) -> None:
    if not message.content.strip() and not message.attachments:
        raise InvalidMessage("a message needs text or an attachment")
    if len(message.content) > MAX_CONTENT_CHARS:
        raise InvalidMessage(f"a message may have at most {MAX_CONTENT_CHARS} characters")


def _arrival(tx: Transaction, message: IncomingMessage) -> Arrival:
    binding = tx.agents.binding(message.address)
    alone = message.user_id if binding is not None and binding.key_by_user else None
    return Arrival(message, lane_of(message.address, alone), alone, _may_talk(message, binding))


def _may_talk(message: IncomingMessage, binding: AgentChannel | None) -> str | None:
    if message.is_owner or binding is None or binding.permission is Permission.FULL:
        return None
    return f"the channel's permission is {binding.permission}"


def _take(tx: Transaction, arrival: Arrival, word: ControlWord | None) -> Job:
    """Obey a control word, settle a question, or else give the message its place in the lane."""
    meant = word or _meaning(tx, arrival)
    if meant is None:
        return _keep(tx, arrival)
    if arrival.refusal is not None:
        return _refuse(tx, arrival, arrival.refusal)
    if isinstance(meant, ControlWord):
        return _obey(tx, arrival, meant)
    return _settle(tx, arrival, meant) if isinstance(meant, Answer) else _reply(tx, arrival, meant)


def _meaning(tx: Transaction, arrival: Arrival) -> Answer | Refusal | None:
    """Read a message as an answer to an open question (decision 16); None makes it an ordinary one, as files do."""
    if arrival.message.attachments:
        return None
    what, waiting = said(arrival.message.content), tx.questions.open_in(arrival.lane)
    pointed = _pointed(tx, arrival, what, waiting)
    if pointed is not None and pointed.lane == arrival.lane:
        return meant_for(what, arrival.speaker, pointed, tx.now)
    elsewhere = meant_from_afar(what, arrival.speaker, pointed, tx.now) if pointed is not None else None
    return elsewhere or meant_here(what, arrival.speaker, tx.questions.shown(waiting))


def _pointed(tx: Transaction, arrival: Arrival, what: Said, waiting: Sequence[Question]) -> Question | None:
    """Return the question that a message names by its number, or to which it replies."""
    if what.number is not None:
        return tx.questions.find(what.number)
    replies = arrival.message.reply_to
    return tx.questions.shown_by(waiting, replies) if replies else None


def _keep(tx: Transaction, arrival: Arrival) -> Job:
    """Give a message the last place in its lane."""
    job = _job(tx, arrival, lane=arrival.lane)
    job.inbox_id = tx.inbox.add(arrival.message, job.id).id
    return tx.jobs.add(job)


def _settle(tx: Transaction, arrival: Arrival, answer: Answer) -> Job:
    """Hand an answer to the job that waits for it; a yes or no is confirmed, for it may have been meant otherwise."""
    job = _job(tx, arrival)
    job.inbox_id = tx.inbox.add(arrival.message, job.id).id
    tx.answer(answer, str(arrival.speaker.person), job.inbox_id)
    if answer.approves is not None:
        job.notice = f"{'Approved' if answer.approves else 'Denied'}: #{answer.question.id}."
        return tx.jobs.add(job)
    tx.jobs.add(job)
    tx.close_job(job.id, Ending(status=JobStatus.COMPLETED, reason=f"answers question #{answer.question.id}"))
    return job


def _reply(tx: Transaction, arrival: Arrival, refusal: Refusal) -> Job:
    """Say why a message is no answer."""
    job = _job(tx, arrival)
    job.inbox_id = tx.inbox.add(arrival.message, job.id).id
    job.notice = refusal.reply
    if refusal.withheld is not None:
        tx.audit.add(str(arrival.speaker.person), "question.refused", str(refusal.withheld.id))
    return tx.jobs.add(job)


def _refuse(tx: Transaction, arrival: Arrival, reason: str) -> Job:
    """Drop what somebody says who may not talk here; an ordinary message of theirs is dropped by routing."""
    job = _job(tx, arrival)
    job.inbox_id = tx.inbox.add(arrival.message, job.id).id
    tx.jobs.add(job)
    tx.close_job(job.id, Ending(status=JobStatus.DROPPED, reason=reason))
    return job


def _obey(tx: Transaction, arrival: Arrival, word: ControlWord) -> Job:
    """Do what a control word says; its job, which has no lane, is to tell the person (decision 16)."""
    job = _job(tx, arrival)
    row = tx.inbox.add(arrival.message, job.id, control=word)
    job.inbox_id, job.notice = row.id, _effect(tx, arrival, word, row)
    return tx.jobs.add(job)


def _job(tx: Transaction, arrival: Arrival, lane: LaneKey | None = None) -> Job:
    return Job(
        id=f"message-{ULID()}",
        priority=Priority.OWNER if arrival.message.is_owner else Priority.MESSAGE,
        lane=lane,
        created_at=tx.now,
        **arrival.message.address.model_dump(),
    )


def _effect(tx: Transaction, arrival: Arrival, word: ControlWord, row: InboxRow) -> str:
    """Do it and return what to say."""
    if word is ControlWord.STOP:
        return _stop(tx, _stoppable(tx, arrival.lane))
    if word is ControlWord.STATUS:
        return _status(tx, arrival.lane)
    tx.conversations.close_all(arrival.message.address, arrival.alone, row.id or 0)
    return "A new conversation begins with your next message."


def _status(tx: Transaction, lane: LaneKey) -> str:
    working = "I am working on an answer" if tx.jobs.running_in(lane) else "Nothing is running here"
    behind = tx.jobs.waiting_in(lane)
    asked = [
        f"#{one.id} waits for {'a yes or no' if one.approval else 'an answer'}." for one in tx.questions.open_in(lane)
    ]
    return " ".join([f"{working}; {behind} more waiting." if behind else f"{working}.", *asked])


def _stoppable(tx: Transaction, lane: LaneKey) -> Job | None:
    """Return what is being answered, or about to be; else the newest job that waits outside the lane."""
    head = tx.jobs.head_of(lane)
    if _can_stop(head):
        return head
    return next(iter(tx.jobs.waiting_jobs_in(lane)), head)


def _can_stop(job: Job | None) -> bool:
    return job is not None and not job.stop_requested


def _stop(tx: Transaction, job: Job | None) -> str:
    """Stop a job; one that is inside no step ends at once: who takes a message back is quicker than its start."""
    if job is None:
        return "Nothing is running here."
    tx.jobs.request_stop(job.id)
    if job.status is JobStatus.PENDING:
        tx.close_job(job.id, Ending(status=JobStatus.CANCELLED, reason="stopped before it began"))
    if job.status is JobStatus.WAITING:
        tx.close_job(job.id, Ending(status=JobStatus.CANCELLED, reason="stopped while it waited"))
    return "Stopped."

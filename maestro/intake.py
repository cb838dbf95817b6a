"""Accepts a message: one transaction, and only then may the platform be told that we have it (design section 4)."""

from collections.abc import Callable
from dataclasses import dataclass

from ulid import ULID

from maestro.domain.control import ControlWord, control_word
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import Ending, Job, JobStatus, Priority
from maestro.domain.lanes import lane_of
from maestro.domain.messages import Accepted, IncomingMessage, LaneKey
from maestro.domain.owners import PersonId
from maestro.domain.routing import may_talk
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
        stops = word is ControlWord.STOP and arrival.refusal is None and _can_stop(tx.jobs.head_of(arrival.lane))
        if backlog is not None and not stops:
            raise backlog
        if word is None:
            job = _keep(tx, arrival)
        elif arrival.refusal is not None:
            job = _refuse(tx, arrival, arrival.refusal)
        else:
            job = _obey(tx, arrival, word)
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
    return Arrival(message, lane_of(message.address, alone), alone, may_talk(message, binding))


def _keep(tx: Transaction, arrival: Arrival) -> Job:
    """Give a message the last place in its lane."""
    job = _job(tx, arrival, lane=arrival.lane)
    job.inbox_id = tx.inbox.add(arrival.message, job.id).id
    return tx.jobs.add(job)


def _refuse(tx: Transaction, arrival: Arrival, reason: str) -> Job:
    """Drop the control word of somebody who may not talk here; any other message of theirs is dropped by routing."""
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
        return _stop(tx, tx.jobs.head_of(arrival.lane))
    if word is ControlWord.STATUS:
        running = tx.jobs.running_in(arrival.lane)
        waiting = tx.jobs.waiting_in(arrival.lane)
        working = "I am working on an answer" if running else "Nothing is running here"
        return f"{working}; {waiting} more waiting." if waiting else f"{working}."
    tx.conversations.close_all(arrival.message.address, arrival.alone, row.id or 0)
    return "A new conversation begins with your next message."


def _can_stop(head: Job | None) -> bool:
    return head is not None and not head.stop_requested


def _stop(tx: Transaction, head: Job | None) -> str:
    """Stop what is being answered, or about to be: who takes a message back at once is quicker than its start."""
    if head is None:
        return "Nothing is running here."
    tx.jobs.request_stop(head.id)
    if head.status is JobStatus.PENDING:
        tx.close_job(head.id, Ending(status=JobStatus.CANCELLED, reason="stopped before it began"))
    return "Stopped."

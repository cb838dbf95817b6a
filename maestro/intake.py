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
from maestro.store.store import Store
from maestro.store.transaction import Transaction

MAX_CONTENT_CHARS = 300_000


@dataclass(frozen=True)
class IntakeRules:
    """How many jobs may wait before new messages are refused, how often a job's provider may fail, who the owners are.

    ``owners`` are written ``platform:userId`` (decision 3).
    """

    max_pending: int
    max_attempts: int
    owners: frozenset[str] = frozenset()


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
        if f"{message.address.platform}:{message.user_id}" in self._rules.owners:
            message = message.model_copy(update={"is_owner": True})
        with self._store.begin() as tx:
            accepted = self._accept(tx, message)
        if not accepted.duplicate:
            self._wake()
        return accepted

    def _accept(self, tx: Transaction, message: IncomingMessage) -> Accepted:
        known = tx.inbox.find(message)
        if known is not None:
            return Accepted(message_id=message.id, job_id=known.job_id, duplicate=True)
        keyed = _keyed_by_user(tx, message)
        lane = lane_of(message.address, message.user_id if keyed else None)
        word = control_word(message.content)
        if word is None:
            self._refuse_if_full(tx)
        job_id = f"message-{ULID()}"
        row = tx.inbox.add(message, job_id)
        tx.jobs.add(
            Job(
                id=job_id,
                inbox_id=row.id,
                priority=Priority.OWNER if message.is_owner else Priority.MESSAGE,
                lane=None if word else lane,
                notice=_obey(tx, word, row, lane) if word else "",
                max_attempts=self._rules.max_attempts,
                created_at=tx.now,
                **message.address.model_dump(),
            )
        )
        return Accepted(message_id=message.id, job_id=job_id, duplicate=False)

    def _refuse_if_full(self, tx: Transaction) -> None:
        waiting = tx.jobs.pending()
        if waiting >= self._rules.max_pending:
            raise Backlogged(
                f"{waiting} messages are waiting already; this one was not taken. Please send it again in a while."
            )


def _check(message: IncomingMessage) -> None:
    if not message.content.strip() and not message.attachments:
        raise InvalidMessage("a message needs text or an attachment")
    if len(message.content) > MAX_CONTENT_CHARS:
        raise InvalidMessage(f"a message may have at most {MAX_CONTENT_CHARS} characters")


def _keyed_by_user(tx: Transaction, message: IncomingMessage) -> bool:
    binding = tx.agents.binding(message.address)
    return binding is not None and binding.key_by_user


def _obey(tx: Transaction, word: ControlWord, row: InboxRow, lane: LaneKey) -> str:
    """Do what a control word says and return what to tell the person (decision 16)."""
    if word is ControlWord.STOP:
        return _stop(tx, tx.jobs.head_of(lane))
    if word is ControlWord.STATUS:
        running = tx.jobs.running_in(lane)
        waiting = tx.jobs.waiting_in(lane)
        working = "I am working on an answer" if running else "Nothing is running here"
        return f"{working}; {waiting} more waiting." if waiting else f"{working}."
    message = row.message()
    tx.conversations.close_all(message.address, message.user_id if _keyed_by_user(tx, message) else None)
    return "A new conversation begins with your next message."


def _stop(tx: Transaction, head: Job | None) -> str:
    """Stop what is being answered, or about to be: who takes a message back at once is quicker than its start."""
    if head is None:
        return "Nothing is running here."
    tx.jobs.request_stop(head.id)
    if head.status is JobStatus.PENDING:
        tx.close_job(head.id, Ending(status=JobStatus.CANCELLED, reason="stopped before it began"))
    return "Stopped."

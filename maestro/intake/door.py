"""The door: what comes in waits in its lane, does something at once, or is dropped, with its reason."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from maestro.domain.agents.agent import BusyMode
from maestro.domain.agents.routing import RoutingRules
from maestro.domain.control import ControlWord, PairingCode, control_word, pairing_code
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.inbox import InboxRow, Pace
from maestro.domain.jobs.busy import mode_of
from maestro.domain.jobs.job import Ending, Job, JobStatus
from maestro.domain.messages import MAX_CONTENT_CHARS, Accepted, IncomingMessage
from maestro.domain.people.permissions import AccessRules
from maestro.domain.questions.question import Answer, Refusal
from maestro.domain.texts import storable
from maestro.intake import answers, control, edits, strangers
from maestro.intake.access import Access
from maestro.intake.arrival import Arrival, dropped, job_of, tell
from maestro.intake.strangers import PairingRules
from maestro.store.store import Store
from maestro.store.transaction import Transaction

MINUTE = timedelta(minutes=1)

BOT = "it came from a bot, and the channel does not let bots talk (allowBots)"
BOT_LOOP = "a bot wrote more often in a minute than it may (routing.botMessagesPerMinute)"
STRANGER_IN_HASTE = "somebody who is not known wrote more often in a minute than people may"
GUESSING = "too many wrong pairing codes came before"
TOO_FAST = "the person wrote more often in a minute than they may (routing.messagesPerMinute)"

Meant = ControlWord | PairingCode | Answer | Refusal | None
"""What a message is; None is an ordinary one, which is for an agent."""


@dataclass(frozen=True)
class IntakeRules:
    """What the configuration says of who may come in.

    ``max_pending`` jobs may wait before new messages are refused. A person may write ``messages_per_minute``, a bot
    ``bot_messages_per_minute`` in one channel; owners have no limit. ``busy`` says what becomes of messages for a busy
    agent in channels that have no mode of their own.
    """

    max_pending: int
    access: AccessRules = field(default_factory=AccessRules)
    routing: RoutingRules = field(default_factory=RoutingRules)
    pairing: PairingRules = field(default_factory=PairingRules)
    messages_per_minute: int = 30
    bot_messages_per_minute: int = 20
    busy: BusyMode = BusyMode.QUEUE


class Intake:
    """The only way in: every message of every connector passes here once."""

    def __init__(self, store: Store, rules: Callable[[], IntakeRules], wake: Callable[[], None]) -> None:
        self._store = store
        self._rules = rules
        self._wake = wake

    @property
    def _access(self) -> Access:
        rules = self._rules()
        return Access(rules.access, rules.routing)

    def accept(self, message: IncomingMessage) -> Accepted:
        """Commit the message and its job, and wake the dispatcher; a message that came before changes nothing.

        Raises ``Backlogged`` when too many jobs wait and ``InvalidMessage`` when there is nothing to answer.
        """
        _check(message)
        with self._store.begin() as tx:
            accepted = self._accept(tx, _storable(message))
        if accepted.job_id and not accepted.duplicate:
            self._wake()
        return accepted

    def _accept(self, tx: Transaction, message: IncomingMessage) -> Accepted:
        if message.edit_of:
            return edits.take(tx, message)
        known = tx.inbox.find(message)
        if known is not None:
            return Accepted(message_id=message.id, job_id=known.job_id, duplicate=True)
        arrival = self._arrival(tx, message)
        meant = _meant(tx, arrival)
        ignored = self._ignored(tx, arrival, meant)
        if ignored is not None:
            tx.ignored.add(message.address, ignored)
            return Accepted(message_id=message.id, job_id="", duplicate=False, ignored=ignored)
        backlog = self._backlog(tx)
        if backlog is not None and not self._makes_room(tx, arrival, meant):
            raise backlog
        job = self._take(tx, arrival, meant)
        if backlog is not None:
            tx.close_job(job.id, Ending(status=JobStatus.COMPLETED, reason=control.UNSAID))
        return Accepted(message_id=message.id, job_id=job.id, duplicate=False)

    def _arrival(self, tx: Transaction, message: IncomingMessage) -> Arrival:
        binding = tx.agents.read_binding(message.address)
        person = self._access.person(tx, message, binding)
        arrival = Arrival(message.model_copy(update={"is_owner": person.is_owner}), binding, person)
        if person.known:
            return arrival
        agent = self._access.agent(tx, message, binding)
        return replace(arrival, turned_away=self._access.turned_away(person, agent, message, binding))

    def _ignored(self, tx: Transaction, arrival: Arrival, meant: Meant) -> str | None:
        """Return why a message is only counted: it is not for us, or would be one too many of somebody else's."""
        if arrival.message.from_bot:
            if arrival.binding is None or not arrival.binding.allow_bots:
                return BOT
            if self._in_haste(tx, arrival, self._rules().bot_messages_per_minute):
                return BOT_LOOP
        if isinstance(meant, PairingCode):
            return GUESSING if strangers.guesses(tx, arrival.person.id) else None
        if arrival.turned_away is not None:
            return STRANGER_IN_HASTE if self._in_haste(tx, arrival, self._rules().messages_per_minute) else None
        return self._unaddressed(tx, arrival, meant)

    def _unaddressed(self, tx: Transaction, arrival: Arrival, meant: Meant) -> str | None:
        """Return why nobody answers an ordinary line in a group's channel that is no agent's own.

        A busy server must not cost a workflow for each line (decision 2).
        """
        message = arrival.message
        if meant is not None or message.is_direct or arrival.binding is not None:
            return None
        found = self._access.route(tx, message, None)
        return found.reason if found.agent is None else None

    def _in_haste(self, tx: Transaction, arrival: Arrival, at_most: int) -> bool:
        return tx.inbox.wrote(arrival.message, at_most, MINUTE)

    def _backlog(self, tx: Transaction) -> Backlogged | None:
        """Return the refusal of what would wait beyond the limit.

        Control words count as well, for their replies wait like any job. Only a ``/stop`` that has something to stop
        is obeyed even then, because it makes room; its reply is what is left out.
        """
        waiting = tx.jobs.pending()
        if waiting >= self._rules().max_pending:
            waiting -= tx.webhooks.waiting()  # work of machines keeps no person out
        if waiting < self._rules().max_pending:
            return None
        return Backlogged(
            f"{waiting} messages are waiting already; this one was not taken. Please send it again in a while."
        )

    def _makes_room(self, tx: Transaction, arrival: Arrival, meant: Meant) -> bool:
        obeyed = meant is ControlWord.STOP and arrival.turned_away is None and self._refusal(tx, arrival) is None
        return obeyed and control.can_stop(tx, arrival)

    def _refusal(self, tx: Transaction, arrival: Arrival) -> str | None:
        """Return why nobody does what this person says here, or None."""
        return self._access.refusal(tx, arrival.message, arrival.binding, arrival.person)

    def _take(self, tx: Transaction, arrival: Arrival, meant: Meant) -> Job:
        """Obey a control word, settle a question, or else give the message its place in the lane."""
        if isinstance(meant, PairingCode):
            return strangers.redeem(tx, arrival, meant)
        if arrival.turned_away is not None:
            return strangers.turn_away(tx, arrival, arrival.turned_away, self._rules().pairing)
        if self._over(tx, arrival, meant):
            return self._slow_down(tx, arrival, waits=meant is None)
        if meant is None:
            return self._keep(tx, arrival)
        refusal = self._refusal(tx, arrival)
        if refusal is not None:
            return dropped(tx, arrival, refusal)
        return control.obey(tx, arrival, meant) if isinstance(meant, ControlWord) else answers.take(tx, arrival, meant)

    def _keep(self, tx: Transaction, arrival: Arrival) -> Job:
        """Give a message the last place in its lane; where the channel says so, it interrupts (decision 15)."""
        job = job_of(tx, arrival, waits=True)
        row = tx.inbox.add(arrival.message, job.id)
        job.inbox_id = row.id
        tx.jobs.add(job)
        if mode_of(arrival.binding, self._rules().busy) is BusyMode.INTERRUPT:
            self._interrupt(tx, arrival, job, row)
        return job

    def _interrupt(self, tx: Transaction, arrival: Arrival, job: Job, row: InboxRow) -> None:
        """End what the same agent does for this person, unless nobody would answer the message itself."""
        agent = self._access.agent(tx, arrival.message, arrival.binding)
        if agent is not None and self._refusal(tx, arrival) is None:
            tx.interrupt(job, row, agent.id, arrival.alone)

    def _over(self, tx: Transaction, arrival: Arrival, meant: Meant) -> bool:
        """Say whether the person writes too fast; a ``/stop`` and an answer always get through."""
        limited = meant is None or (isinstance(meant, ControlWord) and meant is not ControlWord.STOP)
        free = arrival.person.is_owner or arrival.message.from_bot
        return limited and not free and self._in_haste(tx, arrival, self._rules().messages_per_minute)

    def _slow_down(self, tx: Transaction, arrival: Arrival, *, waits: bool) -> Job:
        """Drop a message of somebody who writes too fast, and say so once a minute; an operator can restart it."""
        told = tx.inbox.was_told(arrival.message, MINUTE)
        job = dropped(tx, arrival, TOO_FAST, waits=waits, pace=Pace.OVER if told else Pace.TOLD)
        if not told:
            most = self._rules().messages_per_minute
            tell(tx, job, f"I answer at most {most} messages a minute to one person. Please send this again later.")
        return job


def _check(message: IncomingMessage) -> None:
    if not message.content.strip() and not message.attachments:
        raise InvalidMessage("a message needs text or an attachment")
    if len(message.content) > MAX_CONTENT_CHARS:
        raise InvalidMessage(f"a message may have at most {MAX_CONTENT_CHARS} characters")


def _storable(message: IncomingMessage) -> IncomingMessage:
    """Return the message with what people typed as the store takes it: one that it cannot would come for ever."""
    files = tuple(
        file.model_copy(update={"filename": storable(file.filename), "content_type": storable(file.content_type)})
        for file in message.attachments
    )
    typed = {"content": storable(message.content), "user_name": storable(message.user_name), "attachments": files}
    return message.model_copy(update=typed)


def _meant(tx: Transaction, arrival: Arrival) -> Meant:
    """Read a message: what is neither a control word nor an answer is an ordinary one."""
    content = arrival.message.content
    return control_word(content) or pairing_code(content) or answers.read(tx, arrival)

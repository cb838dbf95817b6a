"""Incoming messages: each waits in its lane, is executed at once, or is dropped with its reason."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from maestro.domain.agents.agent import BusyMode, busy_mode_of
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import (
    MAX_CONTENT_CHARS,
    AcceptedMessage,
    ControlWord,
    FloodState,
    InboxRow,
    IncomingMessage,
    PairingCode,
    control_word,
    pairing_code,
)
from maestro.domain.people.permissions import AccessRules
from maestro.domain.precedence import IN_HAND, precedence_of, priority_of
from maestro.domain.questions.question import AnswerRefusal, QuestionAnswer
from maestro.domain.settings.access import RoutingSettings
from maestro.domain.texts import storable
from maestro.intake import answers, control_words, pairing
from maestro.intake.access import AccessControl, ReceivedMessage, dropped, new_job_id, tell
from maestro.intake.pairing import PairingRules
from maestro.store.conversations.inbox import IntakeState
from maestro.store.jobs.claims import ClaimedJob
from maestro.store.store import Store
from maestro.store.transaction import Transaction

UNKNOWN = "an edit of a message that never came in"
TOO_LATE = "an edit of a message that is being answered, or was"

MINUTE = timedelta(minutes=1)

EVENT_PAUSE = timedelta(seconds=1)
"""The shortest time between two writes of an account's newest event; a busy channel has many events a second."""

BOT = "it came from a bot, and the channel does not let bots talk (allowBots)"
BOT_LOOP = "a bot wrote more often in a minute than it may (routing.botMessagesPerMinute)"
STRANGER_IN_HASTE = "somebody who is not known wrote more often in a minute than people may"
GUESSING = "too many wrong pairing codes came before"
TOO_FAST = "the person wrote more often in a minute than they may (routing.messagesPerMinute)"

Meant = ControlWord | PairingCode | QuestionAnswer | AnswerRefusal | None
"""The meaning of a message; None is an ordinary message for an agent."""


def take_edit(tx: Transaction, edit: IncomingMessage) -> AcceptedMessage:
    """Replace the text of a message whose job has not started; a later edit is only counted."""
    first = tx.inbox.find(edit.model_copy(update={"id": edit.edit_of}))
    if first is None or first.user_id != edit.user_id:
        tx.inbox.ignored.add(edit.address, UNKNOWN)
        return AcceptedMessage(message_id=edit.edit_of, job_id="", duplicate=False, ignored=UNKNOWN)
    if first.content == edit.content:
        return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)
    job = tx.jobs.get(first.job_id)
    if job.status is not JobStatus.PENDING or job.started_at is not None or job.notice:
        tx.inbox.ignored.add(edit.address, TOO_LATE)
        return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True, ignored=TOO_LATE)
    tx.inbox.rewrite(first.id or 0, edit.content)
    return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)


@dataclass(frozen=True)
class IntakeRules:
    """Settings of the intake: access, routing and limits.

    ``max_pending`` jobs may wait before new messages are refused.
    """

    max_pending: int
    access: AccessRules = field(default_factory=AccessRules)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    pairing: PairingRules = field(default_factory=PairingRules)


class JobStarter(Protocol):
    """The dispatcher of this process, as intake uses it; any thread may call its methods."""

    @property
    def ready(self) -> bool:
        """Whether a job that is claimed now will be started at once."""
        ...

    def start(self, claimed: ClaimedJob) -> None:
        """Start a job after its claim was committed."""
        ...


class Intake:
    """The intake, through which every message of every connector passes exactly once.

    A job that does not have to wait is claimed in the transaction that stores its message, and started right after the
    commit, if the dispatcher of this process is ready. All other jobs are left to the dispatchers.
    """

    def __init__(
        self,
        store: Store,
        rules: Callable[[], IntakeRules],
        wake: Callable[[], None],
        starter: JobStarter | None = None,
    ) -> None:
        """``wake`` notifies a dispatcher of this process that a job waits; ``starter`` is that dispatcher, if any."""
        self._store = store
        self._rules = rules
        self._wake = wake
        self._starter = starter
        self._noted = datetime.min.replace(tzinfo=UTC)

    @property
    def _access(self) -> AccessControl:
        rules = self._rules()
        return AccessControl(rules.access, rules.routing)

    def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Commit the message and its job, and wake the dispatcher; a repeated message changes nothing.

        Raises ``Backlogged`` when too many jobs wait and ``InvalidMessage`` when there is nothing to answer.
        """
        if not message.content.strip() and not message.attachments:
            raise InvalidMessage("a message needs text or an attachment")
        if len(message.content) > MAX_CONTENT_CHARS:
            raise InvalidMessage(f"a message may have at most {MAX_CONTENT_CHARS} characters")
        # A platform would deliver a message for ever whose text the store refuses.
        files = tuple(
            file.model_copy(update={"filename": storable(file.filename), "content_type": storable(file.content_type)})
            for file in message.attachments
        )
        texts = {"content": storable(message.content), "user_name": storable(message.user_name), "attachments": files}
        with self._store.begin() as tx:
            accepted, claimed = self._accept(tx, message.model_copy(update=texts))
            if abs(tx.now - self._noted) >= EVENT_PAUSE:
                self._noted, address = tx.now, message.address
                tx.users.connector_event(address.platform, address.account, max(tx.now - message.sent_at, timedelta()))
        if claimed is not None and self._starter is not None:
            self._starter.start(claimed)
        elif accepted.job_id and not accepted.duplicate:
            self._wake()
        return accepted

    def _accept(self, tx: Transaction, message: IncomingMessage) -> tuple[AcceptedMessage, ClaimedJob | None]:
        """Return the result for a message, and the job if this process starts it."""
        if message.edit_of:
            tx.bots.channels.enable(message.address)
            return take_edit(tx, message), None
        state = tx.inbox.state(message, self._rules().routing.messages_per_minute, MINUTE)
        if state.disabled:  # a message from a closed channel shows that it may be open again
            tx.bots.channels.enable(message.address)
        if state.job_id is not None:
            return AcceptedMessage(message_id=message.id, job_id=state.job_id, duplicate=True), None
        arrival = self._arrival(tx, message, state)
        content = arrival.message.content
        may_answer = state.asking or "#" in content  # without an open question in the lane, an answer has a number sign
        command = control_word(content) or pairing_code(content)
        meant = command or (answers.read(tx, arrival) if may_answer else None)
        ignored = self._ignored(tx, arrival, meant)
        if ignored is not None:
            tx.inbox.ignored.add(message.address, ignored)
            return AcceptedMessage(message_id=message.id, job_id="", duplicate=False, ignored=ignored), None
        backlog = self._backlog(tx, state)
        if backlog is not None and not self._makes_room(tx, arrival, meant):
            raise backlog
        job = self._take(tx, arrival, meant)
        if backlog is not None:
            tx.jobs.close(job.id, JobEnding(status=JobStatus.COMPLETED, reason=control_words.UNSAID))
        accepted = AcceptedMessage(message_id=message.id, job_id=job.id, duplicate=False)
        if job.claimed_at is None:
            return accepted, None
        return accepted, ClaimedJob(job, precedence_of(job.priority, state.client_id, state.weight, message.address))

    def _arrival(self, tx: Transaction, message: IncomingMessage, state: IntakeState) -> ReceivedMessage:
        access = self._access
        person = access.person_as(message, state.binding, lambda: state.listed, lambda: state.let_in)
        arrival = ReceivedMessage(message.model_copy(update={"is_owner": person.is_owner}), state, person)
        if person.known:
            return arrival
        agent = access.agent(tx, message, state.binding)
        return replace(arrival, turned_away=access.turned_away(person, agent, message, state.binding))

    def _ignored(self, tx: Transaction, arrival: ReceivedMessage, meant: Meant) -> str | None:
        """Return why a message is only counted: no agent answers it, or a bot or unknown user sends too many."""
        if arrival.message.from_bot:
            if arrival.binding is None or not arrival.binding.allow_bots:
                return BOT
            if tx.inbox.is_over_rate(arrival.message, self._rules().routing.bot_messages_per_minute, MINUTE):
                return BOT_LOOP
        if isinstance(meant, PairingCode):
            return GUESSING if pairing.guesses(tx, arrival.person.id) else None
        if arrival.turned_away is not None:
            is_over = arrival.state.over_limit
            if arrival.message.from_bot:  # a bot's messages are counted in this channel alone
                is_over = tx.inbox.is_over_rate(arrival.message, self._rules().routing.messages_per_minute, MINUTE)
            return STRANGER_IN_HASTE if is_over else None
        message = arrival.message
        if meant is not None or message.is_direct or arrival.binding is not None:
            return None
        # Otherwise every message of a busy server would start a workflow (docs/decisions.md: routing).
        route = self._access.route(tx, message, None)
        return route.reason if route.agent is None else None

    def _backlog(self, tx: Transaction, state: IntakeState) -> Backlogged | None:
        """Return the refusal of a message that would exceed the limit of waiting jobs.

        Control words count as well, because their replies wait like any job. Only a ``/stop`` that has a job to stop is
        executed beyond the limit, because it frees a slot; it gets no reply.
        """
        waiting = state.pending
        if waiting >= self._rules().max_pending:
            waiting -= tx.background.webhooks.count_pending()  # webhook jobs do not count for the users' limit
        if waiting < self._rules().max_pending:
            return None
        return Backlogged(
            f"{waiting} messages are waiting already; this one was not taken. Please send it again in a while."
        )

    def _makes_room(self, tx: Transaction, arrival: ReceivedMessage, meant: Meant) -> bool:
        obeyed = meant is ControlWord.STOP and arrival.turned_away is None and self._refusal(tx, arrival) is None
        return obeyed and control_words.can_stop(tx, arrival)

    def _refusal(self, tx: Transaction, arrival: ReceivedMessage) -> str | None:
        return self._access.refusal(tx, arrival.message, arrival.binding, arrival.person)

    def _take(self, tx: Transaction, arrival: ReceivedMessage, meant: Meant) -> Job:
        """Execute a control word, settle a question, or else add the message to its lane."""
        if isinstance(meant, PairingCode):
            return pairing.redeem(tx, arrival, meant)
        if arrival.turned_away is not None:
            return pairing.turn_away(tx, arrival, arrival.turned_away, self._rules().pairing)
        limited = meant is None or (isinstance(meant, ControlWord) and meant is not ControlWord.STOP)
        exempt = arrival.person.is_owner or arrival.message.from_bot
        if limited and not exempt and arrival.state.over_limit:
            return self._slow_down(tx, arrival, waits=meant is None)
        if meant is None:
            return self._enqueue(tx, arrival)
        refusal = self._refusal(tx, arrival)
        if refusal is not None:
            return dropped(tx, arrival, refusal)
        return (
            control_words.obey(tx, arrival, meant)
            if isinstance(meant, ControlWord)
            else answers.take(tx, arrival, meant)
        )

    def _slow_down(self, tx: Transaction, arrival: ReceivedMessage, *, waits: bool) -> Job:
        """Drop a message above its user's rate limit, with one notice a minute; an operator can restart it."""
        warned = tx.inbox.was_warned(arrival.message, MINUTE)
        job = dropped(tx, arrival, TOO_FAST, waits=waits, pace=FloodState.OVER if warned else FloodState.TOLD)
        if not warned:
            limit = self._rules().routing.messages_per_minute
            tell(tx, job, f"I answer at most {limit} messages a minute to one person. Please send this again later.")
        return job

    def _enqueue(self, tx: Transaction, arrival: ReceivedMessage) -> Job:
        """Add a message at the end of its lane; in a channel with the mode "interrupt", interrupt the running job.

        See docs/decisions.md: busy agents.
        """
        job_id, told_to_wait = new_job_id(), False
        row = tx.inbox.add(arrival.message, job_id)
        if busy_mode_of(arrival.binding, BusyMode(self._rules().routing.busy)) is BusyMode.INTERRUPT:
            told_to_wait = self._interrupt(tx, arrival, job_id, row)
        return tx.jobs.add_job(
            id=job_id,
            priority=priority_of(owner=arrival.person.is_owner),
            lane=arrival.lane,
            inbox_id=row.id,
            told_to_wait=told_to_wait,
            claimed_at=tx.now if self._begins_now(arrival.state) else None,
            **arrival.message.address.model_dump(),
        )

    def _begins_now(self, state: IntakeState) -> bool:
        """Return whether a dispatcher would certainly start this job next, because no other could precede it.

        Its lane is free, no other job waits to begin or to resume, and the limit of running jobs is not reached.
        """
        if self._starter is None or not self._starter.ready:
            return False
        return not (state.taken or state.unclaimed or state.due) and state.pending + state.running < IN_HAND

    def _interrupt(self, tx: Transaction, arrival: ReceivedMessage, job_id: str, row: InboxRow) -> bool:
        """Interrupt the same agent's jobs for this user, unless no agent would answer the message.

        Returns whether the user was already notified of a wait.
        """
        agent = self._access.agent(tx, arrival.message, arrival.binding)
        if agent is None or self._refusal(tx, arrival) is not None:
            return False
        return tx.jobs.interrupt(job_id, arrival.lane, row, agent.id, arrival.alone)


class AccountIntake:
    """The intake for the connector of one account: each message is committed in a thread."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Commit the message; raises what ``Intake.accept`` raises."""
        return await asyncio.to_thread(self._intake.accept, message)

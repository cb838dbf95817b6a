"""Accepts incoming messages: each waits in its lane (queue), is executed at once, or is dropped with its reason."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from maestro.domain.agents.agent import BusyMode, channel_busy_mode
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import (
    MAX_CONTENT_CHARS,
    AcceptedMessage,
    ControlWord,
    FloodState,
    IncomingMessage,
    PairingCode,
    control_word,
    lane_key,
    pairing_code,
)
from maestro.domain.people.people import AccessRules
from maestro.domain.precedence import IN_HAND, build_precedence, message_priority
from maestro.domain.questions.question import AnswerRefusal, QuestionAnswer
from maestro.domain.settings.jobs import PairingSettings, RoutingSettings
from maestro.domain.texts import storable_text
from maestro.intake import commands, pairing
from maestro.intake.access import AccessControl, ReceivedMessage, add_notice, new_job_id, store_dropped
from maestro.store.conversations.inbox import IntakeState
from maestro.store.jobs.claims import ClaimedJob
from maestro.store.store import Store
from maestro.store.transaction import Transaction

UNKNOWN = "an edit of a message that was never received"
TOO_LATE = "an edit of a message that is being answered or was answered"

MINUTE = timedelta(minutes=1)

EVENT_PAUSE = timedelta(seconds=1)
"""The shortest time between two writes of an account's newest event; a busy channel has many events a second."""

BOT = "a bot wrote the message, and the channel does not admit bots (allowBots)"
BOT_LOOP = "a bot wrote more messages in a minute than routing.botMessagesPerMinute allows"
UNKNOWN_USER_TOO_FAST = "an unknown user wrote more messages in a minute than users may"
GUESSING = "the user sent too many wrong pairing codes before"
TOO_FAST = "the user wrote more messages in a minute than routing.messagesPerMinute allows"

Meant = ControlWord | PairingCode | QuestionAnswer | AnswerRefusal | None
"""The meaning of a message; None is an ordinary message for an agent."""


def apply_message_edit(tx: Transaction, edit: IncomingMessage) -> AcceptedMessage:
    """Replace the text of a message if its job has not started; an edit after that is only counted."""
    first = tx.inbox.find(edit.model_copy(update={"id": edit.edit_of}))
    if first is None or first.user_id != edit.user_id:
        tx.inbox.ignored.add_ignored(edit.address, UNKNOWN)
        return AcceptedMessage(message_id=edit.edit_of, job_id="", duplicate=False, ignored=UNKNOWN)
    if first.content == edit.content:
        return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)
    job = tx.jobs.get(first.job_id)
    if job.status is not JobStatus.PENDING or job.started_at is not None or job.notice:
        tx.inbox.ignored.add_ignored(edit.address, TOO_LATE)
        return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True, ignored=TOO_LATE)
    tx.inbox.replace_content(first.id or 0, edit.content)
    return AcceptedMessage(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)


@dataclass(frozen=True)
class IntakeRules:
    """Settings of the intake: access, routing and limits.

    New messages are refused while ``max_pending`` jobs wait.
    """

    max_pending: int
    access: AccessRules = field(default_factory=AccessRules)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    pairing: PairingSettings = field(default_factory=PairingSettings)


class JobStarter(Protocol):
    """The dispatcher of this process, as the intake uses it; any thread may call the methods."""

    @property
    def owner(self) -> str:
        """The process of the dispatcher, as the claims of its jobs name it."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a job that is claimed now will be started at once."""
        ...

    def start(self, claimed: ClaimedJob) -> None:
        """Start a job after its claim was committed."""
        ...


@dataclass
class Intake:
    """The intake, through which every message of every connector passes exactly once.

    A job that does not have to wait is claimed in the transaction that stores its message, and started right after the
    commit, if the dispatcher of this process is ready. All other jobs are left to the dispatchers. ``wake`` notifies a
    dispatcher of this process that a job waits; ``starter`` is that dispatcher, if any.
    """

    store: Store
    rules: Callable[[], IntakeRules]
    wake: Callable[[], None]
    starter: JobStarter | None = None
    _noted: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)

    @property
    def _access_control(self) -> AccessControl:
        rules = self.rules()
        return AccessControl(rules.access, rules.routing)

    def accept_message(self, message: IncomingMessage) -> AcceptedMessage:
        """Commit the message and its job, and wake the dispatcher; a repeated message changes nothing.

        Raises ``Backlogged`` when too many jobs wait and ``InvalidMessage`` when there is nothing to answer.
        """
        if not message.content.strip() and not message.attachments:
            raise InvalidMessage("a message needs text or an attachment")
        if len(message.content) > MAX_CONTENT_CHARS:
            raise InvalidMessage(f"a message may have at most {MAX_CONTENT_CHARS} characters")
        # A platform would deliver a message again and again if the store refused the message's text.
        files = tuple(
            file.model_copy(
                update={"filename": storable_text(file.filename), "content_type": storable_text(file.content_type)}
            )
            for file in message.attachments
        )
        texts = {
            "content": storable_text(message.content),
            "user_name": storable_text(message.user_name),
            "attachments": files,
        }
        accepted, claimed = self.store.widen_scope(partial(self._commit_message, message.model_copy(update=texts)))
        if claimed is not None and self.starter is not None:
            self.starter.start(claimed)
        elif accepted.job_id and not accepted.duplicate:
            self.wake()
        return accepted

    def _commit_message(self, message: IncomingMessage) -> tuple[AcceptedMessage, ClaimedJob | None]:
        """Commit a message; an ordinary one takes its position while messages of other channels take theirs."""
        address = message.address
        with self.store.begin(lane=lane_key(address, None)) as tx:
            result = self._accept_in_transaction(tx, message)
            if abs(tx.now - self._noted) >= EVENT_PAUSE:
                tx.users.record_connector_event(
                    address.platform, address.account, max(tx.now - message.sent_at, timedelta())
                )
                tx.call_after_commit(partial(setattr, self, "_noted", tx.now))
        return result

    def _accept_in_transaction(
        self, tx: Transaction, message: IncomingMessage
    ) -> tuple[AcceptedMessage, ClaimedJob | None]:
        """Return the result for a message, and the job if this process starts it."""
        if message.edit_of:
            tx.bots.channels.enable(message.address)
            return apply_message_edit(tx, message), None
        state = tx.inbox.read_state(message, self.rules().routing.messages_per_minute, MINUTE)
        if state.disabled:  # A message from a disabled channel shows that the channel accepts messages again.
            tx.bots.channels.enable(message.address)
        if state.job_id is not None:
            return AcceptedMessage(message_id=message.id, job_id=state.job_id, duplicate=True), None
        received = self._read_sender_state(tx, message, state)
        content = received.message.content
        may_answer = state.asking or "#" in content  # A "#" may name a question of another lane.
        command = control_word(content) or pairing_code(content)
        meant = command or (commands.read_answer(tx, received) if may_answer else None)
        ignored = self._find_ignore_reason(tx, received, meant)
        if ignored is not None:
            tx.inbox.ignored.add_ignored(message.address, ignored)
            return AcceptedMessage(message_id=message.id, job_id="", duplicate=False, ignored=ignored), None
        backlog = self._find_backlog_refusal(tx, state)
        if backlog is not None and not self._frees_slot(tx, received, meant):
            raise backlog
        job = self._handle_message(tx, received, meant)
        if backlog is not None:
            tx.jobs.close_job(job.id, JobEnding(status=JobStatus.COMPLETED, reason=commands.UNSAID))
        accepted = AcceptedMessage(message_id=message.id, job_id=job.id, duplicate=False)
        if job.claimed_at is None:
            return accepted, None
        return accepted, ClaimedJob(job, build_precedence(job.priority, state.client_id, state.weight, message.address))

    def _read_sender_state(self, tx: Transaction, message: IncomingMessage, state: IntakeState) -> ReceivedMessage:
        access = self._access_control
        person = access.build_person(message, state.binding, lambda: state.listed, lambda: state.let_in)
        received = ReceivedMessage(message.model_copy(update={"is_owner": person.is_owner}), state, person)
        if person.known:
            return received
        agent = access.choose_agent(tx, message, state.binding)
        return replace(received, refusing_policy=access.find_refusing_policy(person, agent, message, state.binding))

    def _find_ignore_reason(self, tx: Transaction, received: ReceivedMessage, meant: Meant) -> str | None:
        """Return why a message is only counted and not stored, such as for lack of an agent; None to store it."""
        if received.message.from_bot:
            if received.binding is None or not received.binding.allow_bots:
                return BOT
            if tx.inbox.is_over_rate(received.message, self.rules().routing.bot_messages_per_minute, MINUTE):
                return BOT_LOOP
        if isinstance(meant, PairingCode):
            return GUESSING if pairing.has_guessed_too_often(tx, received.person.id) else None
        if received.refusing_policy is not None:
            is_over = received.state.over_limit
            if received.message.from_bot:  # Messages of bots are counted per channel, not per user.
                is_over = tx.inbox.is_over_rate(received.message, self.rules().routing.messages_per_minute, MINUTE)
            return UNKNOWN_USER_TOO_FAST if is_over else None
        message = received.message
        if meant is not None or message.is_direct or received.binding is not None:
            return None
        # A message without an agent to answer it must not start a workflow (docs/decisions.md: routing).
        route = self._access_control.choose_route(tx, message, None)
        return route.reason if route.agent is None else None

    def _find_backlog_refusal(self, tx: Transaction, state: IntakeState) -> Backlogged | None:
        """Return the refusal of a message that would exceed the limit of waiting jobs.

        Control words are also refused, because their replies wait like any job. Only a ``/stop`` that has a job to stop
        is executed beyond the limit, because it frees a slot; it gets no reply.
        """
        waiting = state.pending
        if waiting >= self.rules().max_pending:
            waiting -= tx.background.webhooks.count_pending()  # The limit does not count webhook jobs.
        if waiting < self.rules().max_pending:
            return None
        return Backlogged(
            f"{waiting} messages are waiting already; this message was not accepted. Please send it again in a while."
        )

    def _frees_slot(self, tx: Transaction, received: ReceivedMessage, meant: Meant) -> bool:
        obeyed = (
            meant is ControlWord.STOP
            and received.refusing_policy is None
            and self._find_access_refusal(tx, received) is None
        )
        return obeyed and commands.can_stop(tx, received)

    def _find_access_refusal(self, tx: Transaction, received: ReceivedMessage) -> str | None:
        return self._access_control.find_refusal(tx, received.message, received.binding, received.person)

    def _handle_message(self, tx: Transaction, received: ReceivedMessage, meant: Meant) -> Job:
        """Obey a control word, record the answer to a question, or else add the message to its lane (queue)."""
        if isinstance(meant, PairingCode):
            return pairing.redeem_invitation(tx, received, meant)
        if received.refusing_policy is not None:
            return pairing.refuse_unknown_user(tx, received, received.refusing_policy, self.rules().pairing)
        limited = meant is None or (isinstance(meant, ControlWord) and meant is not ControlWord.STOP)
        exempt = received.person.is_owner or received.message.from_bot
        if limited and not exempt and received.state.over_limit:
            return self._drop_flood_message(tx, received, waits=meant is None)
        if meant is None:
            return self._enqueue_message(tx, received)
        refusal = self._find_access_refusal(tx, received)
        if refusal is not None:
            return store_dropped(tx, received, refusal)
        return (
            commands.execute_control_word(tx, received, meant)
            if isinstance(meant, ControlWord)
            else commands.record_answer(tx, received, meant)
        )

    def _drop_flood_message(self, tx: Transaction, received: ReceivedMessage, *, waits: bool) -> Job:
        """Drop a message above its user's rate limit, with one notice a minute; an operator can restart it."""
        warned = tx.inbox.was_warned(received.message, MINUTE)
        job = store_dropped(
            tx, received, TOO_FAST, waits=waits, flood_state=FloodState.OVER if warned else FloodState.TOLD
        )
        if not warned:
            limit = self.rules().routing.messages_per_minute
            add_notice(tx, job, f"I answer at most {limit} messages a minute per user. Please send this again later.")
        return job

    def _enqueue_message(self, tx: Transaction, received: ReceivedMessage) -> Job:
        """Add a message at the end of its lane (queue); the mode "interrupt" stops the agent's jobs for this user.

        See docs/decisions.md: busy agents.
        """
        job_id, told_to_wait = new_job_id(), False
        row = tx.inbox.add(received.message, job_id)
        if channel_busy_mode(received.binding, BusyMode(self.rules().routing.busy)) is BusyMode.INTERRUPT:
            agent = self._access_control.choose_agent(tx, received.message, received.binding)
            if agent is not None and self._find_access_refusal(tx, received) is None:
                told_to_wait = tx.jobs.interrupt_jobs(
                    job_id, received.inbound_lane, row, agent.id, received.sole_sender
                )
        claimed_by = self.starter.owner if self.starter is not None and self._starts_now(received.state) else ""
        return tx.jobs.add_job(
            id=job_id,
            priority=message_priority(from_owner=received.person.is_owner),
            lane=received.inbound_lane,
            inbox_id=row.id,
            told_to_wait=told_to_wait,
            claimed_at=tx.now if claimed_by else None,
            claimed_by=claimed_by,
            **received.message.address.model_dump(),
        )

    def _starts_now(self, state: IntakeState) -> bool:
        """Return whether a dispatcher would certainly start this job next, because no other job could precede it.

        The job's lane is free, no other job waits to begin or to resume, and the limit of running jobs is not reached.
        """
        if self.starter is None or not self.starter.ready:
            return False
        return not (state.taken or state.unclaimed or state.due) and state.pending + state.running < IN_HAND


class AccountIntake:
    """The intake for the connector of one account: each message is committed in a thread."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Commit a message and its job; raises what ``Intake.accept_message`` raises."""
        return await asyncio.to_thread(self._intake.accept_message, message)

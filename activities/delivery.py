"""Delivery: chunks as rows, each sent once or left unconfirmed; the last receipt closes the job."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from temporalio import activity

from activities.chunks import (
    ChunkQueue,
    DueChunk,
    OutgoingContent,
    after,
    outgoing_content,
    require_delivered,
    store_parts,
    undelivered,
)
from activities.routing import Typing
from connectors.base import Connector, FailureScope, PermanentSend, SendFailure, Unsettled
from connectors.hub import SendAction, hand_over
from maestro.domain.drafts import DraftState
from maestro.domain.errors import JobEnded, StepTaken, Stopped
from maestro.domain.jobs.flow import DeliverOutcome, DeliverStep
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.domain.redaction import Redact, as_it_is
from maestro.store.jobs.related import DependentRows
from maestro.store.store import Store, committed, finished
from maestro.store.transaction import Transaction

LANE_POLL_SECONDS = 0.1


class Connectors(Protocol):
    """The connectors this process holds."""

    def holding(self, address: Address) -> Connector:
        """Return the connector of a platform's account; raises ``NotDispatched`` when this process has none."""
        ...

    def holds(self, address: Address) -> bool:
        """Say whether this process has the connector of a platform's account."""
        ...

    def refused(self, address: Address, reason: str) -> None:
        """Stop sending by an account that the platform does not accept any more."""
        ...


class AnswerStream(Protocol):
    """The streaming of answers."""

    async def finished(self, job_id: str) -> None:
        """End the streaming of a job; returns when the write under way is over."""
        ...

    async def settle(self, job_id: str, connector: Connector) -> None:
        """Find out whether the platform has the draft; raises a ``SendFailure`` when it does not answer."""
        ...


@dataclass(frozen=True)
class DeliveryParts:
    """The parts for building a message: ``redact``, read for each message, removes secrets.

    ``path`` returns the path of the stored file of a digest; ``growing`` streams the answer so far.
    """

    redact: Callable[[], Redact]
    path: Callable[[str], Path]
    growing: AnswerStream


@dataclass(frozen=True)
class PreparedDelivery:
    """A delivery that holds its lane; ``first`` is the first chunk to send, None when all are sent."""

    connector: Connector
    first: DueChunk | None


@dataclass(frozen=True)
class UnsettledDraft:
    """A delivery that holds its lane while it is unknown whether the platform has its draft."""

    connector: Connector


@dataclass(frozen=True)
class RemainingDelivery:
    """The rest of a delivery after a receipt: the next chunk, else whether another job waits for the lane.

    A ``problem`` ends the sending: it is raised once the receipt is committed.
    """

    following: DueChunk | None = None
    awaited: bool = False
    problem: Exception | None = None


class DeliveryActivities:
    """Sends the messages of jobs."""

    def __init__(
        self,
        store: Store,
        connectors: Connectors,
        typing: Typing,
        released: Callable[[], None],
        matter: DeliveryParts,
    ) -> None:
        self._store = store
        self._connectors = connectors
        self._typing = typing
        self._released = released
        self._redact = matter.redact
        self._growing = matter.growing
        self._turns = ChunkQueue(matter.path)

    @activity.defn
    async def deliver(self, step: DeliverStep) -> DeliverOutcome:
        """Send every chunk that has no receipt yet, in order, holding the channel's outbound lane."""
        return await self.send(step, await self._prepared(step))

    def prepare_at_once(self, tx: Transaction, step: DeliverStep) -> PreparedDelivery | None:
        """Take the outbound lane and store the chunks in this transaction, if no wait is needed.

        None where another process holds the connector, another job sends in the channel, or the message has to be
        scanned for secrets first.
        """
        address = tx.jobs.read(step.job_id).address
        if self._redact() is not as_it_is or not self._connectors.holds(address):
            return None
        prepared = self._prepare(step)
        return prepared if isinstance(prepared, PreparedDelivery) and prepared.first is not None else None

    async def send(self, step: DeliverStep, prepared: PreparedDelivery) -> DeliverOutcome:
        """Send one chunk after the other, each once."""
        self._typing.stop(step.job_id)
        left = RemainingDelivery(prepared.first, awaited=True)
        sent = 0
        while left.following is not None:
            # A stop takes effect between two chunks: an interrupted send would leave its chunk unconfirmed.
            outcome = await finished(hand_over(prepared.connector, left.following.chunk, left.following.move))
            settle = partial(self._settled, step, prepared.connector, left.following, outcome)
            left = await committed(self._store, settle)
            sent += 1
        if left.problem is not None:
            raise left.problem
        if left.awaited:
            self._released()
        return DeliverOutcome(chunks=sent)

    async def _prepared(self, step: DeliverStep) -> PreparedDelivery:
        await self._growing.finished(step.job_id)
        prepared = await asyncio.to_thread(self._prepare_redacted, step)
        while not isinstance(prepared, PreparedDelivery):
            if isinstance(prepared, UnsettledDraft):
                await self._growing.settle(step.job_id, prepared.connector)
            else:
                # Another process may hold the lane and sends no event, so the row is polled.
                await asyncio.sleep(LANE_POLL_SECONDS)
            prepared = await asyncio.to_thread(self._prepare_when_free, step)
        return prepared

    def _settled(
        self, step: DeliverStep, connector: Connector, turn: DueChunk, outcome: Receipt | SendFailure
    ) -> RemainingDelivery:
        """Commit the result of a send and return the rest; raises the ``SendFailure`` after its row is written.

        A receipt that cannot be committed is kept and tried again: without it the chunk would be unconfirmed, and be
        sent twice where the platform cannot be asked.
        """
        if isinstance(outcome, Unsettled):
            return self._settle_unconfirmed(step, connector, turn.chunk)
        if turn.chunk.edits and isinstance(outcome, PermanentSend) and outcome.scope is FailureScope.MESSAGE:
            return self._as_new_message(step.job_id, turn.chunk)
        if isinstance(outcome, SendFailure):
            self._unsent(turn, outcome)
            raise outcome
        return self._sent(step, connector, turn.chunk, outcome)

    def _prepare(
        self, step: DeliverStep, redacted: OutgoingContent | None = None
    ) -> PreparedDelivery | UnsettledDraft | None:
        """Take the outbound lane and store the chunks; None while another job sends in this channel.

        Raises ``JobEnded`` when the job was closed while it waited: its message must not be sent any more.
        """
        with self._store.begin() as tx:
            job = tx.jobs.read(step.job_id)
            if job.status.ended:
                raise JobEnded(f"job {job.id} is {job.status}")
            start = tx.deliveries.begin(job, step.purpose)
            if start.closed is not None:  # an earlier send found the channel closed
                raise PermanentSend(f"nothing is sent to this channel any more: {start.closed}", FailureScope.CHANNEL)
            connector = self._connectors.holding(job.address)
            if not start.has_lane:
                return None
            if start.chunks or _agent_tells(tx, job, step):
                chunks = tx.deliveries.chunks(job.id, step.purpose) if start.chunks else []
                first = self._turns.next(tx, chunks, connector)
            elif start.draft and _in_doubt(tx, job):
                return UnsettledDraft(connector)
            else:
                words = outgoing_content(tx, job, start) if redacted is None else redacted
                chunks = store_parts(tx, job, start, words, connector)
                first = self._turns.first(tx, chunks)
            if first is None:
                require_delivered(chunks)
                _finish(tx, step, len(chunks))
            elif job.stop_requested:
                raise Stopped("stopped before its message was sent")
            return PreparedDelivery(connector, first)

    def _redacted(self, step: DeliverStep) -> OutgoingContent | None:
        """Return the content without secrets, None where redaction is off (docs/decisions.md: redaction).

        A scan may take long, so it holds no transaction.
        """
        redact = self._redact()
        if redact is as_it_is:
            return None
        with self._store.view() as tx:
            job = tx.jobs.read(step.job_id)
            words = outgoing_content(tx, job, tx.deliveries.start(job, step.purpose))
        return words.without_secrets(redact)

    def _prepare_redacted(self, step: DeliverStep) -> PreparedDelivery | UnsettledDraft | None:
        return self._prepare(step, self._redacted(step))

    def _prepare_when_free(self, step: DeliverStep) -> PreparedDelivery | UnsettledDraft | None:
        """Prepare once the lane is free; polls with reads only, because a wait for a long send may be long."""
        with self._store.view() as tx:
            job = tx.jobs.read(step.job_id)
            taken = tx.deliveries.lane_holder(job.address.outbound_lane) not in (None, job.id)
        return None if taken and not job.status.ended else self._prepare_redacted(step)

    def _sent(
        self, step: DeliverStep, connector: Connector, chunk: OutgoingMessage, receipt: Receipt
    ) -> RemainingDelivery:
        """Commit the receipt, and return the rest of the delivery.

        With the last receipt, in the same transaction, the step is done and the job may be closed. A job that was ended
        or stopped meanwhile keeps its receipt and sends no more.
        """
        with self._store.begin() as tx:
            tx.deliveries.sent(chunk.id, receipt)
            if chunk.edits:
                tx.deliveries.drafts.forget(step.job_id)
            return self._remaining(tx, step, connector, chunk)

    def _as_new_message(self, job_id: str, chunk: OutgoingMessage) -> RemainingDelivery:
        """Return the chunk as a separate message: the draft that it should replace cannot be edited any more."""
        with self._store.begin() as tx:
            tx.deliveries.drafts.forget(job_id)
            tx.deliveries.detach_draft(chunk.id)
            tx.deliveries.sending(chunk.id)
        return RemainingDelivery(
            DueChunk(chunk.model_copy(update={"edits": "", "tried_at": None}), SendAction.SEND), awaited=True
        )

    def _settle_unconfirmed(self, step: DeliverStep, connector: Connector, chunk: OutgoingMessage) -> RemainingDelivery:
        """Return the rest of the delivery when the platform cannot say whether it has a chunk.

        Its delivery report may have come after the last check.
        """
        with self._store.begin() as tx:
            known = tx.deliveries.reports.receipt(chunk.address, chunk.key)
            if known is not None:
                tx.deliveries.sent(chunk.id, known)
                return self._remaining(tx, step, connector, chunk)
            tx.jobs.steps.require_newest()
            if self._turns.rule(tx, chunk, connector) is SendAction.RESEND:
                tx.deliveries.sending(chunk.id)
                return RemainingDelivery(DueChunk(chunk, SendAction.RESEND), awaited=True)
            return self._remaining(tx, step, connector, chunk)

    def _remaining(
        self, tx: Transaction, step: DeliverStep, connector: Connector, done: OutgoingMessage
    ) -> RemainingDelivery:
        """Return the chunks after this one; an earlier unconfirmed one stays unconfirmed."""
        now = tx.jobs.dependents.progress(step.job_id, step.purpose, done.id)
        if now.status.ended:
            ended = JobEnded(f"job {step.job_id} is {now.status}; the rest of its message is not sent")
            return RemainingDelivery(problem=ended)
        if now.overtaken:
            taken = StepTaken(f"another process sends the rest of the message of job {step.job_id}")
            return RemainingDelivery(problem=taken)
        if now.stop_requested and now.unsent:
            return RemainingDelivery(problem=Stopped("stopped before the rest of its message was sent"))
        chunks = tx.deliveries.chunks(step.job_id, step.purpose) if now.unsent or now.failed else ()
        following = self._turns.next(tx, after(done, chunks), connector) if now.unsent else None
        if following is not None:
            return RemainingDelivery(following)
        failed = undelivered(chunks)
        if failed is not None:
            return RemainingDelivery(problem=PermanentSend(failed.error, FailureScope.MESSAGE))
        _finish(tx, step, now.chunks, now.dependents)
        return RemainingDelivery(awaited=now.waiting)

    def _unsent(self, turn: DueChunk, failure: SendFailure) -> None:
        """Store the result of a failed send; a chunk that an earlier try may have sent stays unconfirmed.

        A chunk that the platform refuses for good is not retried by the next job either.
        """
        chunk, broken = turn.chunk, failure.scope if isinstance(failure, PermanentSend) else None
        with self._store.begin() as tx:
            tx.jobs.steps.require_newest()  # only the newest attempt knows the state of the chunk
            if turn.move is SendAction.RESEND and failure.surely_unsent:
                tx.deliveries.repeated(chunk.id, -1)
            surely_unsent = failure.surely_unsent and chunk.tried_at is None
            tx.deliveries.failed(chunk.id, type(failure).__name__, surely_unsent=surely_unsent)
            if broken is FailureScope.CHANNEL:
                tx.bots.channels.disable(chunk.address, str(failure))
        if broken is FailureScope.ACCOUNT:
            self._connectors.refused(chunk.address, str(failure))


def _in_doubt(tx: Transaction, job: Job) -> bool:
    draft = tx.deliveries.drafts.find(job.id)
    return draft is not None and draft.state is DraftState.SENDING


def _finish(tx: Transaction, step: DeliverStep, chunks: int, dependents: DependentRows | None = None) -> None:
    if step.closes:
        tx.jobs.close(step.job_id, JobEnding(status=JobStatus.COMPLETED), dependents)
    tx.jobs.steps.done(step, DeliverOutcome(chunks=chunks))


def _agent_tells(tx: Transaction, job: Job, step: DeliverStep) -> bool:
    """Return whether a delegator gets the outcome of this job, and notifies the user of its failure."""
    return not step.closes and job.parent_id is not None and tx.jobs.delegations.delegator(job) is not None

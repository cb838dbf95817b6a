"""Sends the chunks of a message, each once or left unconfirmed; the last receipt closes the job."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from typing import Protocol

from temporalio import activity

from activities.chunks import ChunkQueue, DueChunk, OutgoingContent, find_late_failure, outgoing_content, store_chunks
from connectors.base import Connector, FailureScope, PermanentSend, SendFailure, Unsettled
from connectors.hub import ConnectorHub, SendAction, TypingIndicators
from maestro.domain.drafts import DraftState
from maestro.domain.errors import JobEnded, StepTaken, Stopped
from maestro.domain.jobs.flow import DeliverOutcome, DeliverStep
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import OutgoingMessage, Receipt
from maestro.domain.redaction import Redact, keep_text
from maestro.store.jobs.related import DependentRows
from maestro.store.store import Store, commit_persistently, result_despite_cancellation
from maestro.store.transaction import Transaction


class AnswerStream(Protocol):
    """The part of streaming that the delivery of answers uses."""

    async def end_streaming(self, job_id: str) -> None:
        """End the streaming of a job, and return once the edit under way has ended."""
        ...

    async def settle_draft(self, job_id: str, connector: Connector) -> None:
        """Find out whether the platform has the draft; raises a ``SendFailure`` when the platform cannot tell."""
        ...


@dataclass(frozen=True)
class PreparedDelivery:
    """A delivery that holds its outbound lane; ``first`` is the first chunk to send, None when all are sent.

    If ``draft_in_doubt``, nothing is sent until it is known whether the platform has the draft.
    """

    connector: Connector
    first: DueChunk | None = None
    draft_in_doubt: bool = False


@dataclass(frozen=True)
class RemainingDelivery:
    """The rest of a delivery: ``following`` is the next chunk, ``awaited`` says that another job needs the lane.

    A ``problem`` ends the sending, and is raised after the receipt is committed.
    """

    following: DueChunk | None = None
    awaited: bool = False
    problem: Exception | None = None


@dataclass(frozen=True)
class DeliveryActivities:
    """Sends the messages of jobs.

    ``released`` is called when another job needs the freed outbound lane. ``redact`` returns the present function that
    removes secrets; ``stream`` shows answers while the model writes them.
    """

    store: Store
    connectors: ConnectorHub
    typing: TypingIndicators
    released: Callable[[], None]
    redact: Callable[[], Redact]
    queue: ChunkQueue
    stream: AnswerStream

    @activity.defn
    async def deliver(self, step: DeliverStep) -> DeliverOutcome:
        """Send every chunk that has no receipt yet, in order, holding the channel's outbound lane."""
        await self.stream.end_streaming(step.job_id)
        prepared = await asyncio.to_thread(self._prepare_redacted, step)
        while prepared is None or prepared.draft_in_doubt:
            if prepared is None:
                # Another process may hold the lane, and sends no event when the lane is free, so the row is polled.
                await asyncio.sleep(0.1)
            else:
                await self.stream.settle_draft(step.job_id, prepared.connector)
            prepared = await asyncio.to_thread(self._prepare_when_free, step)
        return await self.send_chunks(step, prepared)

    def prepare_at_once(self, tx: Transaction, step: DeliverStep) -> PreparedDelivery | None:
        """Take the outbound lane and store the chunks in the open transaction, if nothing has to wait.

        Returns None where another process has the connector, another job sends in the channel, or the message has to be
        scanned for secrets first.
        """
        address = tx.jobs.read(step.job_id).address
        if self.redact() is not keep_text or not self.connectors.runs_connector(address):
            return None
        prepared = self._prepare_delivery(step)
        return prepared if prepared is not None and prepared.first is not None else None

    async def send_chunks(self, step: DeliverStep, prepared: PreparedDelivery) -> DeliverOutcome:
        """Send the chunks in order, each once, and return their number."""
        self.typing.stop_indicator(step.job_id)
        remaining = RemainingDelivery(prepared.first, awaited=True)
        sent = 0
        while (due := remaining.following) is not None:
            # A stop takes effect between two chunks: an interrupted send would leave its chunk unconfirmed.
            sending = self.connectors.perform_send_action(prepared.connector, due.chunk, due.action)
            outcome = await result_despite_cancellation(sending)
            # The commit of a receipt is retried until it succeeds: without the receipt, the chunk might be sent twice.
            settle = partial(self.store.widen_scope, partial(self._settle_send, step, prepared.connector, due, outcome))
            remaining = await commit_persistently(self.store, settle)
            sent += 1
        if remaining.problem is not None:
            raise remaining.problem
        if remaining.awaited:
            self.released()
        return DeliverOutcome(chunks=sent)

    def _settle_send(
        self, step: DeliverStep, connector: Connector, due: DueChunk, outcome: Receipt | SendFailure
    ) -> RemainingDelivery:
        """Commit the outcome of a send and return the rest of the delivery; raise a ``SendFailure`` after storing it.

        The transaction of the last receipt also completes the step, and closes the job if that was its last step.
        """
        chunk = due.chunk
        if isinstance(outcome, Unsettled):
            return self._settle_unconfirmed(step, connector, chunk)
        if chunk.edits and isinstance(outcome, PermanentSend) and outcome.scope is FailureScope.MESSAGE:
            return self._separate_from_draft(step.job_id, chunk)
        if isinstance(outcome, SendFailure):
            self._record_failure(step, due, outcome)
            raise outcome
        with self.store.begin(job=step.job_id) as tx:
            tx.deliveries.mark_sent(chunk.id, outcome)
            if chunk.edits:
                tx.deliveries.drafts.delete_draft(step.job_id)
            return self._remaining_delivery(tx, step, connector, chunk)

    def _prepare_delivery(self, step: DeliverStep, redacted: OutgoingContent | None = None) -> PreparedDelivery | None:
        """Take the outbound lane and store the chunks; None while another job sends in this channel.

        Raises ``JobEnded`` when the job was closed while it waited for the lane: its message must not be sent any more.
        """
        with self.store.begin(job=step.job_id) as tx:
            job = tx.jobs.read(step.job_id)
            if job.status.ended:
                raise JobEnded(f"job {job.id} is {job.status}")
            start = tx.deliveries.begin_delivery(job, step.purpose)
            if start.closed is not None:  # The platform reported at an earlier send that the channel is closed.
                raise PermanentSend(f"nothing is sent to this channel any more: {start.closed}", FailureScope.CHANNEL)
            connector = self.connectors.get_connector(job.address)
            if not start.has_lane:
                return None
            # The failure of a job that reports to a delegating agent is sent to no user.
            may_report = not step.closes and job.parent_id is not None
            if start.chunks or (may_report and tx.jobs.delegations.find_delegator(job) is not None):
                chunks = tx.deliveries.list_chunks(job.id, step.purpose) if start.chunks else []
                first = self.queue.take_next_chunk(tx, chunks, connector)
            elif start.draft and is_draft_unconfirmed(tx, job):
                return PreparedDelivery(connector, draft_in_doubt=True)
            else:
                content = outgoing_content(tx, job, start) if redacted is None else redacted
                chunks = store_chunks(tx, job, start, content, connector)
                first = self.queue.take_first_chunk(tx, chunks, connector)
            stopped = Stopped("stopped before its message was sent") if job.stop_requested else None
            problem = stopped if first is not None else find_late_failure(chunks)
            if problem is not None:
                raise problem
            if first is None:
                _finish_delivery(tx, step, len(chunks))
            return PreparedDelivery(connector, first)

    def _prepare_redacted(self, step: DeliverStep) -> PreparedDelivery | None:
        """Prepare the delivery; scan the text for secrets before the transaction, because a scan may take long.

        See docs/decisions.md: redaction.
        """
        redact = self.redact()
        if redact is keep_text:
            return self.store.widen_scope(partial(self._prepare_delivery, step))
        with self.store.view() as tx:
            job = tx.jobs.read(step.job_id)
            content = outgoing_content(tx, job, tx.deliveries.read_start(job, step.purpose))
        return self.store.widen_scope(partial(self._prepare_delivery, step, content.redact_secrets(redact)))

    def _prepare_when_free(self, step: DeliverStep) -> PreparedDelivery | None:
        """Prepare the delivery if the outbound lane is free, else return None after reading the lane's row only."""
        with self.store.view() as tx:
            job = tx.jobs.read(step.job_id)
            taken = tx.deliveries.find_lane_holder(job.address.outbound_lane) not in (None, job.id)
        return None if taken and not job.status.ended else self._prepare_redacted(step)

    def _separate_from_draft(self, job_id: str, chunk: OutgoingMessage) -> RemainingDelivery:
        """Prepare a chunk for sending as a new message, because its draft cannot be edited any more."""
        with self.store.begin(job=job_id) as tx:
            tx.deliveries.drafts.delete_draft(job_id)
            tx.deliveries.detach_draft(chunk.id)
            tx.deliveries.mark_sending(chunk.id, chunk.address)
        return RemainingDelivery(
            DueChunk(chunk.model_copy(update={"edits": "", "tried_at": None}), SendAction.SEND), awaited=True
        )

    def _settle_unconfirmed(self, step: DeliverStep, connector: Connector, chunk: OutgoingMessage) -> RemainingDelivery:
        """Return the rest of the delivery when the platform cannot tell whether it has a chunk.

        First the delivery reports are read again, because a report may have arrived since the last check.
        """
        with self.store.begin(job=step.job_id) as tx:
            receipt = tx.deliveries.reports.find_receipt(chunk.address, chunk.key)
            if receipt is not None:
                tx.deliveries.mark_sent(chunk.id, receipt)
                return self._remaining_delivery(tx, step, connector, chunk)
            tx.jobs.steps.require_newest()
            if self.queue.apply_duplicate_rule(tx, chunk, connector) is SendAction.RESEND:
                tx.deliveries.mark_sending(chunk.id, chunk.address)
                return RemainingDelivery(DueChunk(chunk, SendAction.RESEND), awaited=True)
            return self._remaining_delivery(tx, step, connector, chunk)

    def _remaining_delivery(
        self, tx: Transaction, step: DeliverStep, connector: Connector, sent_chunk: OutgoingMessage
    ) -> RemainingDelivery:
        """Return the rest of the delivery after this chunk; an earlier unconfirmed chunk stays unconfirmed.

        A job that was ended or stopped meanwhile keeps its receipts and sends nothing more.
        """
        progress = tx.jobs.dependents.read_delivery_progress(step.job_id, step.purpose, sent_chunk.id)
        if progress.status.ended:
            ended = JobEnded(f"job {step.job_id} is {progress.status}; the rest of its message is not sent")
            return RemainingDelivery(problem=ended)
        if progress.overtaken:
            taken = StepTaken(f"another process sends the rest of the message of job {step.job_id}")
            return RemainingDelivery(problem=taken)
        if progress.stop_requested and progress.unsent:
            return RemainingDelivery(problem=Stopped("stopped before the rest of its message was sent"))
        chunks = tx.deliveries.list_chunks(step.job_id, step.purpose) if progress.unsent or progress.failed else ()
        later = list(dropwhile(lambda chunk: chunk.id != sent_chunk.id, chunks))[1:]
        following = self.queue.take_next_chunk(tx, later, connector) if progress.unsent else None
        problem = find_late_failure(chunks) if following is None else None
        if following is not None or problem is not None:
            return RemainingDelivery(following, problem=problem)
        _finish_delivery(tx, step, progress.chunks, progress.dependents)
        return RemainingDelivery(awaited=progress.waiting)

    def _record_failure(self, step: DeliverStep, due: DueChunk, failure: SendFailure) -> None:
        """Store the failure of a send; a chunk that an earlier try may have sent stays unconfirmed.

        A refusal of the whole channel disables the channel; a refusal of the account is reported to its connector.
        """
        chunk, scope = due.chunk, failure.scope if isinstance(failure, PermanentSend) else None
        with self.store.begin(job=step.job_id) as tx:
            tx.jobs.steps.require_newest()  # Only the newest attempt may change the row of the chunk.
            if due.action is SendAction.RESEND and failure.surely_unsent:
                tx.deliveries.count_repeat(chunk.id, -1)
            surely_unsent = failure.surely_unsent and chunk.tried_at is None
            tx.deliveries.mark_failed(chunk.id, type(failure).__name__, surely_unsent=surely_unsent)
            if scope is FailureScope.CHANNEL:
                tx.bots.channels.disable(chunk.address, str(failure))
        if scope is FailureScope.ACCOUNT:
            self.connectors.report_refusal(chunk.address, str(failure))


def is_draft_unconfirmed(tx: Transaction, job: Job) -> bool:
    draft = tx.deliveries.drafts.find_draft(job.id)
    return draft is not None and draft.state is DraftState.SENDING


def _finish_delivery(tx: Transaction, step: DeliverStep, chunks: int, dependents: DependentRows | None = None) -> None:
    if step.closes:
        tx.jobs.close_job(step.job_id, JobEnding(status=JobStatus.COMPLETED), dependents)
    tx.jobs.steps.finish_step(step, DeliverOutcome(chunks=chunks))

"""Step 11 of a message: chunks as rows, each sent once; with the last receipt the job is closed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.routing import Typing
from connectors.base import Capabilities, Connector
from connectors.splitting import split
from maestro.domain.deliveries import Delivery, DeliveryState, Purpose
from maestro.domain.errors import JobEnded
from maestro.domain.flow import DeliverOutcome, DeliverStep
from maestro.domain.jobs import Ending, Job, JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.store.store import Store
from maestro.store.transaction import Transaction

LANE_POLL_SECONDS = 0.1

FAILURE_NOTICE = "Sorry, I could not answer this message. The operators can see why."
"""What a person hears, once and without internals, when a message finally failed (decision 20)."""


class Connectors(Protocol):
    """The connectors this process holds."""

    def holding(self, address: Address) -> Connector:
        """Return the connector of a platform's account; raises ``NotDispatched`` when this process has none."""
        ...


@dataclass(frozen=True)
class Prepared:
    """The lane is ours; ``first`` is the first chunk to send, None when all have been sent."""

    first: OutgoingMessage | None


class DeliveryActivities:
    """Sends what a job has to say (specification 003, step 13)."""

    def __init__(self, store: Store, connectors: Connectors, typing: Typing, released: Callable[[], None]) -> None:
        self._store = store
        self._connectors = connectors
        self._typing = typing
        self._released = released

    @activity.defn
    async def deliver(self, step: DeliverStep) -> DeliverOutcome:
        """Send every chunk that has no receipt yet, in order, holding the channel's outbound lane."""
        job = await asyncio.to_thread(self._job, step)
        connector = self._connectors.holding(job.address)
        chunk = await self._first(step, connector.capabilities)
        self._typing.stop(step.job_id)
        sent = 0
        while chunk is not None:
            receipt = await connector.send(chunk)
            sent += 1
            chunk = await asyncio.to_thread(self._sent, step, chunk, receipt)
        self._released()
        return DeliverOutcome(chunks=sent)

    async def _first(self, step: DeliverStep, capabilities: Capabilities) -> OutgoingMessage | None:
        # Another process may hold the lane, so there is no event to wait for: the row is all there is.
        while (prepared := await asyncio.to_thread(self._prepare, step, capabilities)) is None:  # noqa: ASYNC110
            await asyncio.sleep(LANE_POLL_SECONDS)
        return prepared.first

    def _job(self, step: DeliverStep) -> Job:
        with self._store.view() as tx:
            return tx.jobs.get(step.job_id)

    def _prepare(self, step: DeliverStep, capabilities: Capabilities) -> Prepared | None:
        """Take the outbound lane and store the chunks; None while another job sends in this channel.

        Raises ``JobEnded`` when the job was closed while it waited: its message is not to be sent any more.
        """
        with self._store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            if job.status.ended:
                raise JobEnded(f"job {job.id} is {job.status}")
            if not tx.deliveries.take_lane(job.address.outbound_lane, job.id):
                return None
            if not tx.deliveries.chunks(job.id, step.purpose):
                _store_chunks(tx, job, step.purpose, capabilities)
            return Prepared(_next(tx, step))

    def _sent(self, step: DeliverStep, chunk: OutgoingMessage, receipt: Receipt) -> OutgoingMessage | None:
        """Keep the receipt; with the last one, in the same transaction, the step is done and the job may be closed."""
        with self._store.begin() as tx:
            tx.deliveries.sent(chunk.id, receipt)
            following = _next(tx, step)
            if following is None:
                _finish(tx, step)
            return following


def _next(tx: Transaction, step: DeliverStep) -> OutgoingMessage | None:
    """Return the next chunk without a receipt, marked as being sent before the platform is called."""
    chunk = next(
        (row for row in tx.deliveries.chunks(step.job_id, step.purpose) if row.state is not DeliveryState.SENT), None
    )
    if chunk is None:
        return None
    outgoing = chunk.outgoing()
    tx.deliveries.sending(outgoing.id)
    return outgoing


def _finish(tx: Transaction, step: DeliverStep) -> DeliverOutcome:
    if step.closes:
        tx.close_job(step.job_id, Ending(status=JobStatus.COMPLETED))
    sent = tx.deliveries.chunks(step.job_id, step.purpose)
    return tx.steps.done(step, DeliverOutcome(chunks=len(sent)))


def _store_chunks(tx: Transaction, job: Job, purpose: Purpose, capabilities: Capabilities) -> list[Delivery]:
    text = (
        tx.conversations.message(job.answer_id).content if purpose is Purpose.ANSWER else job.notice or FAILURE_NOTICE
    )
    reply_to = tx.inbox.get(job.inbox_id).message_id if job.inbox_id else ""
    return [
        tx.deliveries.add(
            Delivery(
                job_id=job.id,
                purpose=purpose,
                seq=seq,
                content=content,
                reply_to=reply_to if seq == 0 else "",
                created_at=tx.now,
                **job.address.model_dump(),
            )
        )
        for seq, content in enumerate(split(text, capabilities.max_length, capabilities.unit))
    ]

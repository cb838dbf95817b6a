"""Writes drafts on their platform: what is committed before it is asked, and what its word means."""

import asyncio
from functools import partial

from activities.chunks import measure_of, reply_to
from connectors.base import Connector, Idempotency, PermanentSend, SendFailure, Unsettled
from connectors.hub import SendAction, choose_action, hand_over
from connectors.splitting import chunks
from maestro.domain.deliveries import Purpose
from maestro.domain.drafts import STOPPED, DraftState, ending
from maestro.domain.jobs.job import Job
from maestro.domain.messages import OutgoingMessage, Receipt
from maestro.store.deliveries.drafts import AddressedDraft
from maestro.store.store import Store, committed
from maestro.store.transaction import Transaction
from maestro.uninterrupted import uninterrupted


class Drafting:
    """Each of its methods returns None when it is done, else how many seconds to wait at least before it is tried."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def place(self, job_id: str, connector: Connector, *, anew: bool) -> float | None:
        """Let the platform have a message without a word of the answer, and keep what it knows it as.

        Unless ``anew``, only one that may be there already is settled. Where nobody can say whether it is, nothing is
        shown: what may be left on the platform says nothing.
        """
        message = await asyncio.to_thread(self._asked, job_id, anew)
        if message is None:
            return None
        move = await asyncio.to_thread(self._move, message, connector)
        if move not in (SendAction.SEND, SendAction.LOOK):
            await asyncio.to_thread(self._dropped, job_id)
            return None
        outcome = await hand_over(connector, message, move)
        return await committed(self._store, partial(self._told, job_id, message, outcome))

    async def edit(self, sheet: AddressedDraft, connector: Connector) -> float | None:
        """Let the message say what is written so far, as much of it as fits."""
        message = sheet.draft.saying(sheet.address, _fitting(sheet.draft.text, connector, 0))
        outcome = await hand_over(connector, message, SendAction.SEND)
        if isinstance(outcome, PermanentSend):
            await asyncio.to_thread(self._dropped, sheet.draft.job_id)
        return _pause(outcome)

    async def end(self, sheet: AddressedDraft, connector: Connector) -> float | None:
        """Let the message say that nothing more comes; what cannot be said is left as it is."""
        text = ending(_fitting(sheet.draft.text, connector, len(STOPPED)))
        outcome = await hand_over(connector, sheet.draft.saying(sheet.address, text), SendAction.SEND)
        if isinstance(outcome, Receipt | PermanentSend):
            await self.forget(sheet.draft.job_id)
        return _pause(outcome)

    async def forget(self, job_id: str) -> None:
        """Forget a draft."""
        await uninterrupted(asyncio.to_thread(self._forget, job_id))

    def _asked(self, job_id: str, anew: bool) -> OutgoingMessage | None:
        """Commit that the platform is about to be asked; None when it is not to be."""
        with self._store.begin() as tx:
            job, draft = tx.jobs.get(job_id), tx.drafts.find(job_id)
            if draft is None or (anew and not _welcome(tx.channels.why_disabled(job.address), job.stop_requested)):
                return None
            if anew and _another_speaks(tx, job):
                return None
            if draft.state is DraftState.WRITTEN and not anew:
                return None
            if not tx.drafts.sending(job_id):
                return None
            return draft.placeholder(job.address, reply_to(tx, job, tx.deliveries.start(job, Purpose.ANSWER)))

    def _move(self, message: OutgoingMessage, connector: Connector) -> SendAction:
        """Say what is safe; where a platform knows keys, what it has forgotten is not looked for: many say the same."""
        with self._store.view() as tx:
            move = choose_action(message, connector, tx.now)
        forgotten = move is SendAction.LOOK and connector.capabilities.idempotency is Idempotency.NATIVE
        return SendAction.LEAVE if forgotten else move

    def _told(self, job_id: str, message: OutgoingMessage, outcome: Receipt | SendFailure) -> float | None:
        """Keep what became of the message."""
        with self._store.begin() as tx:
            if isinstance(outcome, Receipt):
                tx.drafts.placed(job_id, outcome)
            elif isinstance(outcome, PermanentSend | Unsettled):
                tx.drafts.drop(job_id)
            elif outcome.surely_unsent and message.tried_at is None:
                tx.drafts.unsent(job_id)
        return _pause(outcome)

    def _dropped(self, job_id: str) -> None:
        with self._store.begin() as tx:
            tx.drafts.drop(job_id)

    def _forget(self, job_id: str) -> None:
        with self._store.begin() as tx:
            tx.drafts.forget(job_id)


def _another_speaks(tx: Transaction, job: Job) -> bool:
    """Say whether a new message would tear apart what another job says there."""
    holder = tx.deliveries.lane_holder(job.address.outbound_lane)
    return holder not in (None, job.id) or tx.drafts.another_shown(job.id, job.address)


def _welcome(disabled: str | None, stopped: bool) -> bool:
    return disabled is None and not stopped


def _pause(outcome: Receipt | SendFailure) -> float | None:
    if isinstance(outcome, Receipt | PermanentSend | Unsettled):
        return None
    return outcome.retry_after.total_seconds() if outcome.retry_after is not None else 0.0


def _fitting(text: str, connector: Connector, spare: int) -> str:
    """Return as much of a text as one message holds."""
    return next(chunks(text, connector.capabilities.max_length - spare, measure_of(connector)))

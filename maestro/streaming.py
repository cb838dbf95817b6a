"""Streaming: shows answers while they are written, each in one message that is sent once and then edited.

See ADR 21.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from activities.chunks import measure_of, reply_to
from connectors.base import AmbiguousSend, Connector, EditsMessages, Idempotency, PermanentSend, SendFailure, Unsettled
from connectors.hub import SendAction, choose_action, hand_over
from connectors.splitting import chunks
from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.drafts import STOPPED, DraftState, DraftStep, next_draft_step, stopped_text
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.job import Job
from maestro.domain.messages import OutgoingMessage, Receipt
from maestro.store.deliveries.drafts import AddressedDraft, Place
from maestro.store.store import Store, committed
from maestro.store.transaction import Transaction
from maestro.supervision import end, uninterrupted

LOOK_SECONDS = 0.1
"""Seconds between two reads of the store's change counter."""
PATIENCE_SECONDS = 3.0
"""The most seconds an answer waits for a running edit of its draft, which must not overwrite it."""
PAUSE_SECONDS = 1.0
LONGEST_PAUSE = 30.0

log = structlog.get_logger(__name__)


class Drafting:
    """Sends and edits drafts; each method returns None when done, else the least seconds before the next try."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def place(self, job_id: str, connector: Connector, *, anew: bool) -> float | None:
        """Send a placeholder message to the platform and record its receipt.

        Unless ``anew``, only the outcome of an earlier send is settled. If the platform cannot tell, no draft is shown:
        at most an empty placeholder remains there.
        """
        message = await asyncio.to_thread(self._begin_placing, job_id, anew)
        if message is None:
            return None
        move = await asyncio.to_thread(self._move, message, connector)
        if move not in (SendAction.SEND, SendAction.LOOK):
            await asyncio.to_thread(self._dropped, job_id)
            return None
        outcome = await hand_over(connector, message, move)
        return await committed(self._store, partial(self._record_outcome, job_id, message, outcome))

    async def edit(self, sheet: AddressedDraft, connector: Connector) -> float | None:
        """Edit the message to the text written so far, truncated to the platform's limit."""
        message = sheet.draft.saying(sheet.address, _fitting(sheet.draft.text, connector, 0))
        outcome = await hand_over(connector, message, SendAction.SEND)
        if isinstance(outcome, PermanentSend):
            await asyncio.to_thread(self._dropped, sheet.draft.job_id)
        return _pause(outcome)

    async def end(self, sheet: AddressedDraft, connector: Connector) -> float | None:
        """Edit the message to say that no more text follows; after a refusal it stays as it is."""
        text = stopped_text(_fitting(sheet.draft.text, connector, len(STOPPED)))
        outcome = await hand_over(connector, sheet.draft.saying(sheet.address, text), SendAction.SEND)
        if isinstance(outcome, Receipt | PermanentSend):
            await self.forget(sheet.draft.job_id)
        return _pause(outcome)

    async def forget(self, job_id: str) -> None:
        """Forget a draft."""
        await uninterrupted(asyncio.to_thread(self._forget, job_id))

    def _begin_placing(self, job_id: str, anew: bool) -> OutgoingMessage | None:
        """Record that the placeholder is about to be sent; None if it must not be."""
        with self._store.begin() as tx:
            job, draft = tx.jobs.get(job_id), tx.deliveries.drafts.find(job_id)
            if draft is None or (
                anew and not _is_allowed(tx.bots.channels.why_disabled(job.address), job.stop_requested)
            ):
                return None
            if anew and _another_speaks(tx, job):
                return None
            if draft.state is DraftState.WRITTEN and not anew:
                return None
            if not tx.deliveries.drafts.sending(job_id):
                return None
            return draft.placeholder(job.address, reply_to(tx, job, tx.deliveries.start(job, DeliveryPurpose.ANSWER)))

    def _move(self, message: OutgoingMessage, connector: Connector) -> SendAction:
        """Return the safe action; a platform with keys is not searched by text: many placeholders are equal."""
        with self._store.view() as tx:
            move = choose_action(message, connector, tx.now)
        forgotten = move is SendAction.LOOK and connector.capabilities.idempotency is Idempotency.NATIVE
        return SendAction.LEAVE if forgotten else move

    def _record_outcome(self, job_id: str, message: OutgoingMessage, outcome: Receipt | SendFailure) -> float | None:
        """Store the outcome of a send."""
        with self._store.begin() as tx:
            if isinstance(outcome, Receipt):
                tx.deliveries.drafts.placed(job_id, outcome)
            elif isinstance(outcome, PermanentSend | Unsettled):
                tx.deliveries.drafts.drop(job_id)
            elif outcome.surely_unsent and message.tried_at is None:
                tx.deliveries.drafts.unsent(job_id)
        return _pause(outcome)

    def _dropped(self, job_id: str) -> None:
        with self._store.begin() as tx:
            tx.deliveries.drafts.drop(job_id)

    def _forget(self, job_id: str) -> None:
        with self._store.begin() as tx:
            tx.deliveries.drafts.forget(job_id)


def _another_speaks(tx: Transaction, job: Job) -> bool:
    """Tell whether a new message would interrupt another job's answer in the channel."""
    holder = tx.deliveries.lane_holder(job.address.outbound_lane)
    return holder not in (None, job.id) or tx.deliveries.drafts.is_other_visible(job.id, job.address)


def _is_allowed(disabled: str | None, stopped: bool) -> bool:
    return disabled is None and not stopped


def _pause(outcome: Receipt | SendFailure) -> float | None:
    if isinstance(outcome, Receipt | PermanentSend | Unsettled):
        return None
    return outcome.retry_after.total_seconds() if outcome.retry_after is not None else 0.0


def _fitting(text: str, connector: Connector, spare: int) -> str:
    """Return the beginning of a text that fits into one message."""
    return next(chunks(text, connector.capabilities.max_length - spare, measure_of(connector)))


class HeldConnectors(Protocol):
    """The connectors that this process holds."""

    def all(self) -> Sequence[Connector]:
        """Return every connector of this process."""
        ...


@dataclass
class DraftProgress:
    """The progress of one draft: the shown revision, and the next time for an edit, in monotonic seconds."""

    revision: int = 0
    due: float = 0.0
    failures: int = 0
    over: bool = False
    work: asyncio.Task[None] | None = field(default=None)

    @property
    def busy(self) -> bool:
        """Whether a call to the platform is running."""
        return self.work is not None and not self.work.done()


class DraftStreamer:
    """The streaming of drafts to the accounts of this process.

    Streaming is optional: failures are retried after growing waits, and never delay an answer for long.
    """

    def __init__(self, store: Store, held: HeldConnectors) -> None:
        self._store = store
        self._held = held
        self._drafting = Drafting(store)
        self._shown: dict[str, DraftProgress] = {}
        self._offers: dict[Place, float] = {}
        self._mark = ""
        self._waiting = True
        self._left = False

    async def run(self) -> None:
        """Stream until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    await self._look()
                except StoreBusy as error:
                    log.warning("drafts.postponed", reason=str(error))
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await end([shown.work for shown in self._shown.values() if shown.work is not None])

    async def finished(self, job_id: str) -> None:
        """Stop streaming a job, because its answer is about to replace its draft.

        Returns when the running call has ended.
        """
        if not self._looks:
            return
        # A draft without an entry gets one here, because a check of it may already be running.
        shown = self._shown.setdefault(job_id, DraftProgress())
        shown.over = True
        if shown.work is not None and shown.busy:
            done, _ = await asyncio.wait([shown.work], timeout=PATIENCE_SECONDS)
            if not done:
                shown.work.cancel()
                await asyncio.wait([shown.work])

    @property
    def _looks(self) -> bool:
        """Whether a draft may have to be shown."""
        return self._waiting or self._left or any(self._offers.values())

    async def settle(self, job_id: str, connector: Connector) -> None:
        """Find out whether the platform has the draft's message; raises ``AmbiguousSend`` while that is unknown."""
        if await self._drafting.place(job_id, connector, anew=False) is not None:
            raise AmbiguousSend("the platform does not say whether it has the message that shows the answer so far")

    async def _look(self) -> None:
        connectors = {(one.platform, one.account): one for one in self._held.all() if isinstance(one, EditsMessages)}
        offers = {place: one.capabilities.edit_interval for place, one in connectors.items()}
        if offers != self._offers:
            await asyncio.to_thread(self._offer, offers)
            self._waiting = True
        if not self._looks:
            return
        mark = await asyncio.to_thread(self._store.mark)
        if mark == self._mark and not self._waiting:
            return
        self._mark = mark
        sheets = await asyncio.to_thread(self._drafts, list(connectors))
        # Drafts from before streaming was switched off are updated until their jobs end.
        self._left = bool(sheets)
        known = {sheet.draft.job_id for sheet in sheets}
        self._shown = {job_id: shown for job_id, shown in self._shown.items() if job_id in known or shown.busy}
        left = [self._consider(sheet, connectors) for sheet in sheets]
        self._waiting = any(left)

    def _consider(self, sheet: AddressedDraft, connectors: Mapping[Place, Connector]) -> bool:
        """Start the next action on a draft; true when another one is due without a further write."""
        shown = self._shown.setdefault(sheet.draft.job_id, DraftProgress())
        if shown.busy or (shown.over and not sheet.status.ended):
            return shown.busy
        move = next_draft_step(sheet.draft, sheet.status, shown.revision, free=sheet.free)
        if move is DraftStep.NOTHING:
            # No further look is needed: the commit that frees the channel causes one.
            return False
        if time.monotonic() >= shown.due:
            connector = connectors[sheet.address.platform, sheet.address.account]
            shown.work = asyncio.create_task(self._do(move, sheet, shown, connector))
        return True

    async def _do(self, move: DraftStep, sheet: AddressedDraft, shown: DraftProgress, connector: Connector) -> None:
        try:
            pause = await self._done(move, sheet, connector)
        # An error while a draft is shown must not affect the answer.
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("draft.postponed", job=sheet.draft.job_id, error=type(error).__name__)
            pause = LONGEST_PAUSE
        interval = connector.capabilities.edit_interval
        if pause is None:
            shown.failures, shown.due = 0, time.monotonic() + interval
            if move is DraftStep.EDIT:
                shown.revision = sheet.draft.revision
        else:
            shown.failures += 1
            longer = min(max(interval, LOOK_SECONDS) * 2**shown.failures, LONGEST_PAUSE)
            shown.due = time.monotonic() + max(pause, longer)

    async def _done(self, move: DraftStep, sheet: AddressedDraft, connector: Connector) -> float | None:
        """Call the platform; return None after success, else the least seconds to wait."""
        job_id = sheet.draft.job_id
        match move:
            case DraftStep.PLACE:
                return await self._drafting.place(job_id, connector, anew=sheet.draft.state is DraftState.WRITTEN)
            case DraftStep.EDIT:
                return await self._drafting.edit(sheet, connector)
            case DraftStep.END:
                return await self._drafting.end(sheet, connector)
        await self._drafting.forget(job_id)
        return None

    def _offer(self, offers: Mapping[Place, float]) -> None:
        """Record which accounts stream, for the processes that call models."""
        with self._store.view() as tx:
            known = {place: tx.deliveries.drafts.offered(place) for place in offers}
        if any(seconds != known[place] for place, seconds in offers.items()):
            with self._store.begin() as tx:
                for place, seconds in offers.items():
                    tx.deliveries.drafts.offer(place, seconds)
        self._offers = dict(offers)

    def _drafts(self, places: Sequence[Place]) -> Sequence[AddressedDraft]:
        with self._store.view() as tx:
            return tx.deliveries.drafts.at(places)

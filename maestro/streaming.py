"""Streams each answer while the model writes it: one message, the draft, is sent once and then edited.

See docs/adr/0021-streaming-beside-delivery.md.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from activities.chunks import length_measure, reply_message_id
from connectors.base import AmbiguousSend, Connector, EditsMessages, Idempotency, PermanentSend, SendFailure, Unsettled
from connectors.hub import ConnectorHub, SendAction, choose_action
from connectors.markdown import split_lazily
from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.drafts import STOPPED, DraftState, DraftStep, next_draft_step, stopped_text
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.job import Job
from maestro.domain.messages import OutgoingMessage, Receipt
from maestro.store.deliveries.drafts import AddressedDraft, Place
from maestro.store.store import Store, commit_persistently
from maestro.store.transaction import Transaction
from maestro.supervision import cancel_tasks, finish_despite_cancellation

LOOK_SECONDS = 0.1
"""Seconds between two checks of the store for changed drafts; a check without a change reads one number."""
PATIENCE_SECONDS = 3.0
"""Seconds that an answer waits for a running edit of its draft, which might otherwise overwrite the answer."""
PAUSE_SECONDS = 1.0
LONGEST_PAUSE = 30.0

log = structlog.get_logger(__name__)


class DraftSender:
    """Sends and edits draft messages; methods return None when done, or the seconds to wait before a retry."""

    def __init__(self, store: Store, hub: ConnectorHub) -> None:
        self._store = store
        self._hub = hub

    async def send_placeholder(self, job_id: str, connector: Connector, *, may_send: bool) -> float | None:
        """Send the placeholder message of a draft to the platform, and record its receipt.

        Without ``may_send``, nothing is sent: the call only finds out whether an earlier send succeeded. If the
        platform cannot tell, the draft is dropped, and at most an empty placeholder stays in the channel.
        """
        message = await asyncio.to_thread(self._commit_send_start, job_id, may_send)
        if message is None:
            return None
        action = await asyncio.to_thread(self._safe_action, message, connector)
        if action not in (SendAction.SEND, SendAction.LOOK):
            await asyncio.to_thread(self._store.write, lambda tx: tx.deliveries.drafts.mark_dropped(job_id), job=job_id)
            return None
        outcome = await self._hub.perform_send_action(connector, message, action)
        return await commit_persistently(self._store, partial(self._record_outcome, job_id, message, outcome))

    async def edit(self, addressed: AddressedDraft, connector: Connector) -> float | None:
        """Replace the text of the draft's message by the answer so far, cut to the length of one message."""
        message = addressed.draft.build_edit(addressed.address, _fit_into_message(addressed.draft.text, connector, 0))
        outcome = await self._hub.perform_send_action(connector, message, SendAction.SEND)
        if isinstance(outcome, PermanentSend):
            job_id = addressed.draft.job_id
            await asyncio.to_thread(self._store.write, lambda tx: tx.deliveries.drafts.mark_dropped(job_id), job=job_id)
        return pause_after_outcome(outcome)

    async def edit_final_note(self, addressed: AddressedDraft, connector: Connector) -> float | None:
        """Add to the draft's message that the answer was stopped; a refused edit leaves the message unchanged."""
        text = stopped_text(_fit_into_message(addressed.draft.text, connector, len(STOPPED)))
        outcome = await self._hub.perform_send_action(
            connector, addressed.draft.build_edit(addressed.address, text), SendAction.SEND
        )
        if isinstance(outcome, Receipt | PermanentSend):
            await self.delete_row(addressed.draft.job_id)
        return pause_after_outcome(outcome)

    async def delete_row(self, job_id: str) -> None:
        """Delete the row of a draft."""
        await finish_despite_cancellation(
            asyncio.to_thread(self._store.write, lambda tx: tx.deliveries.drafts.delete_draft(job_id), job=job_id)
        )

    def _commit_send_start(self, job_id: str, may_send: bool) -> OutgoingMessage | None:
        """Commit that a placeholder is about to be sent, and return the placeholder; None if no draft may be shown."""
        with self._store.begin() as tx:
            job, draft = tx.jobs.get(job_id), tx.deliveries.drafts.find_draft(job_id)
            if draft is None or not (_may_show_draft(tx, job) if may_send else draft.state is not DraftState.WRITTEN):
                return None
            tx.deliveries.require_lease(job.address)
            if not tx.deliveries.drafts.mark_sending(job_id):
                return None
            return draft.build_placeholder(
                job.address, reply_message_id(tx, job, tx.deliveries.read_start(job, DeliveryPurpose.ANSWER))
            )

    def _safe_action(self, message: OutgoingMessage, connector: Connector) -> SendAction:
        """Return how to send a placeholder without a duplicate.

        A platform with idempotency keys is not searched for the placeholder's text, because many placeholders have
        equal texts.
        """
        with self._store.view() as tx:
            action = choose_action(message, connector, tx.now)
        unsearchable = action is SendAction.LOOK and connector.capabilities.idempotency is Idempotency.NATIVE
        return SendAction.LEAVE if unsearchable else action

    def _record_outcome(self, job_id: str, message: OutgoingMessage, outcome: Receipt | SendFailure) -> float | None:
        """Store the outcome of sending a placeholder, and return the pause before the next try."""
        with self._store.begin(job=job_id) as tx:
            if isinstance(outcome, Receipt):
                tx.deliveries.drafts.set_message_id(job_id, outcome)
            elif isinstance(outcome, PermanentSend | Unsettled):
                tx.deliveries.drafts.mark_dropped(job_id)
            elif outcome.surely_unsent and message.tried_at is None:
                tx.deliveries.drafts.mark_unsent(job_id)
        return pause_after_outcome(outcome)


def _may_show_draft(tx: Transaction, job: Job) -> bool:
    """Return whether a job may show a draft now, which must not appear between the messages of another job's answer."""
    if tx.bots.channels.read_disable_reason(job.address) is not None or job.stop_requested:
        return False
    holder = tx.deliveries.find_lane_holder(job.address.outbound_lane)
    return holder in (None, job.id) and not tx.deliveries.drafts.is_other_visible(job.id, job.address)


def pause_after_outcome(outcome: Receipt | SendFailure) -> float | None:
    if isinstance(outcome, Receipt | PermanentSend | Unsettled):
        return None
    return outcome.retry_after.total_seconds() if outcome.retry_after is not None else 0.0


def _fit_into_message(text: str, connector: Connector, reserved_chars: int) -> str:
    """Return the beginning of a text that fits into one message, less ``reserved_chars`` characters."""
    return next(split_lazily(text, connector.capabilities.max_length - reserved_chars, length_measure(connector)))


@dataclass
class DraftProgress:
    """The progress of one draft: the revision that the platform shows, and the monotonic time of the next edit."""

    revision: int = 0
    due: float = 0.0
    failures: int = 0
    over: bool = False
    work: asyncio.Task[None] | None = field(default=None)

    @property
    def is_request_open(self) -> bool:
        """Whether a request about this draft to the platform is under way."""
        return self.work is not None and not self.work.done()


class DraftStreamer:
    """Shows the drafts of jobs on the platforms of the connectors that run in this process.

    Streaming is optional: a failed edit is retried with growing pauses, and delays the answer by a few seconds at most.
    """

    def __init__(self, store: Store, hub: ConnectorHub) -> None:
        self._store = store
        self._hub = hub
        self._drafting = DraftSender(store, hub)
        self._progress: dict[str, DraftProgress] = {}
        self._offers: dict[Place, float] = {}
        self._last_mark = ""
        self._is_due_again = True
        self._has_drafts = False

    async def stream_until_cancelled(self) -> None:
        """Stream drafts until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    await self._check_drafts()
                except StoreBusy as error:
                    log.warning("drafts.postponed", reason=str(error))
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await cancel_tasks([progress.work for progress in self._progress.values() if progress.work is not None])

    async def end_streaming(self, job_id: str) -> None:
        """Stop streaming the draft of a job, because the answer is about to replace the draft.

        Returns when the edit under way, if any, has ended.
        """
        if not self._may_have_drafts:
            return
        # A concurrent check may have read this draft already; it finds the entry made here, and starts no edit.
        progress = self._progress.setdefault(job_id, DraftProgress())
        progress.over = True
        if progress.work is not None and progress.is_request_open:
            done, _ = await asyncio.wait([progress.work], timeout=PATIENCE_SECONDS)
            if not done:
                progress.work.cancel()
                await asyncio.wait([progress.work])

    @property
    def _may_have_drafts(self) -> bool:
        return self._is_due_again or self._has_drafts or any(self._offers.values())

    async def settle_draft(self, job_id: str, connector: Connector) -> None:
        """Find out whether the platform has a draft's message; raises ``AmbiguousSend`` if the platform cannot tell."""
        if await self._drafting.send_placeholder(job_id, connector, may_send=False) is not None:
            raise AmbiguousSend("the platform does not say whether it has the message that shows the answer so far")

    async def _check_drafts(self) -> None:
        connectors = {
            (each.platform, each.account): each
            for each in self._hub.list_connectors()
            if isinstance(each, EditsMessages)
        }
        offers = {account: connector.capabilities.edit_interval for account, connector in connectors.items()}
        if offers != self._offers:
            await asyncio.to_thread(self._record_offers, offers)
            self._is_due_again = True
        if not self._may_have_drafts:
            return
        mark = await asyncio.to_thread(self._store.mark)
        if mark == self._last_mark and not self._is_due_again:
            return
        current = await asyncio.to_thread(
            self._store.read, lambda tx: tx.deliveries.drafts.list_drafts_on_accounts(list(connectors))
        )
        self._last_mark = mark  # not before: a check that fails is repeated although the store does not change
        # Drafts from before streaming was switched off are updated until their jobs end.
        self._has_drafts = bool(current)
        known = {addressed.draft.job_id for addressed in current}
        self._progress = {
            job_id: progress
            for job_id, progress in self._progress.items()
            if job_id in known or progress.is_request_open
        }
        due_again = [self._start_next_step(addressed, connectors) for addressed in current]
        self._is_due_again = any(due_again)

    def _start_next_step(self, addressed: AddressedDraft, connectors: Mapping[Place, Connector]) -> bool:
        """Start the next step of a draft; return whether to check the draft again soon, even without new text."""
        progress = self._progress.setdefault(addressed.draft.job_id, DraftProgress())
        if progress.is_request_open or (progress.over and not addressed.status.ended):
            return progress.is_request_open
        step = next_draft_step(addressed.draft, addressed.status, progress.revision, free=addressed.free)
        if step is DraftStep.NOTHING:
            # Another job's answer occupies the channel; the commit that ends it causes the next check of this draft.
            return False
        if time.monotonic() >= progress.due:
            connector = connectors[addressed.address.platform, addressed.address.account]
            progress.work = asyncio.create_task(self._run_step(step, addressed, progress, connector))
        return True

    async def _run_step(
        self, step: DraftStep, addressed: AddressedDraft, progress: DraftProgress, connector: Connector
    ) -> None:
        try:
            pause = await self._ask_platform(step, addressed, connector)
        # An error of streaming must not affect the answer.
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("draft.postponed", job=addressed.draft.job_id, error=type(error).__name__)
            pause = LONGEST_PAUSE
        interval = connector.capabilities.edit_interval
        if pause is None:
            progress.failures, progress.due = 0, time.monotonic() + interval
            if step is DraftStep.EDIT:
                progress.revision = addressed.draft.revision
        else:
            progress.failures += 1
            backoff = min(max(interval, LOOK_SECONDS) * 2**progress.failures, LONGEST_PAUSE)
            progress.due = time.monotonic() + max(pause, backoff)

    async def _ask_platform(self, step: DraftStep, addressed: AddressedDraft, connector: Connector) -> float | None:
        """Perform a draft's step on the platform; return None when done, or the seconds to wait before a retry."""
        job_id = addressed.draft.job_id
        match step:
            case DraftStep.PLACE:
                return await self._drafting.send_placeholder(
                    job_id, connector, may_send=addressed.draft.state is DraftState.WRITTEN
                )
            case DraftStep.EDIT:
                return await self._drafting.edit(addressed, connector)
            case DraftStep.END:
                return await self._drafting.edit_final_note(addressed, connector)
        await self._drafting.delete_row(job_id)
        return None

    def _record_offers(self, offers: Mapping[Place, float]) -> None:
        """Store the edit intervals of the accounts that can stream, for the processes that call models."""
        with self._store.view() as tx:
            recorded = {account: tx.deliveries.drafts.read_edit_interval(account) for account in offers}
        if offers != recorded:
            with self._store.begin() as tx:
                for account, seconds in offers.items():
                    tx.deliveries.drafts.set_edit_interval(account, seconds)
        self._offers = dict(offers)

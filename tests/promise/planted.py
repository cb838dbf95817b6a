"""Five bugs, each of which breaks the promise in some history, and results that no correct history has.

The model has to find each bug, and each check of the specification has to refuse one of the results.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from activities.delivery import DeliveryActivities, PreparedDelivery
from maestro.domain.jobs.flow import DeliverOutcome, DeliverStep
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallKey, LLMRequest
from maestro.domain.messages import AcceptedMessage, IncomingMessage
from maestro.domain.precedence import build_precedence
from maestro.intake.messages import Intake
from maestro.llm.middleware.recorder import RecordedRequest, Recorder
from maestro.store.engine.statements import write_json_list
from maestro.store.jobs.claims import CLAIM_LAPSES, ClaimedJob, Claims
from maestro.store.jobs.steps import StepHistory, StepRecords
from maestro.store.llm.calls import Calls
from maestro.store.transaction import Transaction
from temporal.dispatcher import Dispatcher
from tests.promise.world import World


def commit_after_acknowledgement() -> AbstractContextManager[object]:
    """A message is acknowledged while its transaction is yet to come."""
    accept = Intake.accept_message

    def accept_soon(intake: Intake, message: IncomingMessage) -> AcceptedMessage:
        asyncio.get_running_loop().call_soon(accept, intake, message)
        return AcceptedMessage(message_id=message.id, job_id="", duplicate=False)

    return mock.patch.object(Intake, "accept_message", accept_soon)


def free_lane_before_receipt() -> AbstractContextManager[object]:
    """A job leaves its lanes when its answer is about to be sent."""
    send = DeliveryActivities.send_chunks

    async def free_and_send(steps: DeliveryActivities, step: DeliverStep, prepared: PreparedDelivery) -> DeliverOutcome:
        def free_lanes(tx: Transaction) -> None:
            tx.deliveries.release_lanes(step.job_id)
            tx.jobs.update_job(step.job_id, lane=None)

        await asyncio.to_thread(steps.store.write, free_lanes)
        return await send(steps, step, prepared)

    return mock.patch.object(DeliveryActivities, "send_chunks", free_and_send)


def ask_despite_answer() -> AbstractContextManager[object]:
    """The transaction that commits a request does not look for an answer (docs/proof.md: what it found)."""
    send = Calls.record_sending

    def send_anyway(calls: Calls, key: CallKey, *request: Any) -> int:
        last = calls._read_last_attempt(key)
        if last is not None and last.state is CallState.ANSWERED:
            calls._cached_values()["_read_last_attempt", (key,)] = last._replace(state=CallState.FAILED)
        return send(calls, key, *request)

    return mock.patch.object(Calls, "record_sending", send_anyway)


@contextmanager
def go_on_although_overtaken() -> Iterator[None]:
    """An attempt goes on although Temporal has given its step to another process."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(StepRecords, "require_newest"))
        for table in (StepRecords, StepHistory):
            patches.enter_context(mock.patch.object(table, "is_overtaken", property(lambda _: False)))
        yield


@contextmanager
def believe_stale_attempt() -> Iterator[None]:
    """An attempt goes on although it is overtaken, and does not look whether its call is answered.

    Either guard alone is enough when a single attempt stalls (``GUARDS``), so both are missing here.
    """
    with ask_despite_answer(), go_on_although_overtaken():
        yield


def move_cursor_before_answer() -> AbstractContextManager[object]:
    """Posts count as read when the request that has them is about to be sent."""
    write = Recorder._write_request

    def write_and_move(recorder: Recorder, request: LLMRequest) -> RecordedRequest:
        with recorder.store.begin(job=request.key.job_id) as tx:
            recorded = write(recorder, request)
            tx.chat.mark_read(request.agent, request.chat_upto)
            return recorded

    return mock.patch.object(Recorder, "_write_request", write_and_move)


def claim_without_lock() -> AbstractContextManager[object]:
    """A dispatcher chooses jobs in one transaction and claims them in another one, without a second look."""

    def claim_chosen(dispatcher: Dispatcher) -> Sequence[ClaimedJob]:
        with dispatcher._store.view() as tx:
            chosen = tx.jobs.list_claimable_jobs(50, tx.now - CLAIM_LAPSES)
        with dispatcher._store.begin(claims=True) as tx:
            ids = write_json_list(candidate.id for candidate in chosen)
            rows = tx.jobs._run_returning(Claims._CLAIM, ids=ids, now=tx.now, owner=dispatcher.owner)
            jobs = [tx.jobs.read(row[0]) for row in rows]
        return [ClaimedJob(job, build_precedence(job.priority, None, None, job.address)) for job in jobs]

    return mock.patch.object(Dispatcher, "_claim_jobs", claim_chosen)


GUARDS = (ask_despite_answer, go_on_although_overtaken)
"""The absence of each of the two guards against a stale attempt."""

PLANTED: Mapping[str, tuple[Callable[[], AbstractContextManager[object]], str]] = {
    "a commit moved after the acknowledgement": (commit_after_acknowledgement, r"has the jobs \[\]"),
    "a lane freed before its receipt": (free_lane_before_receipt, "came in the order"),
    "a stale attempt believed": (believe_stale_attempt, "is held, and is asked for once more"),
    "a cursor moved before the answer": (move_cursor_before_answer, "no answered request had the post"),
    "a claim without its lock": (claim_without_lock, "two dispatchers at once"),
}
"""Each bug, and what the model says of it."""

Change = Callable[[str], object]
_CALL = (
    "job_id, purpose, number, request, content, provider, model, account, input_tokens, output_tokens, finish_reason, "
    "error, started_at"
)


def _sql(statement: str) -> Callable[[World, Change], object]:
    return lambda _, change: change(statement)


FALSIFIED: Mapping[str, Callable[[World, Change], object]] = {
    r"in-2 has the jobs \[\]": _sql("UPDATE inbox SET message_id = 'unknown' WHERE message_id = 'in-2'"),
    "in-1 is failed": _sql("UPDATE queue SET status = 'failed' WHERE id = 'job-1'"),
    "is none that the model gave": _sql("UPDATE deliveries SET content = 'another answer' WHERE job_id = 'job-2'"),
    "is sent and not there": lambda world, _: world.platform.posts.pop(),
    "is there 2 times": lambda world, _: world.platform.posts.append(world.platform.posts[-1]),
    "can be settled and is unconfirmed": _sql("UPDATE deliveries SET state = 'unconfirmed' WHERE job_id = 'job-1'"),
    "came in the order": lambda world, _: world.platform.posts.reverse(),
    r"came in the order \[\(2, 0\), \(2, 1\)": _sql(
        "UPDATE inbox SET message_id = 'other' WHERE message_id = 'in-1'; "
        "UPDATE inbox SET message_id = 'in-1' WHERE message_id = 'in-2'; "
        "UPDATE inbox SET message_id = 'in-2' WHERE message_id = 'other'"
    ),
    "2 requests of job-1 were sent, 1 recorded": lambda world, _: world.provider.requests.update(
        [*world.provider.requests]
    ),
    "1 calls of job-1 have no answer, and 0 faults": _sql(
        f"INSERT INTO llm_calls (attempt, state, {_CALL}) "
        f"SELECT 2, 'interrupted', {_CALL} FROM llm_calls WHERE job_id = 'job-1'"
    ),
    "open or done twice": _sql("UPDATE job_steps SET state = 'running' WHERE job_id = 'job-1'"),
    "left outbound_lanes": _sql("INSERT INTO outbound_lanes VALUES ('lane', 'job-1', '2026-01-01T00:00:00.000000')"),
    "left reservations": _sql("INSERT INTO reservations VALUES ('job-1', 'answer', 1, '2026-01-01', 1.0, '')"),
    "a call is open": _sql(
        f"INSERT INTO llm_calls (attempt, state, {_CALL}) "
        f"SELECT 2, 'sent', {_CALL} FROM llm_calls WHERE job_id = 'job-1'"
    ),
    "no answered request had the post": _sql("UPDATE llm_calls SET chat_after = 0, chat_upto = 0"),
}
"""What a check says of a result, and what makes such a result of a correct one."""

FALSIFIED_WITHOUT_KEYS: Mapping[str, Callable[[World, Change], object]] = {
    "is unconfirmed, and each of its sends had an outcome": FALSIFIED["can be settled and is unconfirmed"],
    "has 1 repeats, and 0 sends had no outcome": _sql("UPDATE deliveries SET repeats = 1 WHERE job_id = 'job-1'"),
}
"""The same for a platform that can neither recognise nor find a message."""

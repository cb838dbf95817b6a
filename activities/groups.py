"""Steps of a message that are done together: those up to its prompt, and those of its answer (docs/adr/0036)."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from temporalio import activity

from activities.context import ContextActivities
from activities.conversations import ConversationActivities, TagActivities
from activities.delivery import DeliveryActivities, PreparedDelivery
from activities.llm import LLMActivities
from activities.routing import RoutingActivities
from maestro.domain.deliveries import Purpose
from maestro.domain.jobs.flow import (
    AnswerOutcome,
    AnswerStep,
    Asking,
    AskingOutcome,
    DeliverOutcome,
    DeliverStep,
    ModelOutcome,
    ModelStep,
    Preparation,
    PreparationOutcome,
)
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.middleware.replay import RequestTransaction
from maestro.store.jobs.steps import OwnAttempt, StepAttempts, acting_for
from maestro.store.transaction import Transaction

Result = TypeVar("Result")

MODEL_STEP = "model-1"


class GroupJournal(Protocol):
    """Journals the steps of an activity that does several."""

    def together(self, job_id: str, work: Callable[[], Result]) -> Result:
        """Return what the work returns, which runs steps that only write to the store, in one transaction."""
        ...

    def run(self, function: Callable[[Any], Any], ref: StepRef) -> Any:
        """Return what a step that only writes to the store returns, or what it returned when it finished."""
        ...

    def begin_ahead(self, ref: StepRef, name: str) -> None:
        """Put a step that acts outside on record for the first attempt of the activity that comes next."""
        ...

    def attempt(
        self, ref: StepRef, name: str, begin: OwnAttempt | Callable[[], str | OwnAttempt]
    ) -> AbstractAsyncContextManager[str | None]:
        """Have the block count as an attempt at a step that acts outside; it gets the result of a finished one."""
        ...

    def begin(self, ref: StepRef, name: str, *, recorded: bool = True) -> str | OwnAttempt:
        """Return what the finished step returned, or the attempt that begins now."""
        ...

    def adopt(self, tx: Transaction, ref: StepRef) -> OwnAttempt | None:
        """Return the attempt that the step before put on record for this one, None where it did not."""
        ...


class PreparationActivities:
    """Routes a message, records it and builds its prompt."""

    def __init__(
        self,
        journal: GroupJournal,
        routing: RoutingActivities,
        conversations: ConversationActivities,
        context: ContextActivities,
    ) -> None:
        self._journal = journal
        self._steps: dict[str, Callable[[StepRef], Any]] = {
            "route": routing.choose_agent,
            "conversation": conversations.record_message,
            "context": context.build_context,
        }

    @activity.defn(no_thread_cancel_exception=True)
    def prepare(self, start: Preparation) -> PreparationOutcome:
        """Do the steps from one on, until one says that something else comes before the next."""
        return self._journal.together(start.job_id, partial(self._prepared, start))

    def _prepared(self, start: Preparation) -> PreparationOutcome:
        done: dict[str, Any] = {}
        took = []
        for name in list(self._steps)[list(self._steps).index(start.step) :]:
            began = time.monotonic()
            done[name] = self._journal.run(self._steps[name], StepRef(job_id=start.job_id, step=name))
            took.append(round((time.monotonic() - began) * 1000))
            if name != "context" and not done[name].goes_on:
                return PreparationOutcome(**done, milliseconds=tuple(took))
        if start.asks:
            self._journal.begin_ahead(StepRef(job_id=start.job_id, step=MODEL_STEP), "call_model")
        return PreparationOutcome(**done, milliseconds=tuple(took))


@dataclass(frozen=True)
class AnswerSteps:
    """The steps that an answer takes, and what journals them."""

    journal: GroupJournal
    llm: LLMActivities
    tags: TagActivities
    delivery: DeliveryActivities


class AnsweringActivities:
    """Asks the model; a final answer is recorded and sent at once where nothing else comes before."""

    def __init__(self, steps: AnswerSteps) -> None:
        self._steps = steps

    @activity.defn
    async def answer(self, step: Asking) -> AskingOutcome:
        """Return what the call took, and how its answer was recorded and sent as far as that is done.

        The answer, what it asks for and its chunks are kept in one transaction. What has to wait, takes long or is done
        by another process is left to a step of its own, and so is all that follows an answer that was held already.
        """
        await self._steps.llm.ready()
        return await _Call(self._steps, step).answered()


class _Call:
    """One attempt at a model call, and what is done in the transaction that keeps its answer."""

    def __init__(self, steps: AnswerSteps, step: Asking) -> None:
        self._steps = steps
        self._model = ModelStep(**step.model_dump())
        self._send = DeliverStep(job_id=step.job_id, step="deliver", purpose=Purpose.ANSWER, closes=True)
        self._request: LLMRequest | None = None
        self._job: Job | None = None
        self._attempts: StepAttempts = {}
        self._outcome: ModelOutcome | None = None
        self._recorded: AnswerOutcome | None = None
        self._prepared: tuple[OwnAttempt, PreparedDelivery] | None = None

    async def answered(self) -> AskingOutcome:
        """Ask, and send what is ready to be sent."""
        moments = [time.monotonic()]
        async with self._steps.journal.attempt(self._model, "call_model", self._begin) as held:
            outcome = ModelOutcome.model_validate_json(held) if held is not None else await self._asked()
        moments.append(time.monotonic())
        if self._recorded is not None:  # kept with the answer
            moments.append(moments[-1])
        delivered = await self._delivered(*self._prepared) if self._prepared is not None else None
        if delivered is not None:
            moments.append(time.monotonic())
        took = [round((to - since) * 1000) for since, to in pairwise(moments)]
        return AskingOutcome(model=outcome, recorded=self._recorded, delivered=delivered, milliseconds=tuple(took))

    def _begin(self) -> str | OwnAttempt:
        """Begin the attempt, and read what is asked in the same transaction where there is nothing to write."""
        steps = self._steps
        with steps.llm.view() as view:
            view.tx.jobs.callers.load(
                self._model.job_id
            )  # the journal reads the row of the job, and the request all else
            own = steps.journal.adopt(view.tx, self._model)
            if own is not None:
                self._read(view, own)
                return own
        begun = steps.journal.begin(self._model, "call_model")
        if isinstance(begun, OwnAttempt):
            with steps.llm.view() as view:
                self._read(view, begun)
        return begun

    def _read(self, view: RequestTransaction, own: OwnAttempt) -> None:
        """Read what is asked; only the answer to a first attempt is acted on in the transaction that keeps it.

        What follows from an answer may be what the process died of: it must not take the next answer with it as well.
        """
        request = self._steps.llm.request(view, self._model)
        self._job = view.tx.jobs.read(self._model.job_id)
        if own.number == 1:
            self._attempts = view.tx.jobs.steps.attempts(self._model.job_id)
            request = request.model_copy(update={"on_answer": self._keep})
        self._request = request

    async def _asked(self) -> ModelOutcome:
        assert self._request is not None
        response = await self._steps.llm.complete(self._request)
        if self._outcome is None:  # it was held, or what should have been kept with it could not be
            self._outcome = await asyncio.to_thread(self._steps.llm.finished, self._model, self._request, response)
        return self._outcome

    def _keep(self, tx: Transaction, response: LLMResponse) -> None:
        """Do what follows from an answer in the transaction that keeps it; called anew when that is tried again.

        What it did counts once that is committed: a chunk of a transaction that was taken back must not be sent.
        """
        steps, request, job = self._steps, self._request, self._job
        assert request is not None
        assert job is not None
        recorded = prepared = None
        tx.jobs.assume(job)  # a stop or an end since it was read is noticed where the answer is noted in its row
        tx.jobs.steps.assume(job.id, self._attempts)  # and another attempt where this one ends
        outcome = steps.llm.finish(tx, self._model, request, response)
        if not outcome.tools and not steps.tags.takes_long(response.content):
            tags = AnswerStep(job_id=self._model.job_id, step="tags", number=self._model.number)
            recorded = steps.journal.run(steps.tags.record_answer, tags)
            if not (recorded.heard or recorded.silent or request.shown_every):
                prepared = self._prepare(tx)
        tx.when_committed(partial(self._kept, outcome, recorded, prepared))

    def _kept(
        self,
        outcome: ModelOutcome,
        recorded: AnswerOutcome | None,
        prepared: tuple[OwnAttempt, PreparedDelivery] | None,
    ) -> None:
        self._outcome, self._recorded, self._prepared = outcome, recorded, prepared

    def _prepare(self, tx: Transaction) -> tuple[OwnAttempt, PreparedDelivery] | None:
        """Cut the answer into chunks and mark the first as being sent, where this process may send at once."""
        steps = self._steps
        begun = steps.journal.begin(self._send, "deliver", recorded=False)
        if isinstance(begun, str):
            return None
        with acting_for(begun):
            prepared = steps.delivery.prepare_at_once(tx, self._send)
        if prepared is None:
            return None
        return tx.jobs.steps.record(begun), prepared

    async def _delivered(self, begun: OwnAttempt, prepared: PreparedDelivery) -> DeliverOutcome:
        steps = self._steps
        async with steps.journal.attempt(self._send, "deliver", begun):
            return await steps.delivery.send(self._send, prepared)
        raise AssertionError("an attempt returns or raises")

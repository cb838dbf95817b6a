"""Model calls: alone, or together with recording and sending the answer (docs/adr/0036-steps-run-in-groups.md)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from temporalio import activity

from activities.context import ModelRules
from activities.conversations import GroupJournal, TagActivities
from activities.delivery import DeliveryActivities, PreparedDelivery
from connectors.hub import TypingIndicators
from maestro.domain.context.history import ToolResult, build_round, build_tool_turns, limit_calls
from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.flow import (
    AnswerOutcome,
    AnswerStep,
    AskGroup,
    AskGroupOutcome,
    DeliverStep,
    ModelOutcome,
    ModelStep,
)
from maestro.domain.jobs.job import Job, first_model, is_streamed
from maestro.domain.jobs.steps import StepKind
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate_messages, estimate_tools
from maestro.domain.llm.prompts import (
    PROMPT_TURNS,
    TOOL_CALLS,
    CallKey,
    LLMRequest,
    LLMResponse,
    PromptMessage,
    StoredRequest,
)
from maestro.llm.accounts import MARGIN
from maestro.llm.middleware.replay import ReplayGuard, RequestTransaction
from maestro.store.jobs.related import ModelCaller
from maestro.store.jobs.steps import OwnAttempt, StepAttempts, use_attempt
from maestro.store.store import Store
from maestro.store.transaction import Transaction

UNKNOWN_TOOL = "unknown"
"""The name that workflow histories show for a tool that does not exist, instead of the text that the model wrote."""


@dataclass(frozen=True)
class LLMActivities:
    """Calls the model through the middleware chain."""

    store: Store
    chain: ReplayGuard
    typing: TypingIndicators
    rules: Callable[[], ModelRules]

    @activity.defn
    async def call_model(self, step: ModelStep) -> ModelOutcome:
        """Call the model and return the call's usage; the answer is in the store when this method returns.

        Routing normally starts the typing indicator. After a restart of the process or a resume of the job, this call
        starts it.

        See docs/invariants.md: no answer bought twice.
        """
        await self.wait_for_tools()
        request = await asyncio.to_thread(self._build_request, step)
        response = await self.chain.complete(request)
        return await asyncio.to_thread(self.store.write, lambda tx: self.store_answer(tx, step, request, response))

    async def wait_for_tools(self) -> None:
        """Wait until the list of tools is known; return after a few seconds in any case."""
        await self.rules().toolbox.wait_until_settled()

    def build_request(self, view: RequestTransaction, step: ModelStep) -> LLMRequest:
        """Return the request of a call, and start the typing indicator if it is not on yet."""
        tx = view.tx
        caller = tx.jobs.callers.read_caller(step.job_id)
        job, agent = caller.job, caller.agent
        if not job.what_if:
            self.typing.start_indicator(job.id, job.address)
        request = LLMRequest(
            key=CallKey(job_id=step.job_id, number=step.number),
            platform=job.platform,
            model=first_model(job, agent.model),
            fallbacks=tuple(agent.fallbacks.split()),
            messages=self._build_messages(tx, caller, step),
            tools=self.rules().toolbox.list_tools(agent),
            final=step.final,
            max_output_tokens=self.rules().max_output_tokens,
            conversation_id=0 if job.what_if else job.conversation_id or 0,
            precedence=caller.precedence,
            agent=agent.slug,
            role=agent.role,
            what_if=job.what_if,
            shown_every=caller.edit_interval if is_streamed(job) and not self.rules().scans_answers else 0,
        )
        return view.add_snapshot(request)

    def store_answer(
        self, tx: Transaction, step: ModelStep, request: LLMRequest, response: LLMResponse
    ) -> ModelOutcome:
        """Store the usage of a call and its tool calls as the result of the step."""
        known = {spec.name for spec in request.tools}
        calls = () if step.final else limit_calls(response.tool_calls)
        tools = tuple(call.name if call.name in known else UNKNOWN_TOOL for call in calls)
        usage = response.model_dump(include=set(ModelOutcome.model_fields) - {"number", "tools"})
        return tx.jobs.steps.finish_step(step, ModelOutcome(number=step.number, tools=tools, **usage))

    def _build_request(self, step: ModelStep) -> LLMRequest:
        with self.chain.open_view() as view:
            return self.build_request(view, step)

    def _build_messages(self, tx: Transaction, caller: ModelCaller, step: ModelStep) -> tuple[PromptMessage, ...]:
        """Return the job's prompt, and as many of its tool rounds as the context window has room for."""
        prompt = tx.llm.prompts.restore_messages(PROMPT_TURNS.validate_json(caller.turns))
        if step.number == 1:
            return prompt
        window = self.rules().window(
            first_model(caller.job, caller.agent.model) or tx.llm.accounts.find_default_model()
        )
        tools = estimate_tools(self.rules().toolbox.list_tools(caller.agent))
        room = window - estimate_messages(prompt) - tools - self.rules().max_output_tokens - MARGIN
        runs, pictures = (
            tx.jobs.tool_runs.list_tool_runs_of_job(step.job_id),
            tx.jobs.tool_runs.list_images(step.job_id),
        )
        rounds = []
        for number in range(1, step.number):
            call = tx.llm.calls.get_answer(CallKey(job_id=step.job_id, number=number))
            results = [
                ToolResult(tx.llm.prompts.read_text(run.result), pictures.get((number, run.place), ()))
                for run in runs
                if run.number == number
            ]
            calls = TOOL_CALLS.validate_json(call.tool_calls)
            rounds.append(build_round(call.content, calls, results, build_chat_turn(tx, call)))
        return (*prompt, *build_tool_turns(rounds, room))


def build_chat_turn(tx: Transaction, call: LLMCall) -> str:
    """Return the posts of #maestro (the agents' chat) that ended a call's request, verbatim; empty without posts."""
    if call.chat_upto == call.chat_after:
        return ""
    *_, last = StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request)).turns
    return tx.llm.prompts.read_text(last.digest) if last.chat else ""


@dataclass(frozen=True)
class AnsweringActivities:
    """Calls the model; a final answer is recorded and sent by the same activity if no other step comes first."""

    journal: GroupJournal
    llm: LLMActivities
    tags: TagActivities
    delivery: DeliveryActivities

    @activity.defn
    async def answer(self, step: AskGroup) -> AskGroupOutcome:
        """Call the model, record and send its answer if possible, and return the results of the steps done.

        The answer, the effects of its tags and its chunks are committed in one transaction. A step that has to wait,
        takes long or belongs to another process gets an activity of its own. If an earlier attempt stored the answer,
        so do all steps after the call.
        """
        await self.llm.wait_for_tools()
        return await _AnswerAttempt(self, step).run_attempt()


@dataclass(frozen=True)
class _CommittedAnswer:
    """A committed answer: the usage of the call, the record of the answer, and the delivery that has begun."""

    outcome: ModelOutcome
    recorded: AnswerOutcome | None = None
    sending: tuple[OwnAttempt, PreparedDelivery] | None = None


class _AnswerAttempt:
    """One attempt at a model call, with the work in the transaction that commits its answer."""

    def __init__(self, steps: AnsweringActivities, step: AskGroup) -> None:
        self._steps = steps
        self._model = step
        self._send = DeliverStep(job_id=step.job_id, step=StepKind.DELIVER, purpose=DeliveryPurpose.ANSWER, closes=True)
        self._request: LLMRequest | None = None
        self._job: Job | None = None
        self._attempts: StepAttempts = {}
        self._answer: _CommittedAnswer | None = None

    async def run_attempt(self) -> AskGroupOutcome:
        """Call the model, commit the answer, and send the chunks that are ready."""
        moments = [time.monotonic()]
        async with self._steps.journal.journal_attempt(self._model, "call_model", self._begin_attempt) as stored:
            if stored is None:
                answer = await self._call_model()
            else:
                answer = _CommittedAnswer(ModelOutcome.model_validate_json(stored))
        # The transaction that stored the answer also recorded it, so both steps ended at this moment.
        moments += [time.monotonic()] * (1 if answer.recorded is None else 2)
        delivered = None
        if answer.sending is not None:
            attempt, prepared = answer.sending
            async with self._steps.journal.journal_attempt(self._send, DeliveryActivities.deliver.__name__, attempt):
                delivered = await self._steps.delivery.send_chunks(self._send, prepared)
            moments.append(time.monotonic())
        milliseconds = tuple(round((to - since) * 1000) for since, to in pairwise(moments))
        return AskGroupOutcome(
            model=answer.outcome, recorded=answer.recorded, delivered=delivered, milliseconds=milliseconds
        )

    def _begin_attempt(self) -> str | OwnAttempt:
        """Begin the attempt and build its request, in one read transaction if the attempt is recorded already."""
        steps = self._steps
        with steps.llm.chain.open_view() as view:
            # One query reads the job's row for the journal and the related rows for the request.
            view.tx.jobs.callers.load_columns(self._model.job_id)
            attempt = steps.journal.adopt_recorded_attempt(view.tx, self._model)
            if attempt is not None:
                self._build_request(view, attempt)
                return attempt
        begun = steps.journal.begin_attempt(self._model, "call_model")
        if isinstance(begun, OwnAttempt):
            with steps.llm.chain.open_view() as view:
                self._build_request(view, begun)
        return begun

    def _build_request(self, view: RequestTransaction, attempt: OwnAttempt) -> None:
        """Build the request; a first attempt also does the steps after the answer in the answer's transaction.

        On a further attempt, these steps get activities of their own, because they may have ended the process before.
        """
        request = self._steps.llm.build_request(view, self._model)
        self._job = view.tx.jobs.read(self._model.job_id)
        if attempt.number == 1:
            self._attempts = view.tx.jobs.steps.read_attempts(self._model.job_id)
            request = request.model_copy(update={"on_answer": self._process_answer})
        self._request = request

    async def _call_model(self) -> _CommittedAnswer:
        request, llm = self._request, self._steps.llm
        assert request is not None
        response = await llm.chain.complete(request)
        # ``_process_answer`` did not run (further attempt, or stored answer), or its transaction was rolled back.
        if self._answer is None:
            outcome = await asyncio.to_thread(
                llm.store.write, lambda tx: llm.store_answer(tx, self._model, request, response)
            )
            self._answer = _CommittedAnswer(outcome)
        return self._answer

    def _process_answer(self, tx: Transaction, response: LLMResponse) -> None:
        """Do the steps after an answer in the transaction that commits the answer; a retry of the commit repeats them.

        The results are used only after the commit: a chunk of a transaction that was rolled back must not be sent.
        """
        steps, request, job = self._steps, self._request, self._job
        assert request is not None
        assert job is not None
        recorded = sending = None
        tx.jobs.cache_value(job)  # The later update of the job's row notices a stop request.
        tx.jobs.steps.cache_attempts(job.id, self._attempts)  # Writing the end of this attempt notices a newer attempt.
        outcome = steps.llm.store_answer(tx, self._model, request, response)
        if not outcome.tools and not steps.tags.needs_secret_scan(response.content):
            tags = AnswerStep(job_id=self._model.job_id, step=StepKind.TAGS, number=self._model.number)
            recorded = steps.journal.run_store_step(steps.tags.record_answer, tags)
            if not (recorded.heard or recorded.silent or request.shown_every):
                sending = self._prepare_delivery(tx)
        tx.call_after_commit(partial(setattr, self, "_answer", _CommittedAnswer(outcome, recorded, sending)))

    def _prepare_delivery(self, tx: Transaction) -> tuple[OwnAttempt, PreparedDelivery] | None:
        """Cut the answer into chunks and mark the first chunk as being sent, if this process may send immediately."""
        begun = self._steps.journal.begin_attempt(self._send, DeliveryActivities.deliver.__name__, recorded=False)
        if isinstance(begun, str):
            return None
        with use_attempt(begun):
            prepared = self._steps.delivery.prepare_at_once(tx, self._send)
        return (tx.jobs.steps.record_attempt(begun), prepared) if prepared is not None else None

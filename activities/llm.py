"""One model call, the rounds of tool calls before it included."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.routing import Typing
from maestro.domain.agents.agent import Agent
from maestro.domain.context.history import Round, ToolResult, made, round_of, turns
from maestro.domain.jobs.flow import ModelOutcome, ModelStep
from maestro.domain.jobs.job import grows, model_for
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate_messages, estimate_tools
from maestro.domain.llm.prompts import (
    PROMPT_TURNS,
    TOOL_CALLS,
    CallKey,
    KeptRequest,
    LLMRequest,
    LLMResponse,
    PromptMessage,
    ToolSpec,
)
from maestro.llm.accounts import MARGIN
from maestro.llm.middleware.replay import ReplayGuard, RequestTransaction
from maestro.store.jobs.related import ModelCaller
from maestro.store.store import Store
from maestro.store.transaction import Transaction

UNKNOWN_TOOL = "unknown"
"""What a history calls a tool that does not exist: its name is text that a model wrote."""


class OfferedTools(Protocol):
    """The tools there are."""

    async def settled(self) -> None:
        """Return when it is known what there is, or when that takes too long."""
        ...

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return what a model is told of the tools that an agent may call, by name."""
        ...


@dataclass(frozen=True)
class ModelRules:
    """What a call may ask for: the tokens of the longest answer, the tools, and a model's window in tokens.

    ``searched`` says that nobody may see an answer before it was searched for secrets as a whole.
    """

    max_output_tokens: int
    toolbox: OfferedTools
    window: Callable[[str], int]
    searched: bool = False


class LLMActivities:
    """Asks the model through the middleware chain."""

    def __init__(self, store: Store, llm: ReplayGuard, typing: Typing, rules: Callable[[], ModelRules]) -> None:
        self._store = store
        self._llm = llm
        self._typing = typing
        self._rules = rules

    @activity.defn
    async def call_model(self, step: ModelStep) -> ModelOutcome:
        """Return what the call took; its answer is in the store before this returns.

        The indicator is shown from routing on; after a restart of the process or a resume of the job, from here.

        See docs/invariants.md: no answer bought twice.
        """
        await self.ready()
        request = await asyncio.to_thread(self._requested, step)
        response = await self.complete(request)
        return await asyncio.to_thread(self.finished, step, request, response)

    async def ready(self) -> None:
        """Return when it is known which tools there are, or when that takes too long."""
        await self._rules().toolbox.settled()

    def view(self) -> AbstractContextManager[RequestTransaction]:
        """Open the view in which a request is built."""
        return self._llm.view()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Ask the model through the chain."""
        return await self._llm.complete(request)

    def request(self, view: RequestTransaction, step: ModelStep) -> LLMRequest:
        """Return what a call asks; the indicator is shown from here on if it is not yet."""
        tx = view.tx
        caller = tx.jobs.callers.read(step.job_id)
        job, agent = caller.job, caller.agent
        if not job.what_if:
            self._typing.start(job.id, job.address)
        request = LLMRequest(
            key=CallKey(job_id=step.job_id, number=step.number),
            platform=job.platform,
            model=model_for(job, agent.model),
            fallbacks=tuple(agent.fallbacks.split()),
            messages=self._messages(tx, caller, step),
            tools=self._rules().toolbox.specs(agent),
            final=step.final,
            max_output_tokens=self._rules().max_output_tokens,
            conversation_id=0 if job.what_if else job.conversation_id or 0,
            precedence=caller.precedence,
            agent=agent.slug,
            role=agent.role,
            what_if=job.what_if,
            shown_every=caller.edit_interval if grows(job) and not self._rules().searched else 0,
        )
        return view.with_snapshot(request)

    def finish(self, tx: Transaction, step: ModelStep, request: LLMRequest, response: LLMResponse) -> ModelOutcome:
        """Note what a call took and which tools it asks for."""
        known = {spec.name for spec in request.tools}
        wanted = () if step.final else made(response.tool_calls)
        tools = tuple(call.name if call.name in known else UNKNOWN_TOOL for call in wanted)
        took = response.model_dump(include=set(ModelOutcome.model_fields) - {"number", "tools"})
        return tx.jobs.steps.done(step, ModelOutcome(number=step.number, tools=tools, **took))

    def _requested(self, step: ModelStep) -> LLMRequest:
        with self.view() as view:
            return self.request(view, step)

    def finished(self, step: ModelStep, request: LLMRequest, response: LLMResponse) -> ModelOutcome:
        """Note the same in a transaction of its own."""
        with self._store.begin() as tx:
            return self.finish(tx, step, request, response)

    def _messages(self, tx: Transaction, caller: ModelCaller, step: ModelStep) -> tuple[PromptMessage, ...]:
        """Return the prompt of the job, and the rounds so far within what it leaves of the window."""
        prompt = tx.llm.prompts.unpack(PROMPT_TURNS.validate_json(caller.turns))
        if step.number == 1:
            return prompt
        window = self._rules().window(model_for(caller.job, caller.agent.model) or tx.llm.accounts.default_model())
        tools = estimate_tools(self._rules().toolbox.specs(caller.agent))
        room = window - estimate_messages(prompt) - tools - self._rules().max_output_tokens - MARGIN
        return (*prompt, *turns(_rounds(tx, step), room))


def _rounds(tx: Transaction, step: ModelStep) -> list[Round]:
    """Return what the model asked for in its earlier calls and what came of it."""
    runs, shown = tx.jobs.tool_runs.of(step.job_id), tx.jobs.tool_runs.pictures(step.job_id)
    found = []
    for number in range(1, step.number):
        call = tx.llm.calls.answer(CallKey(job_id=step.job_id, number=number))
        made_now = [run for run in runs if run.number == number]
        results = [ToolResult(tx.llm.prompts.text(run.result), shown.get((number, run.place), ())) for run in made_now]
        found.append(round_of(call.content, TOOL_CALLS.validate_json(call.tool_calls), results, _chat_turn(tx, call)))
    return found


def _chat_turn(tx: Transaction, call: LLMCall) -> str:
    """Return the posts of #maestro that a call was told of, to the letter: the last turn of what was sent."""
    if call.chat_upto == call.chat_after:
        return ""
    *_, last = KeptRequest.model_validate_json(tx.llm.prompts.text(call.request)).turns
    return tx.llm.prompts.text(last.digest) if last.chat else ""

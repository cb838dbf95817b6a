"""Runs the tool calls of a model; the effect of a call happens exactly once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from temporalio import activity

from activities.context import memory_scope_key
from activities.questions import AskingRules, ask_approval, ask_question, open_question_error
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.jobs.flow import ToolOutcome, ToolStep
from maestro.domain.jobs.job import Job
from maestro.domain.llm.prompts import TOOL_CALLS, CallKey, ImageRef, ToolCall
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus
from maestro.domain.redaction import LOOK_AHEAD, Redact, keep_text
from maestro.domain.texts import storable_text
from maestro.domain.tools import (
    FAILED_REPEATEDLY,
    NOT_MADE_IN_WHAT_IF,
    UNKNOWN_OUTCOME,
    ToolRun,
    ToolState,
    has_failed_repeatedly,
)
from maestro.llm.middleware.limits import StopMonitor
from maestro.store.store import Store, commit_persistently
from maestro.store.transaction import Transaction
from maestro.tools.base import AsyncTool, QuestionTool, StoreTool, ToolCaller
from maestro.tools.registry import (
    ParsedToolCall,
    ToolCallResult,
    ToolRegistry,
    ask_tool,
    parse_call,
    prepare_call,
    run_in_store,
    run_tool,
)

CUT_MARK = "\n[cut: the result was longer]"


@dataclass(frozen=True)
class ToolRules:
    """Settings of tool calls: ``seconds`` per call, most characters of a result, and the folder of all conversations.

    ``memory_scope`` applies to agents without a memory scope of their own; ``redact`` removes secrets from results.
    ``keep`` stores the bytes of a picture in the media folder and returns their digest.
    """

    keep: Callable[[bytes], str]
    seconds: float
    max_result_chars: int
    folder: Path
    asking: AskingRules
    memory_scope: MemoryScope
    redact: Redact = keep_text


@dataclass(frozen=True)
class BegunToolCall:
    """A tool call before it runs; with a ``result`` it does not run, with a ``question`` it waits for a user."""

    caller: ToolCaller
    parsed: ParsedToolCall | None = None
    result: ToolCallResult | None = None
    question: Question | None = None


@dataclass(frozen=True)
class ToolActivities:
    """Runs the tool calls of a model; ``on_question`` is called when a question is ready to be sent."""

    store: Store
    registry: ToolRegistry
    rules: Callable[[], ToolRules]
    watch: StopMonitor
    on_question: Callable[[], None]

    @activity.defn
    async def call_tool(self, step: ToolStep) -> ToolOutcome:
        """Run a tool call, or refuse it with a reason; the result is in the store when this method returns.

        A call during which the process died is repeated only if its tool declares repeating safe. Raises
        ``WaitsForPerson`` while the question of the call is open.
        """
        await self.registry.wait_until_settled()
        parsed = await asyncio.to_thread(self._parse_arguments, step)
        begun = await asyncio.to_thread(self._begin_call, step, parsed)
        if begun.question is not None:
            self.on_question()
            raise open_question_error(begun.question)
        result, call = begun.result, begun.parsed
        if call is not None and isinstance(call.tool, AsyncTool):
            running = run_tool(call.tool, call.arguments, begun.caller, self.rules().seconds)
            result = await self.watch.run_until_stopped(step.job_id, running)
        return await commit_persistently(self.store, partial(self._store_result, step, begun, result))

    def _parse_arguments(self, step: ToolStep) -> ParsedToolCall | ToolCallResult:
        """Parse the model's arguments outside of a transaction, because checking them may take long."""
        with self.store.view() as tx:
            call, agent = _read_call(tx, step), tx.agents.get(tx.jobs.get(step.job_id).agent_id)
        return parse_call(self.registry, call, agent)

    def _begin_call(self, step: ToolStep, parsed: ParsedToolCall | ToolCallResult) -> BegunToolCall:
        with self.store.begin() as tx:
            job, call = tx.jobs.get(step.job_id), _read_call(tx, step)
            runs = tx.jobs.tool_runs.list_tool_runs_of_job(job.id)
            row = next((run for run in runs if (run.number, run.place) == (step.number, step.place)), None)
            row = row or ToolRun(
                job_id=job.id,
                number=step.number,
                place=step.place,
                tool=call.name,
                arguments=tx.llm.prompts.store_text(call.arguments),
                state=ToolState.WAITING,
                started_at=tx.now,
            )
            worn = has_failed_repeatedly([run for run in runs if run.number < step.number], row)
            if isinstance(parsed, ToolCallResult):
                begun = BegunToolCall(self._build_caller(tx, job, step), result=parsed)
            elif refusal := self._find_refusal(job, parsed, row, limit_reached=worn):
                begun = BegunToolCall(self._build_caller(tx, job, step), result=refusal)
            else:
                begun = self._ask_person(tx, job, step, call, parsed)
            runs_now = begun.result is None and begun.question is None
            tx.jobs.tool_runs.begin_tool_run(row) if runs_now else tx.jobs.tool_runs.save_tool_run(row)
            return begun

    def _find_refusal(
        self, job: Job, parsed: ParsedToolCall, row: ToolRun, *, limit_reached: bool
    ) -> ToolCallResult | None:
        """Return why a call must not run, None if it may; ``limit_reached`` says that the call has failed too often."""
        tool, needs_approval = parsed.tool, row.tool in self.rules().asking.approval
        if limit_reached or (job.what_if and (needs_approval or not tool.read_only)):
            return ToolCallResult(FAILED_REPEATEDLY if limit_reached else NOT_MADE_IN_WHAT_IF, ToolState.REFUSED)
        if row.state is ToolState.STARTED and isinstance(tool, AsyncTool) and not tool.idempotent:
            return ToolCallResult(UNKNOWN_OUTCOME, ToolState.UNKNOWN)  # The process died during this tool call.
        return None

    def _ask_person(
        self, tx: Transaction, job: Job, step: ToolStep, call: ToolCall, parsed: ParsedToolCall
    ) -> BegunToolCall:
        """Ask a user if the tool asks a question or needs approval; return the call with its question or result."""
        tool, rules, caller = parsed.tool, self.rules().asking, self._build_caller(tx, job, step)
        if isinstance(tool, QuestionTool):
            draft = ask_tool(tool, parsed.arguments)
            if isinstance(draft, ToolCallResult):
                return BegunToolCall(caller, result=draft)
            return _apply_question(caller, ask_question(tx, job, step, draft, rules))
        if call.name in rules.approval:
            question = ask_approval(tx, job, step, call, rules)
            if question.status is not QuestionStatus.ANSWERED:
                return _apply_question(caller, question)
        return BegunToolCall(caller, parsed)

    def _build_caller(self, tx: Transaction, job: Job, step: ToolStep) -> ToolCaller:
        conversation_id, rules = job.conversation_id or 0, self.rules()
        return ToolCaller(
            job_id=job.id,
            agent_id=job.agent_id or 0,
            conversation_id=conversation_id,
            folder=rules.folder / (str(conversation_id) if conversation_id else job.id),
            place=memory_scope_key(tx, job, tx.agents.get(job.agent_id), rules.memory_scope),
            turn=(step.number, step.place),
        )

    def _store_result(self, step: ToolStep, begun: BegunToolCall, result: ToolCallResult | None) -> ToolOutcome:
        """Store the result of the call, in one transaction with a tool's changes of the store.

        Results are scanned for secrets before that transaction. Texts that a tool reads from the store were scanned
        when they were stored.
        """
        rules, images = self.rules(), []
        limit = rules.max_result_chars
        if result is not None:
            ready: ParsedToolCall | ToolCallResult = replace(
                result, text=rules.redact(result.text[: limit + LOOK_AHEAD])
            )
            images = [ImageRef(digest=rules.keep(p.content), content_type=p.content_type) for p in result.pictures]
        else:
            assert begun.parsed is not None
            ready = prepare_call(begun.parsed, begun.caller)
        with self.store.begin() as tx:
            if isinstance(ready, ParsedToolCall):
                assert isinstance(ready.tool, StoreTool)
                ready = run_in_store(ready.tool, tx, ready.arguments, begun.caller)
            row = tx.jobs.tool_runs.get_tool_run(step.job_id, step.number, step.place)
            text = ready.text if len(ready.text) <= limit else ready.text[: limit - len(CUT_MARK)] + CUT_MARK
            row.state, row.result = ready.state, tx.llm.prompts.store_text(storable_text(text))
            row.error = row.result if ready.state is ToolState.FAILED else ""
            tx.jobs.tool_runs.save_tool_run(row)
            tx.jobs.tool_runs.store_images(row, images)
            return tx.jobs.steps.finish_step(step, ToolOutcome(state=ready.state))


def _read_call(tx: Transaction, step: ToolStep) -> ToolCall:
    answer = tx.llm.calls.get_answer(CallKey(job_id=step.job_id, number=step.number))
    return TOOL_CALLS.validate_json(answer.tool_calls)[step.place]


def _apply_question(caller: ToolCaller, question: Question) -> BegunToolCall:
    """Return a tool call that waits for its open question, or has the outcome of the question as its result."""
    state = ToolState.REFUSED
    match question.status:
        case QuestionStatus.OPEN:
            return BegunToolCall(caller, question=question)
        case QuestionStatus.ANSWERED:
            state, text = ToolState.DONE, question.answer
        case QuestionStatus.DENIED:
            text = "A person said no: this call was not made."
        case QuestionStatus.EXPIRED | QuestionStatus.CANCELLED:
            is_approval = question.kind is QuestionKind.APPROVAL
            text = "No person answered in time" + (": this call was not made." if is_approval else ".")
    return BegunToolCall(caller, result=ToolCallResult(text, state))

"""Runs the tool calls of a model; the effect of a call happens exactly once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from temporalio import activity

from activities.context import memory_scope_of_job
from activities.questions import AskingRules, ask_approval, ask_question, wait_for_person
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.jobs.flow import ToolOutcome, ToolStep
from maestro.domain.jobs.job import Job
from maestro.domain.llm.prompts import TOOL_CALLS, CallKey, ImageRef, ToolCall
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus
from maestro.domain.redaction import LOOK_AHEAD, Redact, keep_text
from maestro.domain.texts import storable
from maestro.domain.tools import (
    FAILED_REPEATEDLY,
    NOT_MADE_IN_WHAT_IF,
    UNKNOWN_OUTCOME,
    ToolRun,
    ToolState,
    has_failed_repeatedly,
)
from maestro.llm.middleware.limits import StopWatch
from maestro.store.store import Store, committed
from maestro.store.transaction import Transaction
from maestro.tools.attempt import ParsedToolCall, ToolCallResult, act, ask, parse_call, prepare, run
from maestro.tools.base import AsyncTool, QuestionTool, StoreTool, Tool, ToolCaller, ToolImage
from maestro.tools.registry import ToolRegistry

CUT_MARK = "\n[cut: the result was longer]"


@dataclass(frozen=True)
class ToolRules:
    """Settings: seconds per call, characters of the longest result, and the folder with the conversations' folders.

    ``memory_scope`` applies to agents without a scope of their own; ``redact`` removes secrets from results. ``keep``
    stores the bytes of a picture in the media folder and returns their digest.
    """

    keep: Callable[[bytes], str]
    seconds: float
    max_result_chars: int
    folder: Path
    asking: AskingRules
    memory_scope: MemoryScope
    redact: Redact = keep_text


@dataclass(frozen=True)
class ToolCallCase:
    """A call to decide on; ``worn``: it failed too often; ``begun``: the process died after beginning it."""

    job: Job
    step: ToolStep
    call: ToolCall
    wanted: ParsedToolCall | ToolCallResult
    worn: bool
    begun: bool


@dataclass(frozen=True)
class ToolRunResult:
    """The outcome of a call, with its text and pictures for the model."""

    state: ToolState
    text: str
    pictures: tuple[ToolImage, ...] = ()


@dataclass(frozen=True)
class BegunToolCall:
    """A call that is about to run; with a ``verdict`` it does not run, with a ``question`` it waits for the answer."""

    caller: ToolCaller
    wanted: ParsedToolCall | None = None
    verdict: ToolRunResult | None = None
    question: Question | None = None


class ToolActivities:
    """Runs the tool calls of a model."""

    def __init__(
        self,
        store: Store,
        registry: ToolRegistry,
        rules: Callable[[], ToolRules],
        watch: StopWatch,
        asked: Callable[[], None],
    ) -> None:
        """``asked`` is called when a question is ready to be sent."""
        self._store = store
        self._registry = registry
        self._rules = rules
        self._watch = watch
        self._asked = asked

    @activity.defn
    async def call_tool(self, step: ToolStep) -> ToolOutcome:
        """Run the call, or refuse it with a reason; the result is in the store when this method returns.

        A call during which the process died is repeated only if its tool declares repeating safe. Raises
        ``WaitsForPerson`` while the question of the call is open.
        """
        await self._registry.settled()
        wanted = await asyncio.to_thread(self._parse_arguments, step)
        begun = await asyncio.to_thread(self._begin, step, wanted)
        if begun.question is not None:
            self._asked()
            raise wait_for_person(begun.question)
        verdict = begun.verdict
        if begun.wanted is not None and isinstance(begun.wanted.tool, AsyncTool):
            verdict = _result_of(await self._watch.until_stopped(step.job_id, self._run(begun.wanted, begun.caller)))
        return await committed(self._store, partial(self._end, step, begun, verdict))

    async def _run(self, wanted: ParsedToolCall, caller: ToolCaller) -> ToolCallResult:
        assert isinstance(wanted.tool, AsyncTool)
        return await run(wanted.tool, wanted.arguments, caller, self._rules().seconds)

    def _parse_arguments(self, step: ToolStep) -> ParsedToolCall | ToolCallResult:
        """Parse the model's arguments outside of a transaction, because checking them may take long."""
        with self._store.view() as tx:
            call, agent = _call(tx, step), tx.agents.get(tx.jobs.get(step.job_id).agent_id)
        return parse_call(self._registry, call, agent)

    def _begin(self, step: ToolStep, wanted: ParsedToolCall | ToolCallResult) -> BegunToolCall:
        with self._store.begin() as tx:
            job, call = tx.jobs.get(step.job_id), _call(tx, step)
            runs = tx.jobs.tool_runs.of(job.id)
            row = next((run for run in runs if (run.number, run.place) == (step.number, step.place)), None)
            row = row or ToolRun(
                job_id=job.id,
                number=step.number,
                place=step.place,
                tool=call.name,
                arguments=tx.llm.prompts.keep(call.arguments),
                state=ToolState.WAITING,
                started_at=tx.now,
            )
            worn = has_failed_repeatedly([run for run in runs if run.number < step.number], row)
            begun = self._decide_call(
                tx, ToolCallCase(job, step, call, wanted, worn=worn, begun=row.state is ToolState.STARTED)
            )
            made = begun.verdict is None and begun.question is None
            tx.jobs.tool_runs.begin(row) if made else tx.jobs.tool_runs.put(row)
            return begun

    def _decide_call(self, tx: Transaction, case: ToolCallCase) -> BegunToolCall:
        """Decide whether the call may run, and ask a user where approval is required."""
        wanted, caller = case.wanted, self._caller(tx, case.job, case.step)
        if isinstance(wanted, ToolCallResult):
            return BegunToolCall(caller, verdict=_result_of(wanted))
        needs_a_yes = case.call.name in self._rules().asking.approval
        refused = _refusal(case, wanted.tool, needs_a_yes=needs_a_yes)
        if refused is not None:
            return BegunToolCall(caller, verdict=ToolRunResult(ToolState.REFUSED, refused))
        if case.begun and isinstance(wanted.tool, AsyncTool) and not wanted.tool.idempotent:
            return BegunToolCall(caller, verdict=ToolRunResult(ToolState.UNKNOWN, UNKNOWN_OUTCOME))
        if isinstance(wanted.tool, QuestionTool):
            what = ask(wanted.tool, wanted.arguments)
            if isinstance(what, ToolCallResult):
                return BegunToolCall(caller, verdict=_result_of(what))
            return _apply_question(caller, ask_question(tx, case.job, case.step, what, self._rules().asking))
        if needs_a_yes:
            question = ask_approval(tx, case.job, case.step, case.call, self._rules().asking)
            if question.status is not QuestionStatus.ANSWERED:
                return _apply_question(caller, question)
        return BegunToolCall(caller, wanted)

    def _end(self, step: ToolStep, begun: BegunToolCall, verdict: ToolRunResult | None) -> ToolOutcome:
        """Store the result of the call, in one transaction with a tool's changes of the store.

        Results are scanned for secrets before that transaction. Texts that a tool reads from the store were scanned
        when they were stored.
        """
        if verdict is not None:
            verdict = replace(verdict, text=self._without_secrets(verdict.text))
        images = self._images(verdict.pictures) if verdict is not None else []
        ready = verdict or _prepare_call(begun)
        with self._store.begin() as tx:
            verdict = ready if isinstance(ready, ToolRunResult) else _acted(tx, ready, begun.caller)
            row = tx.jobs.tool_runs.get(step.job_id, step.number, step.place)
            text = storable(self._capped(verdict.text))
            row.state, row.result = verdict.state, tx.llm.prompts.keep(text)
            row.error = row.result if verdict.state is ToolState.FAILED else ""
            tx.jobs.tool_runs.put(row)
            tx.jobs.tool_runs.show(row, images)
            return tx.jobs.steps.done(step, ToolOutcome(state=verdict.state))

    def _images(self, pictures: Sequence[ToolImage]) -> list[ImageRef]:
        """Store pictures in the media folder and return their digests."""
        keep = self._rules().keep
        return [ImageRef(digest=keep(one.content), content_type=one.content_type) for one in pictures]

    def _without_secrets(self, text: str) -> str:
        """Return a text without secrets, cut to slightly more than the longest result."""
        rules = self._rules()
        return rules.redact(text[: rules.max_result_chars + LOOK_AHEAD])

    def _capped(self, text: str) -> str:
        limit = self._rules().max_result_chars
        return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK

    def _caller(self, tx: Transaction, job: Job, step: ToolStep) -> ToolCaller:
        conversation = job.conversation_id or 0
        return ToolCaller(
            job_id=job.id,
            agent_id=job.agent_id or 0,
            conversation_id=conversation,
            folder=self._rules().folder / (str(conversation) if conversation else job.id),
            place=memory_scope_of_job(tx, job, self._rules().memory_scope),
            turn=(step.number, step.place),
        )


def _call(tx: Transaction, step: ToolStep) -> ToolCall:
    answer = tx.llm.calls.answer(CallKey(job_id=step.job_id, number=step.number))
    return TOOL_CALLS.validate_json(answer.tool_calls)[step.place]


def _refusal(case: ToolCallCase, tool: Tool, *, needs_a_yes: bool) -> str | None:
    """Return the text that tells the model why a call never runs; None for a call that may run."""
    if case.worn:
        return FAILED_REPEATEDLY
    return NOT_MADE_IN_WHAT_IF if case.job.what_if and (needs_a_yes or not tool.read_only) else None


def _prepare_call(begun: BegunToolCall) -> ParsedToolCall | ToolRunResult:
    """Return a call whose remaining work only needs the store, or the reason why the call cannot run."""
    assert begun.wanted is not None
    wanted = prepare(begun.wanted, begun.caller)
    return _result_of(wanted) if isinstance(wanted, ToolCallResult) else wanted


def _acted(tx: Transaction, wanted: ParsedToolCall, caller: ToolCaller) -> ToolRunResult:
    assert isinstance(wanted.tool, StoreTool)
    return _result_of(act(wanted.tool, tx, wanted.arguments, caller))


def _result_of(said: ToolCallResult) -> ToolRunResult:
    return ToolRunResult(ToolState.FAILED if said.failed else ToolState.DONE, said.text, said.pictures)


def _apply_question(caller: ToolCaller, question: Question) -> BegunToolCall:
    """Return what the call's question means for the call: to wait for the answer, or a text for the model."""
    match question.status:
        case QuestionStatus.OPEN:
            return BegunToolCall(caller, question=question)
        case QuestionStatus.ANSWERED:
            return BegunToolCall(caller, verdict=ToolRunResult(ToolState.DONE, question.answer))
        case QuestionStatus.DENIED:
            return BegunToolCall(
                caller, verdict=ToolRunResult(ToolState.REFUSED, "A person said no: this call was not made.")
            )
        case QuestionStatus.EXPIRED | QuestionStatus.CANCELLED:
            nobody = "Nobody answered in time" + (
                ": this call was not made." if question.kind is QuestionKind.APPROVAL else "."
            )
            return BegunToolCall(caller, verdict=ToolRunResult(ToolState.REFUSED, nobody))

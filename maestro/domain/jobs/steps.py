"""The kinds of steps, their order in each kind of job, their results, and the wait before a retry.

Workflows run these steps; previews of replays use the stored results (docs/invariants.md: resume; docs/decisions.md:
retry).
"""

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from maestro.domain.errors import FailureSource, MaestroError, WaitReason
from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    CompactionOutcome,
    ContextOutcome,
    ConversationOutcome,
    DeliverOutcome,
    MediaOutcome,
    ModelOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
    StatusOutcome,
    StepOutcome,
    TakeUpOutcome,
    ToolOutcome,
    VoiceOutcome,
    WhatIfOutcome,
)
from maestro.domain.jobs.job import Job, JobStep, StepState, Wait, is_background
from maestro.domain.values import Value

NUMBERED = re.compile(r"^(?P<kind>[a-z-]+?)(?P<numbers>(-\d+)+)$")

WAITING_NOTICE = "Every model is busy at the moment. I will answer this as soon as one is free."
"""The notice to a user, sent once, when the answer has to wait for an account (docs/decisions.md: retry)."""

PROVIDER_NOTICE = "The model does not answer at the moment. I will answer this as soon as it works again."
BUDGET_NOTICE = "Today's budget for answers is used up. I will answer this when the next budget begins."

_NOTICES: Mapping[WaitReason, tuple[str, str]] = {
    WaitReason.ACCOUNT: (WAITING_NOTICE, "That should be in about {}."),
    WaitReason.PROVIDER: (PROVIDER_NOTICE, "I try again in about {}."),
    WaitReason.BUDGET: (BUDGET_NOTICE, "That is in about {}, or sooner if the operators raise the budget."),
}

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class StepKind(StrEnum):
    """A kind of step, listed in the order of the flow, with its purpose for operators and the type of its result.

    If a job may have several steps of one kind, they are numbered: ``model-2``, ``tool-2-0`` and ``park-1``.
    """

    purpose: str
    outcome: Any

    def __new__(cls, name: str, purpose: str, outcome: Any = None) -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.purpose, kind.outcome = name, purpose, outcome
        return kind

    ENTER = "enter", "Create the job of a scheduled run"
    ROUTE = "route", "Choose the agent", RouteOutcome
    TAKE_UP = "take-up", "Load the task", TakeUpOutcome | BackgroundOutcome
    TYPING = "typing", "Show the typing indicator"
    MEDIA = "media", "Fetch the files", MediaOutcome
    VOICE = "voice", "Transcribe the voice messages", VoiceOutcome
    CONVERSATION = "conversation", "Record the message", ConversationOutcome
    COMPACTION = "compaction", "Compact the conversation", CompactionOutcome
    SCRIPT = "script", "Run the script", ScriptOutcome
    CONTEXT = "context", "Build the prompt", ContextOutcome
    MODEL = "model", "Ask the model", ModelOutcome
    TOOL = "tool", "Call a tool", ToolOutcome
    TAGS = "tags", "Act on the answer and record it", AnswerOutcome
    SHOW = "show", "Show what would be answered", WhatIfOutcome
    DELIVER = "deliver", "Send the answer", DeliverOutcome
    NOTICE = "notice", "Tell the user that the job failed", DeliverOutcome
    PARK = "park", "Leave the lane and wait", StatusOutcome
    CLOSE = "close", "Close the job with its reason", StatusOutcome

    def numbered_step(self, *numbers: int) -> str:
        """Return the name of one numbered step of this kind."""
        return "-".join((self, *map(str, numbers)))


_BY_NAME: Mapping[str, StepKind] = {kind.value: kind for kind in StepKind}

OPTIONAL = frozenset({StepKind.MEDIA, StepKind.VOICE, StepKind.COMPACTION})
"""Steps that may fail without preventing the answer; a resume tries a failed one again."""

PREPARATION = (StepKind.ROUTE, StepKind.CONVERSATION, StepKind.CONTEXT)
"""Steps that one transaction does if no other step is needed between them (ADR 36)."""

AFTERMATH = (StepKind.NOTICE, StepKind.CLOSE, StepKind.PARK)
"""Name prefixes of the steps after a failure, a stop or a wait; these steps do not lead to an answer."""

AFTER_A_STOP = (StepKind.DELIVER, *AFTERMATH)
"""Steps that still run after a user stopped the job: they finish a delivery in progress and close the job."""

AFTER_THE_END = (StepKind.CLOSE, StepKind.PARK)
"""Steps that start even if another process may have ended the job; each step checks the job's state itself."""

Results = Callable[[str], Any]
"""A function that returns the result of a named step, None for an optional step that has not finished."""

StepPath = Callable[[Results], Iterator[tuple[str, ...]]]
"""A function that yields the steps of a job in order; the steps in one tuple run in parallel."""


class StepPending(Exception):
    """The next step depends on the result of a step that has not finished."""


@lru_cache(maxsize=1024)
def step_kind(step: str) -> StepKind | None:
    """Return the kind of a step, None for a step that this release does not know."""
    numbered = NUMBERED.match(step)
    return _BY_NAME.get(numbered["kind"] if numbered else step)


def step_numbers(step: str) -> tuple[int, ...]:
    """Return the numbers in a step's name: those of its model call and tool call, or of its run."""
    numbered = NUMBERED.match(step)
    return tuple(map(int, numbered["numbers"].split("-")[1:])) if numbered else ()


def step_purpose(step: str) -> str:
    """Return the purpose of a step as operators read it; for a model call, with the number of the call."""
    kind = step_kind(step)
    if kind is None:
        return step
    return f"{kind.purpose}, call {step_numbers(step)[0]}" if kind is StepKind.MODEL else kind.purpose


def read_outcome(step: str, result: str) -> Any:
    """Return the result of a step from its JSON, None for a step without one; raises ``ValidationError``."""
    kind = step_kind(step)
    return None if kind is None or kind.outcome is None else _outcome_adapter(kind).validate_json(result)


@cache
def _outcome_adapter(kind: StepKind) -> TypeAdapter[Any]:
    return TypeAdapter(kind.outcome)


def message_steps(result: Results) -> Iterator[tuple[str, ...]]:
    yield (StepKind.ROUTE,)
    route: RouteOutcome = result(StepKind.ROUTE)
    if route.action is RouteAction.REPLY:
        yield (StepKind.DELIVER,)
    if route.action is not RouteAction.ANSWER:
        return
    if route.media:
        yield (StepKind.MEDIA,)
        media: MediaOutcome | None = result(StepKind.MEDIA)
        if media is not None and media.voices:
            yield (StepKind.VOICE,)
    yield (StepKind.CONVERSATION,)
    if result(StepKind.CONVERSATION).compaction_due:
        yield (StepKind.COMPACTION,)
    yield from _answer_steps(result)


def task_steps(result: Results) -> Iterator[tuple[str, ...]]:
    yield (StepKind.TAKE_UP,)
    yield from _answer_steps(result)


def background_steps(result: Results) -> Iterator[tuple[str, ...]]:
    yield (StepKind.TAKE_UP,)
    if not result(StepKind.TAKE_UP).script:
        yield from _answer_steps(result)
        return
    yield (StepKind.SCRIPT,)
    if result(StepKind.SCRIPT).posts:
        yield (StepKind.DELIVER,)


def list_what_if_steps(result: Results) -> Iterator[tuple[str, ...]]:
    yield (StepKind.ROUTE,)
    if result(StepKind.ROUTE).action is RouteAction.ANSWER:
        yield from _model_steps(result)
        yield (StepKind.SHOW,)


def _answer_steps(result: Results) -> Iterator[tuple[str, ...]]:
    yield from _model_steps(result)
    yield (StepKind.TAGS,)
    answer: AnswerOutcome = result(StepKind.TAGS)
    if not (answer.heard or answer.silent):
        yield (StepKind.DELIVER,)


def _model_steps(result: Results) -> Iterator[tuple[str, ...]]:
    """Yield the prompt step, then model calls and the tool calls they ask for, until an answer asks for no tools."""
    yield (StepKind.CONTEXT,)
    for number in itertools.count(1):
        model = StepKind.MODEL.numbered_step(number)
        yield (model,)
        tools = result(model).tools
        if not tools:
            return
        yield tuple(StepKind.TOOL.numbered_step(number, place) for place, _ in enumerate(tools))


def finished_results(steps: Sequence[JobStep]) -> dict[str, str]:
    """Return the JSON results of finished steps by name, without the steps that report a failure, stop or wait."""
    done = (step for step in steps if step.state is StepState.DONE)
    return {step.step: step.result for step in done if not step.step.startswith(AFTERMATH)}


def next_step(job: Job, done: Mapping[str, str]) -> str | None:
    """Return the step at which a resume continues, None when every step is done."""
    missing = (step for step in _known_steps(job, done) if step not in done and step not in OPTIONAL)
    return next(missing, None)


def retried_steps(job: Job, done: Mapping[str, str]) -> tuple[str, ...]:
    """Return the optional steps that did not finish and that a resume tries again before it continues."""
    before = itertools.takewhile(lambda step: step in done or step in OPTIONAL, _known_steps(job, done))
    return tuple(step for step in before if step not in done)


def _known_steps(job: Job, done: Mapping[str, str]) -> Iterator[str]:
    """Yield the steps of a job in order, until the next step depends on a result that is missing."""

    def result(step: str) -> Any:
        if step in done:
            return read_outcome(step, done[step])
        if step in OPTIONAL:
            return None
        raise StepPending

    path: StepPath = background_steps if is_background(job) else message_steps
    if job.what_if:
        path = list_what_if_steps
    elif job.parent_id is not None:
        path = task_steps
    with suppress(StepPending):
        for steps in path(result):
            yield from steps


def result_words(row: JobStep) -> str:
    """Return the result of an attempt at a step in words, empty if the state of the attempt says enough."""
    if not row.result:
        return ""
    try:
        if row.state is StepState.WAITING:
            return f"waits for {Wait.model_validate_json(row.result).reason}"
        outcome: StepOutcome | None = read_outcome(row.step, row.result)
    except ValidationError:  # A result that another release wrote must not make the whole page fail.
        return ""
    return outcome.words if outcome is not None else ""


class RetryRules(Value):
    """The most attempts and the first delay, in seconds, for each source of a step's failure."""

    provider_attempts: int
    provider_base: float
    platform_attempts: int
    platform_base: float
    own_attempts: int
    crashes: int


LONGEST_PLATFORM_WAIT = timedelta(minutes=1)


LONGEST_PROVIDER_WAIT = timedelta(minutes=10)
"""The longest wait that a provider may request; meanwhile the job blocks the later jobs of its lane (queue)."""


def wait_before_retry(error: BaseException, failures: int, rules: RetryRules) -> timedelta | None:
    """Return the wait before the next attempt after ``failures`` failed attempts, None to give up.

    A failed provider call gets ``provider_attempts``. The waits start at ``provider_base`` seconds and double, unless
    the provider requested a wait (docs/decisions.md: retry). If it requested more than ``LONGEST_PROVIDER_WAIT``, the
    job fails and can be resumed later. A failed platform call gets ``platform_attempts`` with shorter waits. An
    internal error gets ``own_attempts``, with waits from one second on. Calls to an unavailable store are repeated
    without limit, because the job is not at fault. An error that is not retryable gets no further attempt.
    """
    known = error if isinstance(error, MaestroError) else None
    if known is not None and not known.retryable:
        return None
    source = known.source if known else FailureSource.MAESTRO
    requested_wait = known.retry_after if known else None
    attempts, base = {
        FailureSource.PROVIDER: (rules.provider_attempts, timedelta(seconds=rules.provider_base)),
        FailureSource.PLATFORM: (rules.platform_attempts, timedelta(seconds=rules.platform_base)),
        FailureSource.STORE: (sys.maxsize, timedelta(seconds=1)),
        FailureSource.MAESTRO: (rules.own_attempts, timedelta(seconds=1)),
    }[source]
    too_long = (
        source is FailureSource.PROVIDER and requested_wait is not None and requested_wait > LONGEST_PROVIDER_WAIT
    )
    if failures >= attempts or too_long:
        return None
    # An outage of the store may last for days, and more than twenty doublings of the wait would overflow.
    wait: timedelta = base * 2 ** min(failures - 1, 20)
    short = source in (FailureSource.PLATFORM, FailureSource.STORE)
    return requested_wait or (min(wait, LONGEST_PLATFORM_WAIT) if short else wait)


def waiting_notice(wait: Wait, now: datetime) -> str:
    """Return the notice to the user why the answer waits, with the approximate wait if it is a minute or more."""
    why, when = _NOTICES[wait.reason]
    remaining = wait.wake_at - now if wait.wake_at is not None else timedelta()
    if remaining < _MINUTE:
        return why
    large_units = ((unit, word) for unit, word in ((_DAY, "day"), (_HOUR, "hour")) if remaining >= 2 * unit)
    unit, word = next(large_units, (_MINUTE, "minute"))
    count = round(remaining / unit)
    return f"{why} {when.format(f'{count} {word}' if count == 1 else f'{count} {word}s')}"

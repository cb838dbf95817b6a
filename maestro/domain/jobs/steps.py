"""The steps of a job: the one table of their kinds, the path of each kind of job through them, and what came of one.

Workflows follow these paths, and previews of a replay walk them over what is done (docs/invariants.md: resume).
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    CloseOutcome,
    CompactionOutcome,
    ContextOutcome,
    ConversationOutcome,
    DeliverOutcome,
    MediaOutcome,
    ModelOutcome,
    ParkOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
    StepOutcome,
    TakeUpOutcome,
    ToolOutcome,
    VoiceOutcome,
    WhatIfOutcome,
)
from maestro.domain.jobs.job import Job, JobStep, StepState, Wait, is_background

NUMBERED = re.compile(r"^(?P<kind>[a-z-]+?)(?P<numbers>(-\d+)+)$")


class StepKind(StrEnum):
    """A kind of step, in the order of the flow: its name, its purpose for people, and what it returns.

    A job may have several steps of some kinds. They are numbered: ``model-2``, ``tool-2-0`` and ``park-1``.
    """

    purpose: str
    outcome: Any

    def __new__(cls, name: str, purpose: str, outcome: Any = None) -> Self:
        """Return the member with its purpose and its outcome."""
        kind = str.__new__(cls, name)
        kind._value_, kind.purpose, kind.outcome = name, purpose, outcome
        return kind

    ENTER = "enter", "Make the job of a planned time"
    ROUTE = "route", "Decide who answers", RouteOutcome
    TAKE_UP = "take-up", "Take up the work", TakeUpOutcome | BackgroundOutcome
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
    NOTICE = "notice", "Tell the person that it failed", DeliverOutcome
    PARK = "park", "Give the place back and wait", ParkOutcome
    CLOSE = "close", "Close the job with its reason", CloseOutcome

    def numbered(self, *numbers: int) -> str:
        """Return the name of one of several steps of this kind."""
        return "-".join((self, *map(str, numbers)))


_BY_NAME: Mapping[str, StepKind] = {kind.value: kind for kind in StepKind}

OPTIONAL = frozenset({StepKind.MEDIA, StepKind.VOICE, StepKind.COMPACTION})
"""Steps that an answer can do without: one that failed is tried again by a resume."""

PREPARATION = (StepKind.ROUTE, StepKind.CONVERSATION, StepKind.CONTEXT)
"""Steps that are done in one transaction where nothing comes between (ADR 36)."""

AFTERMATH = (StepKind.NOTICE, StepKind.CLOSE, StepKind.PARK)
"""How the steps begin that follow a failure, a stop or a wait: they are no part of the way to an answer."""

AFTER_A_STOP = (StepKind.DELIVER, *AFTERMATH)
"""Steps that still run after a person said stop: what is being sent is sent, and the job is closed."""

AFTER_THE_END = (StepKind.CLOSE, StepKind.PARK)
"""Steps that find out by themselves that the job was ended by another process."""

Results = Callable[[str], Any]
"""Returns what a step returned, None for an optional one that has not finished."""

StepPath = Callable[[Results], Iterator[tuple[str, ...]]]
"""Yields the steps in order, those in a tuple side by side; each is done before the next ones are asked for."""


class StepPending(Exception):
    """What comes next depends on a step that has not finished."""


@lru_cache(maxsize=1024)
def kind_of(step: str) -> StepKind | None:
    """Return the kind of a step, None for one that this release does not know."""
    found = NUMBERED.match(step)
    return _BY_NAME.get(found["kind"] if found else step)


def numbers_of(step: str) -> tuple[int, ...]:
    """Return the numbers of a step: of its model call, of the place of its tool call in the answer, of its run."""
    found = NUMBERED.match(step)
    return tuple(map(int, found["numbers"].split("-")[1:])) if found else ()


def purpose_of(step: str) -> str:
    """Return what a step is for, with its number where a job may have several."""
    kind = kind_of(step)
    if kind is None:
        return step
    return f"{kind.purpose}, call {numbers_of(step)[0]}" if kind is StepKind.MODEL else kind.purpose


def read_outcome(step: str, result: str) -> Any:
    """Return what a step returned, None where nothing is known of it; raises ``ValidationError`` for other text."""
    kind = kind_of(step)
    return None if kind is None or kind.outcome is None else _adapter(kind).validate_json(result)


@cache
def _adapter(kind: StepKind) -> TypeAdapter[Any]:
    return TypeAdapter(kind.outcome)


def message_steps(result: Results) -> Iterator[tuple[str, ...]]:
    """Yield the steps of a message."""
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
    """Yield the steps of a task that one agent gave to another."""
    yield (StepKind.TAKE_UP,)
    yield from _answer_steps(result)


def background_steps(result: Results) -> Iterator[tuple[str, ...]]:
    """Yield the steps of a job that no person began: of a heartbeat, a cron, a webhook."""
    yield (StepKind.TAKE_UP,)
    if not result(StepKind.TAKE_UP).script:
        yield from _answer_steps(result)
        return
    yield (StepKind.SCRIPT,)
    if result(StepKind.SCRIPT).posts:
        yield (StepKind.DELIVER,)


def what_if_steps(result: Results) -> Iterator[tuple[str, ...]]:
    """Yield the steps of a what-if."""
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
    """Yield the prompt, then the calls of the model and the tools it asks for, until it asks for none."""
    yield (StepKind.CONTEXT,)
    for number in itertools.count(1):
        model = StepKind.MODEL.numbered(number)
        yield (model,)
        tools = result(model).tools
        if not tools:
            return
        yield tuple(StepKind.TOOL.numbered(number, place) for place, _ in enumerate(tools))


def finished(steps: Sequence[JobStep]) -> dict[str, str]:
    """Return the JSON of what the finished steps on the way to an answer returned, by name."""
    done = (step for step in steps if step.state is StepState.DONE)
    return {step.step: step.result for step in done if not step.step.startswith(AFTERMATH)}


def next_step(job: Job, done: Mapping[str, str]) -> str | None:
    """Return the step at which the job goes on, None when every step of it is done."""
    missing = (step for step in _walk(job, done) if step not in done and step not in OPTIONAL)
    return next(missing, None)


def tried_again(job: Job, done: Mapping[str, str]) -> tuple[str, ...]:
    """Return the steps that failed and that the job went on without: a resume tries them again on its way."""
    before = itertools.takewhile(lambda step: step in done or step in OPTIONAL, _walk(job, done))
    return tuple(step for step in before if step not in done)


def _walk(job: Job, done: Mapping[str, str]) -> Iterator[str]:
    """Yield the steps in order, up to the first of which the followers depend on what is not done yet."""

    def result(step: str) -> Any:
        if step in done:
            return read_outcome(step, done[step])
        if step in OPTIONAL:
            return None
        raise StepPending

    try:
        for steps in _path_of(job)(result):
            yield from steps
    except StepPending:
        return


def _path_of(job: Job) -> StepPath:
    if job.what_if:
        return what_if_steps
    if job.parent_id is not None:
        return task_steps
    return background_steps if is_background(job) else message_steps


def note_of(row: JobStep) -> str:
    """Return in words what came of an attempt at a step, empty where its state says it all."""
    try:
        return _note(row) if row.result else ""
    except ValidationError:
        # What another release wrote in other words must not hide the rest of the page.
        return ""


def _note(row: JobStep) -> str:
    if row.state is StepState.WAITING:
        return f"waits for {Wait.model_validate_json(row.result).reason}"
    outcome: StepOutcome | None = read_outcome(row.step, row.result)
    return outcome.words if outcome is not None else ""

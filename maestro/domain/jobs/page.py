"""The page of one job: the timeline of its attempts at steps, run by run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, groupby
from typing import TypeVar

from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.job import StepState
from maestro.domain.jobs.steps import StepKind, note_of, purpose_of
from maestro.domain.jobs.timeline import ActionView, CallView, DeliveryView, JobQuestionView, StepView, ToolRunView
from maestro.domain.jobs.views import JobDetail, JobRecord
from maestro.domain.llm.prompts import CallPurpose

WIDTH = 100.0
"""Of the scale that a run's bars stand on."""

THIN = 0.6
"""The width of what took next to no time, so that it is seen."""

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class TimelineBar:
    """Where something stands on the scale of its run, which is ``WIDTH`` wide."""

    offset: float
    width: float


@dataclass(frozen=True)
class TimelineEntry:
    """One attempt at one step, and what it did."""

    step: StepView
    words: str
    note: str
    bar: TimelineBar = TimelineBar(0, WIDTH)
    calls: Sequence[CallView] = ()
    tools: Sequence[ToolRunView] = ()
    questions: Sequence[JobQuestionView] = ()
    actions: Sequence[ActionView] = ()
    deliveries: Sequence[DeliveryView] = ()


@dataclass(frozen=True)
class RunTimeline:
    """One run of a job: from its first step to its last."""

    run: int
    began: datetime
    ended: datetime
    entries: Sequence[TimelineEntry]

    @property
    def milliseconds(self) -> float:
        """How long it took, pauses included."""
        return (self.ended - self.began).total_seconds() * 1000


@dataclass(frozen=True)
class UnplacedRecords:
    """What belongs to no step of the journal, such as that of a release that wrote none."""

    calls: Sequence[CallView] = ()
    tools: Sequence[ToolRunView] = ()
    questions: Sequence[JobQuestionView] = ()
    actions: Sequence[ActionView] = ()
    deliveries: Sequence[DeliveryView] = ()


@dataclass(frozen=True)
class JobTimeline:
    """The runs of a job, the newest first, and what stands in none."""

    stretches: Sequence[RunTimeline] = ()
    loose: UnplacedRecords = field(default_factory=UnplacedRecords)

    def newest(self, most: int) -> Sequence[RunTimeline]:
        """Return the newest runs: as many as have up to ``most`` steps together, and one in any case."""
        steps = accumulate(len(stretch.entries) for stretch in self.stretches)
        return self.stretches[: max(1, sum(count <= most for count in steps))]


NOWHERE = -1
"""The place of what belongs to no attempt."""


def build_timeline(record: JobRecord, job: JobDetail, now: datetime) -> JobTimeline:
    """Return the course of a job; ``job`` is how its ``record`` is shown."""
    steps = job.steps
    calls = _gathered(job.calls, lambda call: _attempt(steps, _step_of_call(call), call.started_at))
    tools = _gathered(job.tools, lambda tool: _attempt(steps, StepKind.TOOL.numbered(tool.number, tool.place)))
    questions = _gathered(
        job.questions, lambda asked: _attempt(steps, StepKind.TOOL.numbered(asked.number, asked.place))
    )
    actions = _gathered(job.actions, lambda _: _attempt(steps, StepKind.TAGS))
    deliveries = _gathered(job.deliveries, lambda chunk: _attempt(steps, _step_of_chunk(chunk, steps)))
    entries = [
        TimelineEntry(
            step=step,
            words=purpose_of(step.step),
            note=note_of(row),
            calls=calls.get(place, ()),
            tools=tools.get(place, ()),
            questions=questions.get(place, ()),
            actions=actions.get(place, ()),
            deliveries=deliveries.get(place, ()),
        )
        for place, (row, step) in enumerate(zip(record.steps, steps, strict=True))
    ]
    by_run = groupby(sorted(entries, key=_run), key=_run)
    stretches = [_run_timeline(run, list(of_run), now) for run, of_run in by_run]
    loose = UnplacedRecords(
        calls=calls.get(NOWHERE, ()),
        tools=tools.get(NOWHERE, ()),
        questions=questions.get(NOWHERE, ()),
        actions=actions.get(NOWHERE, ()),
        deliveries=deliveries.get(NOWHERE, ()),
    )
    return JobTimeline(stretches[::-1], loose)


def current_step(job: JobDetail) -> StepView | None:
    """Return what an open job does now, or waits in; None before its first step, between two and after its end."""
    if job.status.ended or not job.steps:
        return None
    last = job.steps[-1]
    return last if last.state in (StepState.RUNNING, StepState.WAITING) else None


def _gathered(things: Iterable[Thing], place: Callable[[Thing], int]) -> Mapping[int, Sequence[Thing]]:
    """Gather things by their places, in their order."""
    found: dict[int, list[Thing]] = {}
    for thing in things:
        found.setdefault(place(thing), []).append(thing)
    return found


def _attempt(steps: Sequence[StepView], name: str, at: datetime | None = None) -> int:
    """Return the place of the last attempt at a step that had begun then, else of its first; ``NOWHERE`` for none."""
    named = [place for place, step in enumerate(steps) if step.step == name]
    begun = [place for place in named if at is None or steps[place].started_at <= at]
    return begun[-1] if begun else named[0] if named else NOWHERE


def _step_of_call(call: CallView) -> str:
    return StepKind.MODEL.numbered(call.number) if call.purpose is CallPurpose.ANSWER else StepKind.COMPACTION


def _step_of_chunk(chunk: DeliveryView, steps: Sequence[StepView]) -> str:
    """A notice has a step of its own, unless it is all that the job has to say."""
    alone = chunk.purpose is DeliveryPurpose.ANSWER or not any(step.step == StepKind.NOTICE for step in steps)
    return StepKind.DELIVER if alone else StepKind.NOTICE


def _run(entry: TimelineEntry) -> int:
    return entry.step.run


def _run_timeline(run: int, entries: Sequence[TimelineEntry], now: datetime) -> RunTimeline:
    """Put the attempts of a run on one scale of time; what still goes on goes on until now."""
    began = min(entry.step.started_at for entry in entries)
    ended = max(_end(entry, now) for entry in entries)
    whole = (ended - began).total_seconds()
    placed = []
    for entry in entries:
        width = max(
            (_end(entry, now) - entry.step.started_at).total_seconds() / whole * WIDTH if whole else WIDTH, THIN
        )
        offset = (entry.step.started_at - began).total_seconds() / whole * WIDTH if whole else 0
        placed.append(replace(entry, bar=TimelineBar(round(min(offset, WIDTH - THIN), 2), round(width, 2))))
    return RunTimeline(run, began, ended, placed)


def _end(entry: TimelineEntry, now: datetime) -> datetime:
    return max(entry.step.finished_at or now, entry.step.started_at)

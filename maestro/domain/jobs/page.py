"""The timeline of one job's page: its attempts at steps, run by run."""

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
"""The width of the time scale of a run, in percent."""

THIN = 0.6
"""The least width of a bar, in percent, so that a very short step is still visible."""

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class TimelineBar:
    """The position of a step on the time scale of its run, which is ``WIDTH`` wide."""

    offset: float
    width: float


@dataclass(frozen=True)
class TimelineEntry:
    """One attempt at one step, with its calls, questions, actions and deliveries.

    ``words`` is the purpose of the step, ``note`` its result in words.
    """

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
    """One run of a job, from its first step to its last."""

    run: int
    began: datetime
    ended: datetime
    entries: Sequence[TimelineEntry]

    @property
    def milliseconds(self) -> float:
        """The duration of the run in milliseconds, waits included."""
        return (self.ended - self.began).total_seconds() * 1000


@dataclass(frozen=True)
class UnplacedRecords:
    """The records of a job that belong to none of its recorded steps, as with releases that recorded no steps."""

    calls: Sequence[CallView] = ()
    tools: Sequence[ToolRunView] = ()
    questions: Sequence[JobQuestionView] = ()
    actions: Sequence[ActionView] = ()
    deliveries: Sequence[DeliveryView] = ()


@dataclass(frozen=True)
class JobTimeline:
    """The runs of a job, newest first, and the records outside of them."""

    stretches: Sequence[RunTimeline] = ()
    loose: UnplacedRecords = field(default_factory=UnplacedRecords)

    def newest(self, most: int) -> Sequence[RunTimeline]:
        """Return the newest runs with up to ``most`` steps in total, but at least one run."""
        steps = accumulate(len(stretch.entries) for stretch in self.stretches)
        return self.stretches[: max(1, sum(count <= most for count in steps))]


NOWHERE = -1
"""The index for a record that belongs to no attempt."""


def build_timeline(record: JobRecord, job: JobDetail, now: datetime) -> JobTimeline:
    """Return the timeline of a job; ``job`` is the API model of the rows in ``record``."""
    steps = job.steps
    calls = _group_by_index(job.calls, lambda call: _attempt_index(steps, _step_of_call(call), call.started_at))
    tools = _group_by_index(
        job.tools, lambda tool: _attempt_index(steps, StepKind.TOOL.numbered(tool.number, tool.place))
    )
    questions = _group_by_index(
        job.questions, lambda asked: _attempt_index(steps, StepKind.TOOL.numbered(asked.number, asked.place))
    )
    actions = _group_by_index(job.actions, lambda _: _attempt_index(steps, StepKind.TAGS))
    deliveries = _group_by_index(job.deliveries, lambda chunk: _attempt_index(steps, _step_of_chunk(chunk, steps)))
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
    runs = [_run_timeline(run, list(of_run), now) for run, of_run in by_run]
    unplaced = UnplacedRecords(
        calls=calls.get(NOWHERE, ()),
        tools=tools.get(NOWHERE, ()),
        questions=questions.get(NOWHERE, ()),
        actions=actions.get(NOWHERE, ()),
        deliveries=deliveries.get(NOWHERE, ()),
    )
    return JobTimeline(runs[::-1], unplaced)


def current_step(job: JobDetail) -> StepView | None:
    """Return the running or waiting step of an open job.

    None before the first step, between two steps and after the end.
    """
    if job.status.ended or not job.steps:
        return None
    last = job.steps[-1]
    return last if last.state in (StepState.RUNNING, StepState.WAITING) else None


def _group_by_index(things: Iterable[Thing], index: Callable[[Thing], int]) -> Mapping[int, Sequence[Thing]]:
    """Group records by the index of their attempt, in the given order."""
    found: dict[int, list[Thing]] = {}
    for thing in things:
        found.setdefault(index(thing), []).append(thing)
    return found


def _attempt_index(steps: Sequence[StepView], name: str, at: datetime | None = None) -> int:
    """Return the index of an attempt at a step: the last one that began by ``at``, else the first.

    ``NOWHERE`` if there is no attempt at the step.
    """
    named = [place for place, step in enumerate(steps) if step.step == name]
    begun = [place for place in named if at is None or steps[place].started_at <= at]
    return begun[-1] if begun else named[0] if named else NOWHERE


def _step_of_call(call: CallView) -> str:
    return StepKind.MODEL.numbered(call.number) if call.purpose is CallPurpose.ANSWER else StepKind.COMPACTION


def _step_of_chunk(chunk: DeliveryView, steps: Sequence[StepView]) -> str:
    """Return the step that sent a chunk.

    A notice has a step of its own, unless it is the only message of the job.
    """
    alone = chunk.purpose is DeliveryPurpose.ANSWER or not any(step.step == StepKind.NOTICE for step in steps)
    return StepKind.DELIVER if alone else StepKind.NOTICE


def _run(entry: TimelineEntry) -> int:
    return entry.step.run


def _run_timeline(run: int, entries: Sequence[TimelineEntry], now: datetime) -> RunTimeline:
    """Return a run with its attempts on one time scale; a running attempt extends to ``now``."""
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

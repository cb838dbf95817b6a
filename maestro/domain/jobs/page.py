"""The timeline on the page of one job: every attempt at a step, grouped by run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, groupby
from operator import attrgetter

from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.job import StepState
from maestro.domain.jobs.steps import StepKind, result_words, step_purpose
from maestro.domain.jobs.views import (
    ActionView,
    CallView,
    DeliveryView,
    JobDetail,
    JobQuestionView,
    JobRecord,
    StepView,
    ToolRunView,
)
from maestro.domain.llm.prompts import CallPurpose

WIDTH = 100.0
"""The width of the time scale of a run, in percent."""

THIN = 0.6
"""The least width of a step's bar, in percent, so that a very short step is still visible."""

NOWHERE = -1
"""The index of records that belong to no attempt at a step."""


@dataclass(frozen=True)
class AttemptRecords:
    """The model calls, tool calls, questions, actions (tags) and deliveries of one attempt at a step."""

    calls: list[CallView] = field(default_factory=list)
    tools: list[ToolRunView] = field(default_factory=list)
    questions: list[JobQuestionView] = field(default_factory=list)
    actions: list[ActionView] = field(default_factory=list)
    deliveries: list[DeliveryView] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TimelineEntry(AttemptRecords):
    """One attempt at one step, with its records; ``words`` is the step's purpose, ``note`` the attempt's result.

    ``offset`` and ``width`` are the start and the length of the attempt's bar, in percent of the run's time scale.
    """

    step: StepView
    words: str
    note: str
    offset: float = 0
    width: float = WIDTH


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
class JobTimeline:
    """The runs of a job, newest first; ``unplaced`` are records of older releases, which name no step."""

    runs: Sequence[RunTimeline] = ()
    unplaced: AttemptRecords = field(default_factory=AttemptRecords)

    def newest_runs(self, most_steps: int) -> Sequence[RunTimeline]:
        """Return the newest runs that have at most ``most_steps`` attempts in total, but at least one run."""
        steps = accumulate(len(run.entries) for run in self.runs)
        return self.runs[: max(1, sum(count <= most_steps for count in steps))]


def build_timeline(record: JobRecord, job: JobDetail, now: datetime) -> JobTimeline:
    """Return the timeline of a job; ``job`` is the API model of the rows in ``record``."""
    records = defaultdict[int, AttemptRecords](AttemptRecords)

    def records_of(name: str, at: datetime | None = None) -> AttemptRecords:
        """Return the records of the last attempt at a step that began by ``at``, else of the first attempt."""
        named = [index for index, step in enumerate(job.steps) if step.step == name]
        begun = [index for index in named if at is None or job.steps[index].started_at <= at]
        return records[begun[-1] if begun else named[0] if named else NOWHERE]

    for call in job.calls:
        is_answer = call.purpose is CallPurpose.ANSWER
        records_of(
            StepKind.MODEL.numbered_step(call.number) if is_answer else StepKind.COMPACTION, call.started_at
        ).calls.append(call)
    for tool in job.tools:
        records_of(StepKind.TOOL.numbered_step(tool.number, tool.place)).tools.append(tool)
    for question in job.questions:
        records_of(StepKind.TOOL.numbered_step(question.number, question.place)).questions.append(question)
    records_of(StepKind.TAGS).actions.extend(job.actions)
    # The step ``notice`` sends the notice of a failure; a job that only sends a notice uses ``deliver``.
    has_notice_step = any(step.step == StepKind.NOTICE for step in job.steps)
    for chunk in job.deliveries:
        is_notice = has_notice_step and chunk.purpose is not DeliveryPurpose.ANSWER
        records_of(StepKind.NOTICE if is_notice else StepKind.DELIVER).deliveries.append(chunk)
    entries = [
        TimelineEntry(step=step, words=step_purpose(step.step), note=result_words(row), **vars(records[index]))
        for index, (row, step) in enumerate(zip(record.steps, job.steps, strict=True))
    ]
    by_run = attrgetter("step.run")
    runs = [_run_timeline(run, list(of_run), now) for run, of_run in groupby(sorted(entries, key=by_run), key=by_run)]
    return JobTimeline(runs[::-1], records[NOWHERE])


def current_step(job: JobDetail) -> StepView | None:
    """Return the step that runs or waits now; None between two steps and after the end of the job."""
    if job.status.ended or not job.steps:
        return None
    last = job.steps[-1]
    return last if last.state in (StepState.RUNNING, StepState.WAITING) else None


def _run_timeline(run: int, entries: Sequence[TimelineEntry], now: datetime) -> RunTimeline:
    """Return a run with the bars of its attempts on one time scale; a running attempt lasts until ``now``."""
    began = min(entry.step.started_at for entry in entries)
    ended = max(_attempt_end(entry, now) for entry in entries)
    whole = (ended - began).total_seconds()
    with_bars = []
    for entry in entries:
        lasted = (_attempt_end(entry, now) - entry.step.started_at).total_seconds()
        width = max(lasted / whole * WIDTH if whole else WIDTH, THIN)
        offset = (entry.step.started_at - began).total_seconds() / whole * WIDTH if whole else 0
        with_bars.append(replace(entry, offset=round(min(offset, WIDTH - THIN), 2), width=round(width, 2)))
    return RunTimeline(run, began, ended, with_bars)


def _attempt_end(entry: TimelineEntry, now: datetime) -> datetime:
    return max(entry.step.finished_at or now, entry.step.started_at)

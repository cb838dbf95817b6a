"""Schedules in words for a terminal."""

from collections.abc import Iterator
from datetime import datetime

from maestro.cli.job_texts import moment
from maestro.cli.pages import table_page
from maestro.cli.table import lines, plain
from maestro.domain.schedules.views import (
    BackfillView,
    LastRun,
    PreviewView,
    SchedulePage,
    ScheduleState,
    ScheduleView,
)
from maestro.domain.schedules.words import distance

NOTHING = "There are no such schedules: `maestro schedules add` makes one."
COLUMNS = ("ref", "name", "agent", "when", "channel", "state", "next", "last", "skipped", "failures")
TIME_COLUMNS = ("time", "job", "")


def listing(page: SchedulePage, now: datetime) -> Iterator[str]:
    """Yield a table of schedules."""
    yield from table_page(COLUMNS, [_row(schedule, now) for schedule in page.items], NOTHING, page.next)


def portrait(schedule: ScheduleView) -> Iterator[str]:
    """Yield everything about a schedule."""
    yield f"{schedule.ref}  {_state(schedule)}"
    for name, value in _facts(schedule):
        if value:
            yield f"  {name:<10} {plain(value)}"
    if schedule.next_runs:
        yield from ("", "Next", *(f"  {time}" for time in _times(schedule.next_runs)))
    if schedule.prompt:
        yield from ("", "Told", *(f"  {plain(line)}" for line in schedule.prompt.splitlines()))


def planned(schedule: ScheduleView) -> Iterator[str]:
    """Yield what was made, and when it comes."""
    yield plain(f"{schedule.ref}: {schedule.agent} works {schedule.when} ({schedule.timezone}), in {_place(schedule)}")
    yield from (f"  {time}" for time in _times(schedule.next_runs))


def changed(schedule: ScheduleView) -> Iterator[str]:
    """Yield that something was changed, and when it comes next."""
    coming = f", and comes next {_clock(schedule.next_run)}" if schedule.next_run else ""
    yield plain(f"{schedule.ref} is changed{coming}")


def preview(found: PreviewView) -> Iterator[str]:
    """Yield a schedule in words, and when it comes."""
    yield f"{found.when} ({found.timezone})"
    yield from (f"  {time}" for time in _times(found.next_runs))
    if found.note:
        yield found.note


def backfilled(found: BackfillView) -> Iterator[str]:
    """Yield the times that are made up for, or would be."""
    if found.times:
        yield from lines(
            TIME_COLUMNS, [(moment(one.time), one.job_id, "ran" if one.ran else "") for one in found.times]
        )
    runs = f"{found.count} run{'' if found.count == 1 else 's'}"
    if not found.count:
        yield "There is nothing to make up for: no time of it passed without a run."
    elif found.preview:
        yield f"This would begin {runs}, one after the other."
    else:
        yield f"{runs} will be made, one after the other; `maestro jobs list` shows them."


def _row(schedule: ScheduleView, now: datetime) -> tuple[str, ...]:
    return (
        schedule.ref,
        schedule.name,
        schedule.agent,
        f"{schedule.when} ({schedule.timezone})",
        _place(schedule),
        _state(schedule),
        distance(schedule.next_run, now) if schedule.next_run else "-",
        _last(schedule.last_run, now),
        str(schedule.skipped),
        str(schedule.failures),
    )


def _facts(schedule: ScheduleView) -> Iterator[tuple[str, str]]:
    yield "name", schedule.name
    yield "agent", schedule.agent
    yield "when", f"{schedule.when}, written as {schedule.schedule!r} ({schedule.timezone})"
    yield "jitter", f"{schedule.jitter_seconds} s" if schedule.jitter_seconds else ""
    yield "posts in", _place(schedule)
    yield "script", schedule.script.model_dump_json() if schedule.script is not None else ""
    yield "stands", schedule.reason
    yield "Temporal", schedule.follow_error
    yield "last run", _outcome(schedule.last_run)
    yield "runs", f"{schedule.runs}, {schedule.skipped} skipped, {schedule.failures} failed in a row"
    yield "made", f"{moment(schedule.created_at)} by {schedule.created_by}"


def _state(schedule: ScheduleView) -> str:
    if schedule.state is ScheduleState.PAUSED and schedule.enabled:
        return f"paused: {schedule.reason}"
    return schedule.state.replace("_", " ")


def _place(schedule: ScheduleView) -> str:
    return "/".join(filter(None, (schedule.platform, schedule.channel, schedule.thread)))


def _last(run: LastRun | None, now: datetime) -> str:
    if run is None or run.created_at is None:
        return "-"
    return f"{distance(run.created_at, now)}: {run.status}"


def _outcome(run: LastRun | None) -> str:
    if run is None:
        return ""
    why = f" ({run.reason})" if run.reason else ""
    return f"{run.job_id}: {run.status or 'gone'} {moment(run.created_at)}{why}"


def _times(times: tuple[datetime, ...]) -> Iterator[str]:
    return (_clock(time) for time in times)


def _clock(time: datetime | None) -> str:
    """Show a time by the clock of its own zone."""
    return f"{time:%a %Y-%m-%d %H:%M:%S %Z}" if time is not None else "-"

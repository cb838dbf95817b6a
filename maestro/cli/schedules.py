"""List, show, add, edit, pause, run and remove heartbeats and crons.

With a heartbeat, an agent checks something at intervals and may stay silent. With a cron, an agent works at set times,
or once. The commands work whether Maestro runs or not; a running Maestro applies changes within a second.
docs/howto/schedule-work.md shows how to write a schedule.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from maestro.bootstrap.flow import build_schedule_operations
from maestro.cli.framework.commands import Fields, InputOptions, QueryOptions, load_settings, read_text
from maestro.cli.framework.operations import ACTOR, OperationCommands, open_context
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import (
    Columns,
    Portrait,
    Result,
    align_rows,
    channel_text,
    join_parts,
    local_time_text,
    plain_line,
    write_output,
)
from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.edits import (
    BackfillRequest,
    NewScheduleOfKind,
    ScheduleChange,
    ScheduleKind,
    SchedulePreviewRequest,
)
from maestro.domain.schedules.expressions import read_zone
from maestro.domain.schedules.views import SchedulePreview, ScheduleState, ScheduleView, describe_distance, preview_view
from maestro.domain.values import read
from maestro.installation.storage import store_exists
from maestro.operations.background import ScheduleOperations, ScheduleQuery

NOTHING = "No schedules match: `maestro schedules add` makes one."


def _state_text(schedule: ScheduleView) -> str:
    if schedule.state is ScheduleState.PAUSED and schedule.enabled:
        return f"paused: {schedule.reason}"
    return schedule.state.replace("_", " ")


def distance_text(time: datetime | None) -> str:
    return describe_distance(time, datetime.now(UTC)) if time else ""


def _clock_text(time: datetime) -> str:
    """Return a time as text, in the time zone that the time carries."""
    return f"{time:%a %Y-%m-%d %H:%M:%S %Z}"


def _when_text(schedule: ScheduleView | SchedulePreview) -> str:
    return f"{schedule.when} ({schedule.timezone})"


COLUMNS = Columns(
    "ref name agent when channel state next last skipped failures",
    {
        "when": _when_text,
        "channel": channel_text,
        "state": _state_text,
        "next": lambda schedule: distance_text(schedule.next_run),
        "last": lambda schedule: (
            (run := schedule.last_run) and join_parts(distance_text(run.created_at), run.status, separator=": ")
        ),
    },
)
PORTRAIT = Portrait(
    lambda schedule: f"{schedule.ref}  {_state_text(schedule)}",
    hide="ref schedule timezone state enabled next_run",
    lines_of={
        "when": lambda schedule: f"{schedule.when}, written as {schedule.schedule!r} ({schedule.timezone})",
        "next runs": lambda schedule: list(map(_clock_text, schedule.next_runs)),
        "last run": lambda schedule: (
            (run := schedule.last_run)
            and f"{run.job_id}: {run.status or 'gone'} {local_time_text(run.created_at)} {run.reason}"
        ),
    },
    text="prompt",
)
OPTIONS = InputOptions(
    NewScheduleOfKind,
    leave_out=["kind", "script", "enabled"],
    spelling={"schedule": "--when SCHEDULE", "timezone": "--zone ZONE", "jitter_seconds": "--jitter SECONDS"},
    prompt="prompt",
)

Ref = Annotated[str, "REF: The short name of the schedule, such as cron-3, as the list shows it."]
ScriptFile = Annotated[Path | None, "FILE: The JSON file with a heartbeat's script, which replaces the model call."]

app = OperationCommands(__doc__, lambda at: build_schedule_operations(at.store, at.live), Ref, "ref")
app.list("List heartbeats and crons, with their next and last runs.", COLUMNS, NOTHING, QueryOptions(ScheduleQuery))
app.show("Show a schedule: its prompt, its next five times, and its last run.", PORTRAIT)


@app.operation()
def add(
    schedules: ScheduleOperations,
    kind: Annotated[ScheduleKind, "KIND: heartbeat or cron."],
    options: Annotated[Fields, OPTIONS],
    script_file: ScriptFile = None,
) -> Result:
    """Add a schedule, and show its next times; --agent, --when, --channel and --prompt are needed."""
    fields = {"platform": "web", **options, **_script_field(script_file), "kind": kind}
    planned = schedules.add(read(NewScheduleOfKind, fields), ACTOR)
    line = plain_line(f"{planned.ref}: {planned.agent} works {_when_text(planned)}, in {channel_text(planned)}")
    return planned, [line, *(f"  {_clock_text(time)}" for time in planned.next_runs)]


@app.operation()
def edit(
    schedules: ScheduleOperations,
    ref: Ref,
    options: Annotated[
        Fields, replace(OPTIONS, resets={"script": ("--no-script", "Remove the script; the model gets the prompt.")})
    ],
    script_file: ScriptFile = None,
) -> Result:
    """Change a schedule; a new --when counts from now."""
    changed = schedules.change(ref, read(ScheduleChange, {**_script_field(script_file), **options}), ACTOR)
    return changed, _change_text(changed)


def _change_text(schedule: ScheduleView) -> str:
    next_run = f", and comes next {_clock_text(schedule.next_run)}" if schedule.next_run else ""
    return plain_line(f"{schedule.ref} is changed{next_run}")


app.switch("pause", "Pause a schedule until it is resumed.", " is paused", ScheduleChange(enabled=False))
app.switch(
    "resume",
    "Resume a schedule, whatever paused it; a schedule of a single run is planned again.",
    _change_text,
    ScheduleChange(enabled=True),
)
app.item_command(
    "run",
    "Start a run now, even while the schedule is paused, and print the id of the run's job.",
    lambda schedules, ref: schedules.run_now(ref, ACTOR),
    lambda begun: begun.job_id,
)


@app.operation()
def backfill(
    schedules: ScheduleOperations,
    ref: Ref,
    start: Annotated[str, "--from TIME: The first time, as 2026-11-20T09:00."],
    end: Annotated[str | None, "--to TIME: The last time; else now."] = None,
    preview_only: Annotated[bool, "--preview: Only show the runs that would start."] = False,
) -> Result:
    """Start a run for each missed time, at most 100; times are in the schedule's zone."""
    times = {
        "from": parse_time(start, "--from"),
        "to": parse_time(end, "--to") if end is not None else datetime.now(UTC),
    }
    zone = read_zone(schedules.show(ref).timezone)
    zoned = {name: time if time.tzinfo else time.replace(tzinfo=zone) for name, time in times.items()}
    backfilled = schedules.backfill(ref, read(BackfillRequest, {**zoned, "preview": preview_only}), ACTOR)
    rows = [(local_time_text(run.time), run.job_id, "ran" if run.ran else "") for run in backfilled.times]
    table = align_rows([("TIME", "JOB", ""), *rows]) if rows else ()
    runs = f"{backfilled.count} run{'' if backfilled.count == 1 else 's'}"
    outcome = f"{runs} will start, one after the other; `maestro jobs list` shows them."
    if not backfilled.count:
        outcome = "There is nothing to backfill: the schedule missed no run in this period."
    elif backfilled.preview:
        outcome = f"This would start {runs}, one after the other."
    return backfilled, [*table, outcome]


@app.command()
def preview(
    given: Given,
    schedule: Annotated[str, "SCHEDULE: When, as for `maestro schedules add --when`."],
    options: Annotated[Fields, InputOptions(SchedulePreviewRequest, leave_out=["schedule"], spelling=OPTIONS.spelling)],
) -> None:
    """Describe a schedule, and show its next five times, without storing it."""
    request = read(SchedulePreviewRequest, {"schedule": schedule, **options})
    settings = load_settings(given, accounts=False).settings
    if store_exists(settings):  # operators may have changed the shortest interval while Maestro ran
        with open_context(given) as at:
            settings = at.live.current()
    view = preview_view(request, datetime.now(UTC), settings.schedules.shortest)
    lines = [_when_text(view), *(f"  {_clock_text(time)}" for time in view.next_runs), view.note]
    write_output(view, filter(None, lines), given.as_json)


app.remove("Remove a schedule; its jobs stay, and a running job goes on.")


def parse_time(text: str, option: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00", param_hint=option) from None


def _script_field(file: Path | None) -> Fields:
    """Return the field ``script`` with the JSON of a file, or no field without a file."""
    if file is None:
        return {}
    try:
        return {"script": json.loads(read_text(file))}
    except (ValueError, RecursionError):
        raise InvalidEdit(f"{file} is no JSON; a script is an object with url, template and condition") from None

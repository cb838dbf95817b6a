"""``maestro schedules``: what agents do by the clock."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from maestro.bootstrap.operations import open_schedules
from maestro.cli import schedule_texts
from maestro.cli.configured import configured
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.operation_commands import OperationCommands
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, TextCursor
from maestro.cli.schedule_options import JITTER_HELP, WHEN_HELP, ZONE_HELP, Ref, ScheduleEdits, ScheduleOptions, span
from maestro.domain.reading import read
from maestro.domain.schedules.edits import BackfillWish, NewScheduleOfKind, PreviewWish, ScheduleChange, ScheduleKind
from maestro.domain.schedules.views import (
    ScheduleFilter,
    ScheduleState,
    preview_view,
)
from maestro.operations.inputs import LIMIT
from maestro.operations.schedules import ScheduleOperations

HELP = """List, show, add, edit, pause, run and remove heartbeats and crons.

A heartbeat has an agent look after something every so often, and it may have nothing to say; a cron has it do something
at set times, or once. All of this works whether Maestro runs or not; a running one follows within a second.
docs/howto/schedule-work.md shows how.
"""


def _operations(at: Opened) -> ScheduleOperations:
    return open_schedules(at.store, at.live)


app = OperationCommands(HELP, _operations, field="ref", ref=Ref)


@app.command("list")
def list_schedules(
    given: Given,
    kind: Annotated[ScheduleKind | None, typer.Option(help="Only these.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="SLUG", help="Only those of this agent.")] = None,
    state: Annotated[ScheduleState | None, typer.Option(help="Only these.")] = None,
    limit: Limit = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """List heartbeats and crons, with their next and last runs."""
    wanted = ScheduleFilter(kind=kind, agent=agent, state=state)
    with opened(given) as at:
        page = _operations(at).page(wanted, limit, cursor)
    write(page, schedule_texts.listing(page, datetime.now(UTC)), given.as_json)


app.one(
    "show",
    "Show a schedule: what is done when, its next five times, and what came of it.",
    ScheduleOperations.show,
    schedule_texts.portrait,
)


@app.command()
def add(
    given: Given,
    kind: Annotated[ScheduleKind, typer.Argument(metavar="KIND", help="heartbeat or cron.")],
    options: ScheduleOptions,
) -> None:
    """Plan something, and show when it comes; --agent, --when, --channel and --prompt are needed."""
    with opened(given) as at:
        new = read(NewScheduleOfKind, {"platform": "web", **options.fields(), "kind": kind})
        schedule = _operations(at).add(new, ACTOR)
    write(schedule, schedule_texts.planned(schedule), given.as_json)


app.edit(
    "Change a schedule; another --when counts from now.",
    ScheduleOperations.change,
    ScheduleChange,
    ScheduleEdits,
    schedule_texts.changed,
)
app.change(
    "pause",
    "Let a schedule rest until it is resumed.",
    ScheduleOperations.change,
    ScheduleChange(enabled=False),
    " is paused",
)
app.change(
    "resume",
    "Let a schedule run again, whoever paused it; what was to run once is planned again.",
    ScheduleOperations.change,
    ScheduleChange(enabled=True),
    schedule_texts.changed,
)
app.one(
    "run",
    "Begin a run now, beside the schedule and also while it is paused, and print its job's id.",
    lambda schedules, ref: schedules.run_now(ref, ACTOR),
    lambda begun: [begun.job_id],
)


@app.command()
def backfill(
    given: Given,
    ref: Ref,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first time, as 2026-11-20T09:00.")],
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The last time; else now.")] = None,
    preview_only: Annotated[bool, typer.Option("--preview", help="Only show what would be run.")] = False,
) -> None:
    """Make up for times that passed without a run, at most 100; times are in the schedule's zone."""
    stretch = span(start, end, datetime.now(UTC))
    with opened(given) as at:
        with at.store.view() as tx:
            ends = stretch.within(tx.background.schedules.get(ref).zone)
        found = _operations(at).backfill(ref, read(BackfillWish, {**ends, "preview": preview_only}), ACTOR)
    write(found, schedule_texts.backfilled(found), given.as_json)


@app.command()
def preview(
    given: Given,
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help=WHEN_HELP)],
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help=ZONE_HELP)] = "UTC",
    jitter: Annotated[int, typer.Option("--jitter", metavar="SECONDS", help=JITTER_HELP)] = 0,
) -> None:
    """Say a schedule in words, and show its next five times, without planning anything."""
    wish = read(PreviewWish, {"schedule": schedule, "timezone": zone, "jitter_seconds": jitter})
    settings = configured(given, accounts=False).settings
    if settings.database.exists():  # the shortest interval may have been set while Maestro ran
        with opened(given) as at:
            settings = at.live.current()
    found = preview_view(wish, datetime.now(UTC), settings.schedules.shortest)
    write(found, schedule_texts.preview(found), given.as_json)


app.remove("Remove a schedule; its jobs stay, and one that runs goes on.", ScheduleOperations.remove)

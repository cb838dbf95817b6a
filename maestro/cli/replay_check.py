"""``maestro replay-check``: check that this release can continue the workflows of the one that runs."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands, load_settings, read_time
from maestro.cli.framework.options import TEMPORAL_PORT, Given
from maestro.cli.framework.output import plain_line, write_output
from maestro.installation.data_folder import embedded_server_of
from maestro.settings import Settings
from maestro.settings.addresses import temporal_endpoint
from temporal.client import data_converter
from temporal.endpoint import Endpoint
from temporal.engine import WORKFLOW_TYPES
from temporal.histories import ClusterHistories, find_files, read_files, save_histories
from temporal.replay_check import ReplayCheck, ReplayReport
from temporal.sdk import configure_sdk
from temporal.server_process import HOST

DEFAULT_AGE = timedelta(hours=24)
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
PROGRESS_SECONDS = 5.0
FIX = (
    "Workflows of the running release that reach this point fail, and their jobs get a new run. Guard the change with "
    "workflow.patched, or let the old workers finish: docs/howto/upgrade-without-downtime.md."
)

app = Commands()


def _read_since(text: str) -> datetime:
    """Parse an age such as 24h, or a time."""
    age = re.fullmatch(r"(\d{1,4})([mhdw])", text.strip())
    return datetime.now(UTC) - timedelta(**{UNITS[age[2]]: int(age[1])}) if age else read_time(text)


@app.command(ports=[TEMPORAL_PORT])
def replay_check(
    given: Given,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files with histories, or folders of such files, as JSON."),
    ] = None,
    since: Annotated[
        str | None, "AGE: Check workflows that began or ended since then, and all that are open: 24h (default), a time."
    ] = None,
    save: Annotated[Path | None, "FOLDER: Also write each history that is read from Temporal into this folder."] = None,
) -> None:
    """Replay the histories of workflows against this release, and say at which command one goes another way.

    Without files, the histories are read from Temporal. Run the command with the new release and the settings of the
    running one, before the new release starts. It changes nothing, and needs neither the store nor a worker. It exits
    with 1 if a workflow breaks or a history cannot be read.
    """
    if files and (since or save):
        raise typer.BadParameter("files have no use for --since and --save; leave them out, or leave out the files")
    at = _read_since(since) if since else datetime.now(UTC) - DEFAULT_AGE
    settings = load_settings(given, accounts=False).settings
    configure_sdk()
    logging.getLogger("temporalio").addHandler(logging.NullHandler())  # the report says it in fewer words
    report = asyncio.run(_check_files(settings, files) if files else _check_cluster(settings, at, save))
    write_output(report, _report_lines(report), given.as_json)
    raise typer.Exit(0 if report.ok else 1)


async def _check_files(settings: Settings, paths: list[Path]) -> ReplayReport:
    files = find_files(paths)
    check = ReplayCheck(WORKFLOW_TYPES, data_converter(temporal_endpoint(settings)))
    return await check.replay(read_files(files), _progress_writer(len(files)))


async def _check_cluster(settings: Settings, since: datetime, folder: Path | None) -> ReplayReport:
    endpoint = _running_endpoint(settings)
    histories = await ClusterHistories.connect(endpoint, settings.temporal.task_queue, since)
    total = await histories.count()
    runs = histories.read() if folder is None else save_histories(histories.read(), folder)
    return await ReplayCheck(WORKFLOW_TYPES, data_converter(endpoint)).replay(runs, _progress_writer(total))


def _running_endpoint(settings: Settings) -> Endpoint:
    """Return the address of Temporal; an embedded server may run at another port than the configured one."""
    endpoint = temporal_endpoint(settings)
    server = embedded_server_of(settings.data_dir) if settings.temporal.embedded else None
    return replace(endpoint, address=f"{HOST}:{server.port}") if server is not None else endpoint


def _progress_writer(total: int) -> Callable[[int], None]:
    """Return a function that writes the progress to standard error, at most once in five seconds."""
    last = time.monotonic()

    def write(count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_SECONDS:
            last = time.monotonic()
            typer.echo(f"Replayed {count:,} of {max(total, count):,} histories.", err=True)

    return write


def _report_lines(report: ReplayReport) -> Iterator[str]:
    for unreadable in report.unreadable:
        yield plain_line(f"UNREADABLE  {unreadable.source}: {unreadable.reason}")
    for broken in report.broken:
        state = "open" if broken.is_open else "closed"
        yield plain_line(f"BROKEN  {broken.workflow_type} {broken.workflow_id} (run {broken.run_id}, {state})")
        if broken.source:
            yield plain_line(f"  file: {broken.source}")
        where = "after the last event" if broken.event_id is None else f"event {broken.event_id}"
        yield plain_line(f"  {where}: the history has {broken.expected or 'no command'}")
        yield plain_line(f"  this code makes {broken.made or 'no command'}")
        yield plain_line(f"  Temporal: {broken.reason}")
    replayed = sum(report.replayed.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.replayed.items())
    yield f"Replayed {replayed} histories{f': {kinds}' if kinds else ''}; {report.open_workflows} workflows are open."
    if report.not_begun:
        yield f"Left out: {report.not_begun} that have not begun; any code can run them."
    if report.failed_before:
        yield f"Left out: {report.failed_before} that an earlier release failed for the same reason."
    if report.broken:
        yield f"{len(report.broken)} of {replayed} cannot go on with this code. {FIX}"
    elif report.ok:
        yield "Nothing to replay." if not replayed else "All of them go on with this code."

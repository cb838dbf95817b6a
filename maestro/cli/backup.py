"""``maestro backup``, ``restore`` and ``fsck``: copy an installation, bring it back, and find contradictions in it."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands, load_settings
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import plain_line, write_output
from maestro.diagnostics.consistency import check_consistency
from maestro.domain.consistency import ConsistencyReport
from maestro.installation.backup import BackupReport, make_backup
from maestro.installation.restore import RestoreOptions, RestoreReport, restore_backup
from maestro.settings.addresses import temporal_endpoint

backup, restore, fsck = Commands(), Commands(), Commands()

SECONDS_BETWEEN = 0.2


@backup.command("backup")
def back_up(
    given: Given,
    file: Annotated[Path, "FILE: The archive to write, such as maestro.tar.gz."],
    keys: Annotated[
        bool | None,
        typer.Option(
            "--with-keys/--without-keys",
            help="Whether the archive contains signing.key and secrets.key, which open the keys of accounts in it.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, "--force: Replace an existing file."] = False,
) -> None:
    """Write store, media and keys to one archive, beside a running Maestro; `maestro restore` reads it.

    The archive has the messages of users in plain text, so only you can read it: keep it so. A backup of one database
    (SQLite or PostgreSQL) can be restored into the other one. The file appears when it is complete.
    """
    if keys is None:
        raise typer.BadParameter(
            "choose whether the archive contains the keys that open accounts", param_hint="--with-keys / --without-keys"
        )
    settings = load_settings(given, accounts=False).settings
    with _Progress(given.as_json) as progress:
        done = make_backup(settings, file.absolute(), progress, keys=keys, replace=force)
    write_output(done, _backup_lines(done), given.as_json)


def _backup_lines(done: BackupReport) -> Iterator[str]:
    media = f"{done.media} media files ({done.media_bytes / 1000**2:.1f} MB)"
    keys = f"the keys {' and '.join(done.keys)}" if done.keys else "no keys"
    size = f"{done.bytes / 1000**2:.1f} MB"
    yield f"Wrote {done.file} ({size}): {done.rows} rows of {done.tables} tables, {media}, {keys}."
    if done.missing:
        yield (
            f"{done.missing} files that rows name are not in the media folder: removed while the backup ran, or lost. "
            "`maestro fsck` names those that are lost."
        )


@restore.command("restore")
def bring_back(
    given: Given,
    file: Annotated[Path, "FILE: The archive of `maestro backup`."],
    replace: Annotated[bool, "--replace: Set a present installation aside; nothing of it is deleted."] = False,
    hold: Annotated[bool, "--hold-open-jobs: Let jobs that were open fail, instead of continuing them."] = False,
    skip_temporal: Annotated[bool, "--skip-temporal: Do not end the workflows in your Temporal cluster."] = False,
) -> None:
    """Restore a backup into an empty data folder or database, while no process of Maestro runs.

    The archive is verified first, and an archive of an earlier release is migrated. Jobs that were open continue; where
    their answer may have been sent after the backup, the platform is asked, or the rule onAmbiguous decides.
    """
    settings = load_settings(given, accounts=False).settings
    options = RestoreOptions(replace, hold, skip_temporal)
    with _Progress(given.as_json) as progress:
        done = restore_backup(settings, file.absolute(), progress, options)
    write_output(done, _restore_lines(done), given.as_json)


def _restore_lines(done: RestoreReport) -> Iterator[str]:
    made = f"{done.backed_up_at:%Y-%m-%d %H:%M:%S} UTC by release {done.release}"
    yield f"Restored {done.database} from the backup of {made}: {done.rows} rows, {done.media} media files."
    if done.set_aside:
        yield f"The installation before it is in {done.set_aside}; delete it when you no longer need it."
    if done.open_jobs:
        yield f"{done.open_jobs} jobs were open; {done.chunks} parts of their answers may have been sent since."
    if done.ended_workflows:
        yield f"Ended {done.ended_workflows} workflows of the replaced store in Temporal."
    if done.foreign_keys:
        yield (
            "Keys of accounts in this store were encrypted with another secrets.key: put that file into the data "
            "folder, or enter the keys again with `maestro accounts`."
        )
    yield "Next: `maestro fsck` checks it, `maestro up` (or worker, api and connect) starts it."


@fsck.command("fsck")
def check_everything(
    given: Given,
    repair: Annotated[bool, "--repair: Compute anew what follows from other rows: indexes, sums, counters."] = False,
) -> None:
    """Compare store, Temporal and media with each other; exit with 1 if something contradicts.

    The command may run beside a running Maestro: what it finds counts only if a second look confirms it. Without
    --repair it changes nothing.
    """
    settings = load_settings(given, accounts=False).settings
    with _Progress(given.as_json) as progress:
        report = check_consistency(settings, temporal_endpoint(settings), progress, repair=repair)
    write_output(report, _finding_lines(report), given.as_json)
    raise typer.Exit(0 if report.ok else 1)


def _finding_lines(report: ConsistencyReport) -> Iterator[str]:
    for finding in report.findings:
        yield f"{finding.check}: {plain_line(finding.problem)}"
        yield f"  -> {plain_line(finding.fix)}"
    for sentence in report.repaired:
        yield f"Repaired: {sentence}."
    for reason in report.skipped:
        yield f"Not checked: {reason}"
    count = len(report.findings)
    checked = f"No contradiction found in {', '.join(report.checks)}."
    yield f"{count} finding{'' if count == 1 else 's'}." if count else checked


class _Progress:
    """Shows the last text in one line of a terminal, and nothing elsewhere."""

    def __init__(self, silent: bool) -> None:
        self._shown = not silent and sys.stderr.isatty()
        self._next = 0.0

    def __enter__(self) -> Callable[[str], None]:
        return self._show

    def __exit__(self, *_error: object) -> None:
        if self._shown and self._next:
            typer.echo("\r\x1b[K", nl=False, err=True)

    def _show(self, text: str) -> None:
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN
            typer.echo(f"\r\x1b[K{plain_line(text)}", nl=False, err=True)

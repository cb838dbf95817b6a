"""Restores a backup into an empty installation, of either database, and prepares it for the first start (ADR 46)."""

import asyncio
import io
import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from maestro.domain.errors import ConfigurationError, DataFolderBusy, TemporalUnavailable
from maestro.domain.values import Value
from maestro.installation.archive import (
    KEYS,
    MEDIA,
    TABLES,
    BackupArchive,
    BackupHeader,
    BackupSummary,
    InvalidBackup,
    sync_folder,
    table_of_member,
)
from maestro.installation.backup import Report, identify_key
from maestro.installation.data_folder import (
    DataFolder,
    KeyName,
    close_to_others,
    embedded_server_of,
    encryption_file,
    signing_key_file,
)
from maestro.installation.storage import open_files
from maestro.settings import Settings
from maestro.settings.addresses import temporal_endpoint
from maestro.store.engine.copying import TableCopier, TableForm
from maestro.store.engine.database import administer, name_of
from maestro.store.engine.schema import list_revisions, run_migrations
from maestro.store.files import MediaFolder
from maestro.store.restored import RestoredJobs, settle_restored_rows
from temporal.executions import check_endpoint, terminate_workflows
from temporal.server_process import ServerProcess

PATIENCE = 3.0
PAUSE = 0.1
GRACE = 10.0
"""Seconds that an embedded server of an earlier run has to end."""


@dataclass(frozen=True)
class RestoreOptions:
    """The decisions of an operator about a restore.

    ``replace`` sets the present installation aside. ``hold`` lets jobs that were open fail instead of continuing them.
    ``skip_temporal`` leaves the workflows of a Temporal cluster as they are.
    """

    replace: bool = False
    hold: bool = False
    skip_temporal: bool = False


class RestoreReport(Value):
    """A completed restore.

    ``open_jobs`` were open in the backup, and ``chunks`` of them may have been sent since. ``set_aside`` is the folder
    or schema that has the replaced installation. ``ended_workflows`` were open in Temporal. ``foreign_keys`` says that
    keys of accounts in the store were encrypted with another key than this installation's.
    """

    database: str
    release: str
    backed_up_at: datetime
    rows: int
    media: int
    open_jobs: int
    chunks: int
    set_aside: str
    ended_workflows: int
    keys: tuple[str, ...]
    foreign_keys: bool


def restore_backup(settings: Settings, file: Path, report: Report, options: RestoreOptions) -> RestoreReport:
    """Restore a backup, and prepare its open jobs for the first start.

    The archive is verified before anything changes, and the database appears complete or not at all. Raises
    ``InvalidBackup`` for an unusable archive, ``DataFolderBusy`` while processes of Maestro run, and
    ``ConfigurationError`` if the installation is not empty.
    """
    work = _Restore(settings, BackupArchive(file), report, options)
    header, summary = work.header, work.summary
    with DataFolder(settings.data_dir):
        _require_empty(settings, file, options)
        cluster = None if settings.temporal.embedded or options.skip_temporal else _Cluster(settings)
        jobs = work.run()
        ended = cluster.end_workflows(header.created_at) if cluster is not None else 0
    return RestoreReport(
        database=name_of(settings.database),
        release=header.release,
        backed_up_at=header.created_at,
        rows=sum(summary.rows.values()),
        media=work.media,
        open_jobs=jobs.open,
        chunks=jobs.chunks,
        set_aside=work.set_aside,
        ended_workflows=ended,
        keys=tuple(work.keys),
        foreign_keys=header.encryption not in ("", identify_key(settings, KeyName.SECRETS)),
    )


def _verify(archive: BackupArchive, report: Report) -> BackupSummary:
    for size, summary in archive.verify():
        report(f"verifying: {size / 1000**2:.0f} MB")
        if summary is not None:
            return summary
    raise AssertionError("an archive is verified to its summary")


def _require_known_revision(file: Path, header: BackupHeader) -> None:
    known = list_revisions()
    if header.revision not in known:
        later = header.revision > known[-1]
        fix = "Install that release, or a newer one" if later else "Restore it with that release, and upgrade then"
        raise InvalidBackup(
            f"{file} was made by release {header.release} (schema {header.revision}), which is "
            f"{'newer' if later else 'older'} than this release can read. {fix}."
        )


def _require_empty(settings: Settings, file: Path, options: RestoreOptions) -> None:
    """Raise ``ConfigurationError`` if the database has tables and must not be replaced."""
    database = settings.database
    if isinstance(database, Path):
        occupied = database.exists() and database.stat().st_size > 0
    else:
        with administer(database) as connection:
            occupied = TableCopier(connection).has_tables()
    if occupied and not options.replace:
        raise ConfigurationError(
            f"{name_of(database)} has a database already. Restore into an empty one (dataDir or store.url), or set "
            f"this one aside with `maestro restore --replace {file}`."
        )


class _Restore:
    """One restore: fills the database, the media folder and the keys from an archive."""

    def __init__(self, settings: Settings, archive: BackupArchive, report: Report, options: RestoreOptions) -> None:
        """Verify the archive; raises ``InvalidBackup``."""
        self._settings = settings
        self._archive = archive
        self._report = report
        self._options = options
        self.header = archive.read_header()
        _require_known_revision(archive.path, self.header)
        self.summary = _verify(archive, report)
        self._now = datetime.now(UTC)
        self._aside = f"before-restore-{self._now:%Y%m%dT%H%M%SZ}"
        self._moved: list[str] = []
        self.media = 0
        self.keys: dict[str, bytes] = {}

    @property
    def set_aside(self) -> str:
        """Where the installation is that was replaced; empty without one."""
        return " and ".join(dict.fromkeys(self._moved))

    def run(self) -> RestoredJobs:
        """Fill the database, and put everything in its place."""
        database = self._settings.database
        if not isinstance(database, Path):
            with administer(database, write=True) as connection:
                copier = TableCopier(connection)
                self._require_alone(copier)
                jobs = self._fill(copier)
            self._put_files_in_place()
            return jobs
        fresh = database.with_name(f"{database.name}.restoring")
        _delete_database(fresh)
        try:
            with administer(fresh, write=True) as connection:
                jobs = self._fill(TableCopier(connection))
            self._put_files_in_place()
            fresh.replace(database)
            sync_folder(database.parent)
            close_to_others(database.parent.glob(f"{database.name}*"))
        finally:
            _delete_database(fresh)
        return jobs

    def _fill(self, copier: TableCopier) -> RestoredJobs:
        """Create the tables of the archive's release, fill them, and migrate them to this release."""
        if self._options.replace and copier.has_tables():
            schema = self._aside.replace("-", "_").lower()
            copier.move_tables(schema)
            self._moved.append(f"the schema {schema}")
        run_migrations(copier.connection, self.header.revision)
        forms = {table.name: table for table in self.header.list_tables()}
        copier.begin_loading(list(forms.values()))
        self._read_members(copier, forms)
        for table, expected in self.summary.rows.items():
            if copier.count_rows(table) != expected:
                raise InvalidBackup(f"{self._archive.path} has {expected} rows of {table}, and not all were restored.")
        copier.end_loading(self.header.counters)
        run_migrations(copier.connection)
        jobs = settle_restored_rows(copier.connection, self.header.created_at, self._now, hold=self._options.hold)
        copier.renew_row_versions()
        return jobs

    def _read_members(self, copier: TableCopier, forms: Mapping[str, TableForm]) -> None:
        folder = open_files(self._settings)
        for name, file in self._archive.read_members():
            if name.startswith(TABLES):
                table = table_of_member(name)
                self._report(f"restoring {table}")
                copier.add_rows(forms[table], (json.loads(line) for line in file))
            elif name.startswith(MEDIA):
                self._add_media(folder, name.removeprefix(MEDIA), file)
            elif name.startswith(KEYS):
                self.keys[name.removeprefix(KEYS)] = file.read()

    def _add_media(self, folder: MediaFolder, digest: str, file: BinaryIO) -> None:
        self.media += 1
        self._report(f"restoring media: {self.media} files")
        if folder.has_file(digest):
            return
        with folder.create_temporary_folder() as temporary:
            with (temporary / "content").open("wb") as target:
                shutil.copyfileobj(file, target, io.DEFAULT_BUFFER_SIZE * 16)
            folder.move_in(temporary / "content")

    def _put_files_in_place(self) -> None:
        """Set the files of the earlier installation aside, and write the keys of the archive."""
        settings, folder = self._settings, self._settings.data_dir
        asyncio.run(_end_earlier_server(folder))
        database = settings.database
        old = list(database.parent.glob(f"{database.name}*")) if isinstance(database, Path) else []
        old = [path for path in old if ".restoring" not in path.name]
        files = {KeyName.SIGNING: signing_key_file(settings), KeyName.SECRETS: encryption_file(settings)}
        # A key in the settings counts instead of a file.
        places = {path.name: path for name, path in files.items() if not getattr(settings.keys, name)}
        keys = {places[name]: key for name, key in self.keys.items() if name in places}
        replaced = [path for path, key in keys.items() if path.is_file() and path.read_bytes() != key]
        for path in itertools.chain(old, folder.glob("temporal.db*"), replaced):
            aside = folder / self._aside
            aside.mkdir(mode=0o700, exist_ok=True)
            path.replace(aside / path.name)
            self._moved.append(str(aside))
        for path, key in keys.items():
            _write_key(path, key)

    def _require_alone(self, copier: TableCopier) -> None:
        until = time.monotonic() + PATIENCE
        # A server notices the end of a killed process a moment later.
        while (others := copier.describe_other_processes()) and time.monotonic() < until:
            time.sleep(PAUSE)
        if others:
            raise DataFolderBusy(
                f"{name_of(self._settings.database)} is in use by processes of Maestro: {others}. Stop them first, on "
                "all hosts."
            )


class _Cluster:
    """The Temporal cluster of an installation, which must be reachable before a restore changes anything."""

    def __init__(self, settings: Settings) -> None:
        self._endpoint, self._queue = temporal_endpoint(settings), settings.temporal.task_queue
        try:
            asyncio.run(check_endpoint(self._endpoint))
        except TemporalUnavailable as error:
            raise TemporalUnavailable(
                f"{error} A restore ends the workflows of the replaced store: start Temporal first, or give "
                "--skip-temporal if that cluster has none of them."
            ) from None

    def end_workflows(self, backed_up_at: datetime) -> int:
        """Terminate the workflows of the store that was replaced; jobs of the restored store get new ones."""
        reason = f"the store was restored from a backup of {backed_up_at:%Y-%m-%d %H:%M} UTC"
        return asyncio.run(terminate_workflows(self._endpoint, self._queue, reason))


async def _end_earlier_server(folder: Path) -> None:
    """End the embedded server of a killed process: its workflows belong to the store that is replaced."""
    record = embedded_server_of(folder)
    if record is not None:
        await ServerProcess(record).end_process(GRACE)


def _delete_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _write_key(path: Path, key: bytes) -> None:
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)

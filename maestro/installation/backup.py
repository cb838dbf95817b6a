"""Makes a backup of store, media and keys beside running processes (ADR 46)."""

import io
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

from maestro.domain.errors import ConfigurationError, NotFound
from maestro.domain.release import release
from maestro.domain.values import Value
from maestro.installation.archive import (
    HEADER,
    KEYS,
    MEDIA,
    MOST_LISTED,
    ArchiveWriter,
    BackupHeader,
    BackupSummary,
    create_complete_file,
)
from maestro.installation.data_folder import KeyName, encryption_file, fingerprint_of, has_key, signing_key_file
from maestro.installation.storage import open_files, store_exists
from maestro.settings import Settings
from maestro.store.consistency import MEDIA_COLUMNS
from maestro.store.engine.copying import TableCopier
from maestro.store.engine.database import administer, name_of
from maestro.store.engine.schema import read_revision, require_release

Report = Callable[[str], None]
"""Called with a short text about the progress, several times a second at most."""


class BackupReport(Value):
    """A completed backup: its file with its size in bytes, and what the file contains.

    ``missing`` is the number of media files that rows name and that the media folder does not have.
    """

    file: Path
    bytes: int
    release: str
    revision: str
    created_at: datetime
    tables: int
    rows: int
    media: int
    media_bytes: int
    missing: int
    keys: tuple[str, ...]


def make_backup(settings: Settings, file: Path, report: Report, *, keys: bool, replace: bool) -> BackupReport:
    """Write a backup of the installation to a file, in constant memory, beside running processes.

    The rows are those of one moment. Media files are copied after them by their digests: a file that came later does no
    harm, and one that was deleted meanwhile is counted. Raises ``ConfigurationError`` without a store, or if the file
    exists or cannot be written.
    """
    if not store_exists(settings):
        raise ConfigurationError(f"there is no Maestro database at {name_of(settings.database)}: nothing to back up.")
    with create_complete_file(file, replace=replace) as target:
        header, summary = _Backup(settings, report).write(target, keys=keys)
    return BackupReport(
        file=file,
        bytes=file.stat().st_size,
        tables=len(header.tables),
        rows=sum(summary.rows.values()),
        missing=summary.missing_count,
        **header.model_dump(include={"release", "revision", "created_at"}),
        **summary.model_dump(include={"media", "media_bytes", "keys"}),
    )


class _Backup:
    """One backup of an installation."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._now = datetime.now(UTC)
        self._rows: dict[str, int] = {}

    def write(self, target: BinaryIO, *, keys: bool) -> tuple[BackupHeader, BackupSummary]:
        """Write the archive, and return its first and its last member."""
        with tempfile.TemporaryFile() as digests, tempfile.TemporaryFile() as checksums:
            writer = ArchiveWriter(target, self._now, checksums)
            header = self._add_store(writer, digests)
            # The snapshot is closed here, so that large media files do not keep the database from cleaning up.
            digests.seek(0)
            media = self._add_media(writer, digests)
            names = tuple(self._add_keys(writer)) if keys else ()
            done = {"rows": self._rows, "keys": names, "members": writer.members, "size": writer.size}
            summary = BackupSummary.model_validate({**media, **done})
            writer.finish(summary)
        return header, summary

    def _add_store(self, writer: ArchiveWriter, digests: IO[bytes]) -> BackupHeader:
        """Add the rows of one snapshot, and write the digests of the media files that they name."""
        settings, database = self._settings, self._settings.database
        revision = read_revision(database)
        with administer(database) as connection:
            require_release(connection, database)
            copier = TableCopier(connection)
            tables = copier.list_tables()
            header = BackupHeader(
                release=release(),
                revision=revision,
                created_at=self._now,
                database=connection.dialect.name,
                tables={table.name: table.columns for table in tables},
                counters=copier.read_counters(),
                encryption=identify_key(settings, KeyName.SECRETS),
                instance=identify_key(settings, KeyName.SIGNING),
            )
            writer.add_content(HEADER, header.model_dump_json(indent=1).encode())
            for number, table in enumerate(tables):
                for count in writer.add_rows(number, table, copier.read_rows(table)):
                    self._rows[table.name] = count
                    self._report(f"{table.name}: {count} rows")
            digests.writelines(f"{digest}\n".encode() for digest in copier.read_digests(MEDIA_COLUMNS))
        return header

    def _add_media(self, writer: ArchiveWriter, digests: IO[bytes]) -> dict[str, object]:
        """Add the media files with these digests; return their numbers for the summary."""
        files, missing, missing_count, media, size = open_files(self._settings), [], 0, 0, 0
        for line in digests:
            digest = line.decode().strip()
            try:
                with files.open_file(digest) as file:
                    length = file.seek(0, io.SEEK_END)
                    file.seek(0)
                    writer.add_stream(f"{MEDIA}{digest}", file, length)
            except NotFound:
                missing_count += 1
                if missing_count <= MOST_LISTED:
                    missing.append(digest)
                continue
            media, size = media + 1, size + length
            self._report(f"media: {media} files, {size / 1000**2:.0f} MB")
        return {"media": media, "media_bytes": size, "missing": missing, "missing_count": missing_count}

    def _add_keys(self, writer: ArchiveWriter) -> Iterator[str]:
        for path in (signing_key_file(self._settings), encryption_file(self._settings)):
            if path.is_file():
                writer.add_content(f"{KEYS}{path.name}", path.read_bytes())
                yield path.name


def identify_key(settings: Settings, name: KeyName) -> str:
    """Return the fingerprint of a key, empty without the key."""
    return fingerprint_of(settings, name) if has_key(settings, name) else ""

"""The archive of a backup: a compressed tar file whose last member says that it is complete (ADR 46)."""

import errno
import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from pydantic import ValidationError

from maestro.domain.errors import ConfigurationError
from maestro.domain.values import Value
from maestro.store.engine.copying import TableForm

FORMAT = 1
"""The number of the archive's format; a release reads the formats up to its own."""

HEADER = "backup.json"
CHECKSUMS = "SHA256SUMS"
SUMMARY = "complete.json"
TABLES = "tables/"
MEDIA = "media/"
KEYS = "keys/"

CHUNK_BYTES = 1024**2
"""Bytes of rows after which a table continues in another member, so that memory does not grow with the store."""
BLOCK_BYTES = 1024**2
COMPRESSION = 3
"""Little more than half the CPU time of gzip's default, for files a tenth larger."""
MOST_LISTED = 1000
"""The most media files that the summary lists by name."""

DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
"""The errors of a file that is no archive, or only a part of one."""


class InvalidBackup(ConfigurationError):
    """A backup is damaged, incomplete, or of another kind; the message names the fix."""


class BackupHeader(Value):
    """The first member of an archive: what made it, and the form of its tables.

    ``revision`` is the schema's revision of the database; ``contract`` is 0 for releases without that number.
    ``counters`` has the highest id that each table has ever assigned. ``encryption`` identifies the secrets key with
    which keys in the tables are encrypted, and ``instance`` the signing key; both are empty without that key.
    """

    format: int = FORMAT
    release: str
    revision: str
    contract: int = 0
    created_at: datetime
    database: str
    tables: Mapping[str, Mapping[str, str]]
    counters: Mapping[str, int]
    encryption: str = ""
    instance: str = ""

    def list_tables(self) -> Sequence[TableForm]:
        """Return the forms of all tables, in the order in which they are filled."""
        return [TableForm(name, columns) for name, columns in self.tables.items()]


class BackupSummary(Value):
    """The last member of an archive, which only a complete archive has.

    ``members`` and ``size`` (bytes before compression) count all members before the checksums. ``missing`` are the
    media files that rows name and the media folder does not have, at most a thousand of ``missing_count``.
    """

    members: int
    size: int
    rows: Mapping[str, int]
    media: int
    media_bytes: int
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    keys: tuple[str, ...] = ()


class ArchiveWriter:
    """Writes the members of an archive in order, with a checksum for each."""

    def __init__(self, file: BinaryIO, at: datetime, checksums: IO[bytes]) -> None:
        """``checksums`` is an empty temporary file."""
        self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._packed, mode="w", format=tarfile.GNU_FORMAT)
        self._at = int(at.timestamp())
        self._checksums = checksums
        self.members = 0
        self.size = 0

    def add_content(self, name: str, content: bytes) -> None:
        """Add a member with this content."""
        self._add(name, io.BytesIO(content), len(content))

    def add_stream(self, name: str, file: BinaryIO, size: int) -> None:
        """Add a member with the next ``size`` bytes of an open file."""
        self._add(name, file, size)

    def add_rows(self, number: int, table: TableForm, rows: Iterable[Sequence[Any]]) -> Iterator[int]:
        """Add the rows of a table as lines of JSON; yield the number of rows after each member."""
        count, part, lines = 0, 0, io.BytesIO()
        for row in rows:
            lines.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            count += 1
            if lines.tell() >= CHUNK_BYTES:
                self.add_content(_member_of(number, table, part), lines.getvalue())
                part, lines = part + 1, io.BytesIO()
                yield count
        if lines.tell():
            self.add_content(_member_of(number, table, part), lines.getvalue())
        yield count

    def finish(self, summary: BackupSummary) -> None:
        """Add the checksums and the summary, and end the archive."""
        length = self._checksums.tell()
        self._checksums.seek(0)
        self._tar.addfile(self._describe_member(CHECKSUMS, length), self._checksums)
        content = summary.model_dump_json(indent=1).encode()
        self._tar.addfile(self._describe_member(SUMMARY, len(content)), io.BytesIO(content))
        self._tar.close()
        self._packed.close()

    def _add(self, name: str, file: BinaryIO, size: int) -> None:
        hashing = _HashingFile(file)
        self._tar.addfile(self._describe_member(name, size), cast("BinaryIO", hashing))
        cast("Any", self._tar).members.clear()  # tarfile would remember every member
        self._checksums.write(_checksum_line(hashing.digest, name))
        self.members += 1
        self.size += size

    def _describe_member(self, name: str, size: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, self._at, 0o600
        return member


class BackupArchive:
    """A complete archive, which is read from its beginning to its end once to verify and once to restore it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_header(self) -> BackupHeader:
        """Return the header; raises ``InvalidBackup``."""
        with self._opened() as members:
            name, file = next(members, ("", io.BytesIO()))
            if name != HEADER:
                raise InvalidBackup(f"{self.path} is not a backup of Maestro: its first member is {name or 'missing'}.")
            content = file.read()
        if json.loads(content).get("format", 0) > FORMAT:
            raise InvalidBackup(
                f"{self.path} was made by release {json.loads(content).get('release')}, in a format that this release "
                "does not know. Install that release, or a newer one."
            )
        return BackupHeader.model_validate_json(content)

    def verify(self) -> Iterator[tuple[int, BackupSummary | None]]:
        """Compare every member with its checksum; yield the bytes so far, at the end with the summary.

        Raises ``InvalidBackup`` for an archive that is damaged or incomplete.
        """
        summary = None
        members = size = 0
        with tempfile.TemporaryFile() as found, self._opened() as entries:
            for name, file in entries:
                if name == CHECKSUMS:
                    self._compare_checksums(found, file)
                elif name == SUMMARY:
                    summary = BackupSummary.model_validate_json(file.read())
                else:
                    hashing = _HashingFile(file)
                    while block := hashing.read(BLOCK_BYTES):
                        size += len(block)
                        yield size, None
                    found.write(_checksum_line(hashing.digest, name))
                    members += 1
        if summary is None or (summary.members, summary.size) != (members, size):
            raise self._incomplete()
        yield size, summary

    def read_members(self) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the name and the content of each member between header and checksums."""
        with self._opened() as members:
            for name, file in members:
                if name not in (HEADER, CHECKSUMS, SUMMARY):
                    yield name, file

    @contextmanager
    def _opened(self) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
        try:
            with tarfile.open(self.path, mode="r|gz") as tar:
                yield self._list_files(tar)
        except DAMAGE as error:
            if isinstance(error, (EOFError, zlib.error)) or "end of data" in str(error):
                raise self._incomplete() from None
            raise InvalidBackup(f"{self.path} is not a backup of Maestro, or is damaged: {error}.") from None
        except (ValidationError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidBackup(f"{self.path} is not a backup that this release can read: {reason}.") from None
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error.strerror or error}.") from None

    @staticmethod
    def _list_files(tar: tarfile.TarFile) -> Iterator[tuple[str, BinaryIO]]:
        for member in tar:
            cast("Any", tar).members.clear()  # tarfile would remember every member
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, cast("BinaryIO", file)

    def _compare_checksums(self, found: IO[bytes], recorded: BinaryIO) -> None:
        found.seek(0)
        for ours, theirs in zip_longest(found, recorded):
            if ours != theirs:
                name = (theirs or ours or b"").partition(b"  ")[2].decode(errors="replace").strip()
                raise InvalidBackup(f"{self.path} is damaged: its member {name} has another checksum. {USE_ANOTHER}")

    def _incomplete(self) -> InvalidBackup:
        return InvalidBackup(f"{self.path} is incomplete: its end is missing. {USE_ANOTHER}")


USE_ANOTHER = "Use another backup, or copy this one again from where it was made."


class _HashingFile:
    """A file that computes the SHA-256 of what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._hash.update(block)
        return block


@contextmanager
def create_complete_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Yield a new file that gets its name only when the block has ended and the file is on the disk.

    Only its owner may read it. Raises ``ConfigurationError`` if the file exists and may not be replaced, or cannot be
    written, as on a full disk.
    """
    if path.exists() and not replace:
        raise ConfigurationError(f"{path} exists already. Choose another name, or replace it with --force.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        fix = "Free some space there, or choose a file on another disk" if is_full else "Choose another file"
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}. {fix}; nothing was left behind."
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a renamed file keeps its name after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def table_of_member(name: str) -> str:
    """Return the table whose rows a member contains."""
    return name.removeprefix(TABLES).partition("/")[0].partition("-")[2]


def _member_of(number: int, table: TableForm, part: int) -> str:
    return f"{TABLES}{number:03}-{table.name}/{part:06}.jsonl"


def _checksum_line(digest: str, name: str) -> bytes:
    """Return a line of the form that ``sha256sum --check`` reads."""
    return f"{digest}  {name}\n".encode()

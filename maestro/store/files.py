"""The folder of media files, each stored once under the SHA-256 of its content (docs/invariants.md: by reference)."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from maestro.domain.errors import NotFound

ARRIVING = "arriving-"
DIGEST_LENGTH = 64


class PresentFile(NamedTuple):
    """A media file that exists: its size in bytes, and when it was stored, in seconds since 1970."""

    digest: str
    size: int
    changed_at: float


class MediaFolder:
    """The folder of media files; a file appears in it only when the file is complete.

    ``MediaBucket`` has the same methods and keeps the files in an object storage.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def move_in(self, source: Path) -> str:
        """Move a file into the storage, and return the SHA-256 of its content; a row may refer to it from then on."""
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._upload(source, digest)
        target = self.path_of_digest(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        arriving = target.with_suffix(f".{os.getpid()}")
        shutil.move(source, arriving)
        arriving.replace(target)
        return digest

    def store_content(self, content: bytes) -> str:
        """Store content as a file, and return its SHA-256."""
        with self.create_temporary_folder() as folder:
            (folder / "content").write_bytes(content)
            return self.move_in(folder / "content")

    @contextmanager
    def create_temporary_folder(self) -> Iterator[Path]:
        """Yield a temporary folder for new files on the same file system, so that ``move_in`` does not copy them."""
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=ARRIVING, dir=self._root, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def delete_stale_folders(self, until: float) -> None:
        """Delete temporary folders of killed processes, last changed at ``until`` (seconds since 1970) or before."""
        for folder in self._root.glob(f"{ARRIVING}*"):
            if folder.stat().st_mtime <= until:
                shutil.rmtree(folder, ignore_errors=True)

    def path_of_digest(self, digest: str) -> Path:
        """Return the path for the file with this SHA-256, whether or not the file exists."""
        return self._root / digest[:2] / digest

    def list_files(self) -> Iterator[PresentFile]:
        """Yield all files by digest, without those that arrive."""
        folders = sorted(path for path in self._root.glob("??") if path.is_dir()) if self._root.is_dir() else []
        for folder in folders:
            for name in sorted(os.listdir(folder)):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    found = (folder / name).stat()
                    if len(name) == DIGEST_LENGTH:
                        yield PresentFile(name, found.st_size, found.st_mtime)

    def has_file(self, digest: str) -> bool:
        """Return whether the storage has the file with this SHA-256."""
        return self.path_of_digest(digest).is_file()

    @contextmanager
    def open_file(self, digest: str) -> Iterator[BinaryIO]:
        """Yield the open file with this SHA-256, without a copy that stays on this host; raises ``NotFound``."""
        with self.fetch(digest).open("rb") as file:
            yield file

    def fetch(self, digest: str) -> Path:
        """Return the path of the file with this SHA-256 on this host; raises ``NotFound``."""
        path = self.path_of_digest(digest)
        if not path.is_file():
            raise NotFound(f"the file {digest} is not in the media folder")
        return path

    def read_content(self, digest: str) -> bytes:
        """Return the content of the file with this SHA-256; raises ``NotFound``."""
        return self.fetch(digest).read_bytes()

    def delete_local(self, digest: str) -> None:
        """Delete the file of this host, quickly enough for a transaction."""
        self.path_of_digest(digest).unlink(missing_ok=True)

    def delete_remote(self, digest: str, discarded_at: datetime) -> bool:  # noqa: ARG002 - those of a bucket
        """Delete the file outside of this host; return false where it was stored again and has to be looked at later.

        ``discarded_at`` is the time at which the last row that referred to the file was deleted.
        """
        return True

    def check_access(self) -> None:
        """Raise ``MediaUnavailable``, which names the fix, if files cannot be written, read and deleted elsewhere."""

    def _upload(self, source: Path, digest: str) -> None:
        """Store the file outside of this host before it is moved into the folder; a folder has nothing to do."""

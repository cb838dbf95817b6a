"""The folder of media files, each stored once under the SHA-256 of its content (docs/invariants.md: by reference)."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maestro.domain.errors import NotFound

ARRIVING = "arriving-"


class MediaFolder:
    """The folder of media files; a file appears in it only when the file is complete."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def move_in(self, source: Path) -> str:
        """Move a file into the folder, and return the SHA-256 of its content."""
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
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

    def read_content(self, digest: str) -> bytes:
        """Return the content of the file with this SHA-256; raises ``NotFound``."""
        path = self.path_of_digest(digest)
        if not path.is_file():
            raise NotFound(f"the file {digest} is not in the media folder")
        return path.read_bytes()

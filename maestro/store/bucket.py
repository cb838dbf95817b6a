"""The media files in an S3-compatible object storage, with a bounded cache on this host (ADR 44).

This module is the only one that imports ``obstore``, and is imported only where ``media.url`` is set.
"""

import contextlib
import hashlib
import heapq
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store
from pydantic import SecretStr
from ulid import ULID

from maestro.domain.errors import MediaUnavailable, NotFound
from maestro.store.files import DIGEST_LENGTH, MediaFolder, PresentFile

IN_USE_SECONDS = 600.0
"""Seconds since its last use for which a file stays in the cache, because a connector may be about to read it."""
UNUSED_SECONDS = 86_400.0
"""Seconds since its last use after which a file leaves the cache, so that deleted files do not stay on other hosts."""
TRIM_SHARE = 20
"""The cache is measured each time a twentieth of its limit was added to it."""
STORED_AGAIN = timedelta(hours=1)
"""The longest time from the upload of a file to the commit of the row that refers to it."""
CONNECT_SECONDS = 5
BLOCK = 1024 * 1024


@dataclass(frozen=True)
class BucketAddress:
    """A bucket with its prefix, and how to reach it; empty values are chosen by the client's standard chain."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: SecretStr
    seconds: float

    def open_client(self) -> S3Store:
        """Return the client of this bucket; it connects at its first request."""
        config = {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key.get_secret_value(),
        }
        # A name with a dot does not fit the wildcard of the certificate, and servers of one's own have no such names.
        by_host_name = not self.endpoint and "." not in self.bucket
        # A request is repeated twice: each is idempotent, and servers close idle connections and ask to slow down.
        # Longer outages are for the caller, as those of the database.
        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            config={name: value for name, value in config.items() if value},  # type: ignore[arg-type]
            client_options={
                "allow_http": self.endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=self.seconds),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=self.seconds)},
            virtual_hosted_style_request=by_host_name,
        )

    def __str__(self) -> str:
        return "/".join(filter(None, (f"s3://{self.bucket}", self.prefix)))


class MediaBucket(MediaFolder):
    """The media files in a bucket, each an object ``<prefix>/<two digits>/<SHA-256>``; the folder is their cache.

    A file is uploaded before its digest is returned, so no row refers to an object that is not there yet. Methods raise
    ``MediaUnavailable`` while the object storage cannot be used.
    """

    def __init__(self, cache: Path, address: BucketAddress, cache_bytes: int, former: MediaFolder) -> None:
        """``cache_bytes`` is the limit of the cache; ``former`` is the folder used before this host had a bucket."""
        super().__init__(cache)
        self._address = address
        self._cache_bytes = cache_bytes
        self._former = former
        self._client = address.open_client()
        self._lock = threading.Lock()
        self._added = cache_bytes

    def move_in(self, source: Path) -> str:
        """Upload a file, keep it in the cache, and return the SHA-256 of its content."""
        digest = super().move_in(source)
        path = self.path_of_digest(digest)
        os.utime(path)
        self._trim_cache(path.stat().st_size)
        return digest

    def fetch(self, digest: str) -> Path:
        """Return the path of the file in the cache, downloaded if it is not there; raises ``NotFound``."""
        path = self.path_of_digest(digest)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)  # the time of the last use, by which the cache is trimmed
            return path
        with self.create_temporary_folder() as folder:
            copy = folder / "content"
            self._download_or_move(digest, copy)
            path.parent.mkdir(parents=True, exist_ok=True)
            copy.replace(path)
        self._trim_cache(path.stat().st_size)
        return path

    def list_files(self) -> Iterator[PresentFile]:
        """Yield all objects by digest, and the files of the former folder that were not moved yet."""
        before = ""
        for file in heapq.merge(self._list_objects(), self._former.list_files()):
            if file.digest != before:
                yield file
            before = file.digest

    def has_file(self, digest: str) -> bool:
        """Return whether the bucket has the file."""
        with self._explain(f"looking for {digest}"), contextlib.suppress(FileNotFoundError):
            obstore.head(self._client, _key(digest))
            return True
        return False

    @contextlib.contextmanager
    def open_file(self, digest: str) -> Iterator[BinaryIO]:
        """Yield a downloaded copy that is deleted at the end, so that a backup does not fill the cache."""
        with self.create_temporary_folder() as folder:
            self._download_or_move(digest, folder / "content")
            with (folder / "content").open("rb") as file:
                yield file

    def delete_local(self, digest: str) -> None:
        """Delete the file from the cache and from the folder that was used before."""
        super().delete_local(digest)
        self._former.delete_local(digest)

    def delete_remote(self, digest: str, discarded_at: datetime) -> bool:
        """Delete the object, unless it was uploaded again after it was discarded, for a row that is not committed yet.

        The storage's times are whole seconds, so an upload in the second of ``discarded_at`` counts as a later one.
        """
        with self._explain(f"deleting {digest}"), contextlib.suppress(FileNotFoundError):
            modified = obstore.head(self._client, _key(digest))["last_modified"]
            since = datetime.now(UTC) - STORED_AGAIN
            if modified >= discarded_at.replace(microsecond=0) and modified > since:
                return False
            obstore.delete(self._client, _key(digest))
        return True

    def check_access(self) -> None:
        """Write, read and delete a small object; raises ``MediaUnavailable``, which names the fix."""
        key, content = f"doctor-{ULID()}", os.urandom(64)
        with self._explain("checking the bucket"):
            obstore.put(self._client, key, content)
            try:
                same = obstore.get(self._client, key).bytes().to_bytes() == content
            finally:
                obstore.delete(self._client, key)
        if not same:
            raise MediaUnavailable(f"{self._address} returned other bytes than were written. Use another storage.")

    def _upload(self, source: Path, digest: str) -> None:
        with self._explain(f"storing {digest}"):
            obstore.put(self._client, _key(digest), source)

    def _list_objects(self) -> Iterator[PresentFile]:
        with self._explain("listing the files"):
            for page in obstore.list(self._client):
                for entry in page:
                    name = entry["path"].rpartition("/")[2]
                    if len(name) == DIGEST_LENGTH:
                        yield PresentFile(name, entry["size"], entry["last_modified"].timestamp())

    def _download_or_move(self, digest: str, copy: Path) -> None:
        """Write the object to the file ``copy``; a file of the former folder is uploaded first. Raises ``NotFound``."""
        try:
            self._download(digest, copy)
        except NotFound:
            former = self._former.path_of_digest(digest)
            if not former.is_file():
                raise
            self._upload(former, digest)
            copy.write_bytes(former.read_bytes())

    def _download(self, digest: str, copy: Path) -> None:
        """Write the object to the file ``copy``; raises ``NotFound`` without an object of this content."""
        found = hashlib.sha256()
        try:
            with self._explain(f"reading {digest}"), copy.open("wb") as file:
                for block in obstore.get(self._client, _key(digest)).stream(min_chunk_size=BLOCK):
                    found.update(block)
                    file.write(block)
        except FileNotFoundError:
            raise NotFound(f"the file {digest} is not in {self._address}") from None
        if found.hexdigest() != digest:
            raise NotFound(f"the file {digest} in {self._address} is damaged: it has other content than its name says")

    @contextlib.contextmanager
    def _explain(self, doing: str) -> Iterator[None]:
        """Raise ``MediaUnavailable`` with the fix for an error of the client in the block.

        ``FileNotFoundError`` for a missing object passes; a missing bucket is a ``MediaUnavailable``.
        """
        problem: str
        try:
            yield
            return  # noqa: TRY300 - the rest explains errors
        except (PermissionDeniedError, UnauthenticatedError) as error:
            problem = (
                f"the object storage refuses access to {self._address} ({_reason(error)}). Correct media.accessKeyId "
                "and media.secretAccessKey, or the role of this process: it has to read, write and delete objects there"
            )
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise
            problem = f"the bucket {self._address.bucket} does not exist. Create it, or correct media.url"
        except BaseError as error:
            problem = (
                f"the object storage of {self._address} failed ({_reason(error)}). Check that "
                f"{self._address.endpoint or 'AWS'} (media.endpoint) can be reached from this host and works"
            )
        # Raised outside of the handlers: the client's own text holds whole requests.
        raise MediaUnavailable(f"{doing}: {problem}.")

    def _trim_cache(self, added: int) -> None:
        """Delete the files used longest ago until the cache fits its limit; files in use stay."""
        with self._lock:
            self._added += added
            if self._added < self._cache_bytes // TRIM_SHARE:
                return
            self._added = 0
        now, files = time.time(), []
        for path in self._root.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, _ in files)
        for used_at, size, path in sorted(files):
            kept = total <= self._cache_bytes and now - used_at < UNUSED_SECONDS
            if kept or now - used_at < IN_USE_SECONDS:
                break
            path.unlink(missing_ok=True)
            total -= size


def _key(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def _reason(error: BaseError) -> str:
    """Return the code of the storage's answer, or the first line of the client's error, without the request."""
    text = str(error)
    _, found, rest = text.partition("<Code>")
    if found:
        return rest.partition("</Code>")[0]
    return " ".join(text.split("Debug source:")[0].split())[:300]

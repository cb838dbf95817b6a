"""The media files in a bucket: stored before their digest is known, fetched once, and errors that name the fix."""

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from maestro.domain.errors import ConfigurationError, MediaUnavailable, NotFound, StoreBusy
from maestro.installation.storage import open_files
from maestro.settings import Settings
from maestro.store.files import MediaFolder
from tests.support.object_storage import BUCKET, ObjectStorage, failing_server, object_storage

CONTENT = b"a picture of a cat"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
LATER = timedelta(hours=2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    with object_storage(tmp_path_factory.mktemp("objects")) as storage:
        yield storage


@pytest.fixture
def storage(server: ObjectStorage) -> ObjectStorage:
    """The server with a prefix of the bucket that no other test uses."""
    server.prefix = f"of/{uuid4()}"
    return server


def files_of(storage: ObjectStorage, data: Path, **changes: object) -> MediaFolder:
    """Return the media files as the processes of a host with this data folder see them."""
    media: Mapping[str, object] = {**storage.settings, **changes}
    return open_files(Settings.model_validate({"dataDir": data, "media": media}))


def test_an_object_is_there_before_its_digest_is_returned(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path)
    assert files.store_content(CONTENT) == DIGEST
    assert storage.path_of_digest(DIGEST).read_bytes() == CONTENT
    assert files.store_content(CONTENT) == DIGEST
    assert storage.list_objects() == [DIGEST]


def test_another_host_fetches_the_file_once_and_then_reads_its_copy(storage: ObjectStorage, tmp_path: Path) -> None:
    files_of(storage, tmp_path / "one").store_content(CONTENT)
    other = files_of(storage, tmp_path / "two")
    assert not other.path_of_digest(DIGEST).exists()
    assert other.fetch(DIGEST) == other.path_of_digest(DIGEST)
    storage.path_of_digest(DIGEST).unlink()
    assert other.read_content(DIGEST) == CONTENT


def test_a_large_file_arrives_whole(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path / "one")
    content = os.urandom(12_000_000)
    digest = files.store_content(content)
    assert files_of(storage, tmp_path / "two").read_content(digest) == content


def test_a_missing_object_is_not_found(storage: ObjectStorage, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"the file {DIGEST} is not in s3://{BUCKET}/{storage.prefix}"):
        files_of(storage, tmp_path).read_content(DIGEST)


def test_an_object_with_other_content_is_refused(storage: ObjectStorage, tmp_path: Path) -> None:
    with failing_server(200) as address:
        files = files_of(storage, tmp_path, endpoint=address)
        with pytest.raises(NotFound, match="is damaged"):
            files.fetch(DIGEST)
    assert not files.path_of_digest(DIGEST).exists()


def test_files_of_the_folder_used_before_are_found_and_stored(storage: ObjectStorage, tmp_path: Path) -> None:
    MediaFolder(tmp_path / "media").store_content(CONTENT)
    assert files_of(storage, tmp_path).read_content(DIGEST) == CONTENT
    assert storage.list_objects() == [DIGEST]


def test_the_cache_stays_within_its_limit_and_keeps_what_is_in_use(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path, cacheBytes=1024**2)
    now = time.time()
    old = [files.store_content(os.urandom(400_000)) for _ in range(3)]
    for hours, digest in enumerate(old, start=1):
        os.utime(files.path_of_digest(digest), (now - hours * 3600,) * 2)
    new = files.store_content(os.urandom(400_000))
    assert [files.path_of_digest(digest).exists() for digest in (*old, new)] == [True, False, False, True]
    assert len(storage.list_objects()) == 4


def test_a_file_unused_for_a_day_leaves_the_cache(storage: ObjectStorage, tmp_path: Path) -> None:
    files_of(storage, tmp_path).store_content(CONTENT)
    files = files_of(storage, tmp_path)
    os.utime(files.path_of_digest(DIGEST), (time.time() - 90_000,) * 2)
    files.store_content(b"another file")
    assert not files.path_of_digest(DIGEST).exists()


def test_a_discarded_object_is_deleted_unless_it_was_stored_again(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path)
    files.store_content(CONTENT)
    now = datetime.now(UTC)
    assert not files.delete_remote(DIGEST, discarded_at=now - LATER)
    assert storage.list_objects() == [DIGEST]
    assert files.delete_remote(DIGEST, discarded_at=now + LATER)
    assert storage.list_objects() == []
    assert files.delete_remote(DIGEST, discarded_at=now)


def test_access_is_checked_and_nothing_stays_behind(storage: ObjectStorage, tmp_path: Path) -> None:
    files_of(storage, tmp_path).check_access()
    assert storage.list_objects() == []


def test_a_wrong_secret_names_the_settings_and_no_secret(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path, secretAccessKey="another-secret")
    with pytest.raises(MediaUnavailable, match=r"SignatureDoesNotMatch.*media\.secretAccessKey") as raised:
        files.store_content(CONTENT)
    assert isinstance(raised.value, StoreBusy)
    assert "another-secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_missing_bucket_is_named(storage: ObjectStorage, tmp_path: Path) -> None:
    files = files_of(storage, tmp_path, url="s3://no-such-bucket")
    with pytest.raises(MediaUnavailable, match=r"the bucket no-such-bucket does not exist\. Create it"):
        files.store_content(CONTENT)


def test_a_storage_that_asks_to_slow_down_is_unavailable(storage: ObjectStorage, tmp_path: Path) -> None:
    with failing_server(503) as address:
        files = files_of(storage, tmp_path, endpoint=address)
        with pytest.raises(MediaUnavailable, match="SlowDown"):
            files.store_content(CONTENT)


def test_a_storage_that_never_answers_is_unavailable(storage: ObjectStorage, tmp_path: Path) -> None:
    with failing_server(None) as address:
        files = files_of(storage, tmp_path, endpoint=address, timeoutSeconds=0.3)
        with pytest.raises(MediaUnavailable, match=r"Check that http://127\.0\.0\.1"):
            files.read_content(DIGEST)


def test_an_installation_without_the_package_is_told_how_to_get_it(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "maestro.store.bucket", raising=False)
    with pytest.raises(ConfigurationError, match=r"maestro-agents\[s3\]"):
        files_of(storage, tmp_path)


@pytest.mark.parametrize(
    ("media", "problem"),
    [
        ({"url": "https://bucket"}, "s3://BUCKET"),
        ({"endpoint": "http://localhost:9000"}, "apply only with media.url"),
        ({"url": "s3://bucket", "accessKeyId": "id"}, "belong together"),
    ],
)
def test_settings_that_cannot_work_are_refused(media: Mapping[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate({"media": media})


def test_all_files_are_listed_in_order_with_those_of_the_former_folder(storage: ObjectStorage, tmp_path: Path) -> None:
    former = [MediaFolder(tmp_path / "media").store_content(content) for content in (b"one", b"two")]
    files = files_of(storage, tmp_path)
    stored = [files.store_content(content) for content in (b"two", b"three", b"four")]
    listed = list(files.list_files())
    assert [file.digest for file in listed] == sorted({*former, *stored})
    assert {file.size for file in listed} == {3, 4, 5}
    assert files.has_file(stored[1])
    assert not files.has_file(DIGEST)


def test_a_file_is_read_once_without_a_copy_in_the_cache(storage: ObjectStorage, tmp_path: Path) -> None:
    files_of(storage, tmp_path / "one").store_content(CONTENT)
    other = files_of(storage, tmp_path / "two")
    with other.open_file(DIGEST) as file:
        assert file.read() == CONTENT
    assert not other.path_of_digest(DIGEST).exists()
    with pytest.raises(NotFound), other.open_file("0" * 64):
        pass

"""A backup is complete or not there; a restore brings back every row, of either database, and nothing halfway."""

import errno
import gzip
import io
import itertools
import json
import os
import stat
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from maestro.cli.main import run
from maestro.domain.agents.edits import NewAgent
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.errors import ConfigurationError
from maestro.domain.jobs.job import JobStatus
from maestro.domain.memory.memory import NewFact
from maestro.installation.archive import HEADER, InvalidBackup
from maestro.installation.backup import BackupReport, make_backup
from maestro.installation.data_folder import open_keys, signing_key
from maestro.installation.restore import RestoreOptions, RestoreReport, restore_backup
from maestro.installation.storage import open_files, open_store
from maestro.settings import Settings
from maestro.store.consistency import RowConsistency
from maestro.store.engine.copying import REBUILT, TableCopier
from maestro.store.engine.database import administer
from maestro.store.engine.schema import read_revision
from maestro.store.store import Store
from tests.support import postgresql
from tests.support.command import COMMAND
from tests.support.database import query
from tests.support.forking import FORKING
from tests.support.job_rows import JobRows
from tests.support.next_release import next_release
from tests.support.usage_rows import use

Rows = dict[str, list[str]]


def silent(_text: str) -> None:
    """Show no progress."""


def settings_of(folder: Path) -> Settings:
    return Settings.model_validate({"dataDir": folder})


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """A store with ended jobs, usage and a fact."""
    rows = JobRows.at(tmp_path / "data")
    use(rows)
    for row in query(tmp_path / "data" / "maestro.db", "SELECT id FROM queue"):
        rows.end(row["id"], JobStatus.COMPLETED)
    with rows.store.begin() as tx:
        agent = tx.agents.create(NewAgent(slug="grace"), "operator")
        tx.memory.add_fact(agent, NewFact(content="the sky is blue"), "operator")
    yield rows
    rows.store.close()


def back_up(tmp_path: Path, *, keys: bool = True) -> BackupReport:
    return make_backup(settings_of(tmp_path / "data"), archive_of(tmp_path), silent, keys=keys, replace=False)


def archive_of(tmp_path: Path) -> Path:
    return tmp_path / "copy.tar.gz"


def restore(tmp_path: Path, **options: bool) -> RestoreReport:
    """Restore the backup into another folder."""
    return restore_backup(
        settings_of(tmp_path / "other"), archive_of(tmp_path), silent, RestoreOptions(replace=True, **options)
    )


def rows_of(folder: Path) -> Rows:
    """Return all rows of a store, by table, in a form that both databases share."""
    with administer(settings_of(folder).database) as connection:
        copier = TableCopier(connection)
        return {table.name: sorted(map(json.dumps, copier.read_rows(table))) for table in copier.list_tables()}


def test_every_row_comes_back(rows: JobRows, tmp_path: Path) -> None:
    done = back_up(tmp_path)
    restored = restore(tmp_path)
    before, after = rows_of(tmp_path / "data"), rows_of(tmp_path / "other")
    after["audit_log"] = [row for row in after["audit_log"] if "store.restored" not in row]
    assert after == before
    assert restored.rows == done.rows == sum(map(len, before.values()))
    assert REBUILT.isdisjoint(before)


def test_what_follows_from_rows_is_right_after_a_restore_and_still_follows(rows: JobRows, tmp_path: Path) -> None:
    back_up(tmp_path)
    restore(tmp_path)
    store = open_store(settings_of(tmp_path / "other"))
    with store.begin() as tx:
        ada = tx.agents.get_agent_by_slug("ada")
        versions = tx.system.versions.read_versions()
        tx.memory.add_fact(ada, NewFact(content="the grass is green"), "operator")
        tx.agents.create(NewAgent(slug="hedy"), "operator")
    with store.view() as tx:
        assert tx.system.versions.read_versions().agents != versions.agents
        for slug, word, fact in (("grace", "sky", "the sky is blue"), ("ada", "grass", "the grass is green")):
            found = tx.memory.search_facts(tx.agents.get_agent_by_slug(slug).id or 0, word, 9)
            assert [each.content for each in found] == [fact]
        assert tx.deliveries.find_newest_id() > datetime.now(UTC).timestamp() * 1000 - 600_000
    store.close()
    with administer(settings_of(tmp_path / "other").database) as connection:
        assert list(RowConsistency(connection, datetime.now(UTC)).find_contradictions(dispatching=False)) == []


def test_a_backup_beside_a_writer_is_of_one_moment(rows: JobRows, tmp_path: Path) -> None:
    """Each message is a row of the inbox and one of the queue."""
    go_on = threading.Event()

    def write() -> None:
        while not go_on.is_set():
            rows.add()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        back_up(tmp_path)
    finally:
        go_on.set()
        writer.join()
    restore(tmp_path)
    [found] = query(
        tmp_path / "other" / "maestro.db",
        "SELECT count(*) AS n FROM inbox LEFT JOIN queue ON queue.id = inbox.job_id WHERE queue.id IS NULL",
    )
    assert found["n"] == 0


def test_media_and_keys_come_back_and_a_missing_file_is_counted(rows: JobRows, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "data")
    present = open_files(settings).store_content(b"a picture")
    add_file_chunks(rows, present, "0" * 64)
    sealed, signing = open_keys(settings, {}).stored_form("sk-secret"), signing_key(settings)
    done = back_up(tmp_path)
    assert (done.media, done.missing, done.keys) == (1, 1, ("signing.key", "secrets.key"))
    assert stat.S_IMODE(archive_of(tmp_path).stat().st_mode) == 0o600
    restored = restore(tmp_path)
    other = settings_of(tmp_path / "other")
    assert open_files(other).read_content(present) == b"a picture"
    assert signing_key(other) == signing
    assert open_keys(other, {}).reveal_key(sealed.secret).get_secret_value() == "sk-secret"
    assert not restored.foreign_keys


def test_a_backup_without_keys_says_at_the_restore_that_secrets_need_them(rows: JobRows, tmp_path: Path) -> None:
    signing_key(settings_of(tmp_path / "data"))
    open_keys(settings_of(tmp_path / "data"), {})
    assert back_up(tmp_path, keys=False).keys == ()
    assert b"keys/" not in gzip.decompress(archive_of(tmp_path).read_bytes())
    assert restore(tmp_path).foreign_keys


def test_the_command_asks_for_a_decision_about_keys(rows: JobRows, tmp_path: Path) -> None:
    folder = ["--data-dir", str(tmp_path / "data")]
    assert run(["backup", str(archive_of(tmp_path)), *folder]) == 2
    assert run(["backup", str(archive_of(tmp_path)), "--without-keys", *folder]) == 0
    assert run(["backup", str(archive_of(tmp_path)), "--without-keys", *folder]) == 1  # it is there already
    assert run(["backup", str(archive_of(tmp_path)), "--without-keys", "--force", *folder]) == 0


def add_file_chunks(rows: JobRows, *digests: str) -> None:
    """Let an ended job have sent files."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        for seq, digest in enumerate(digests):
            chunk = Delivery(
                job_id=job_id,
                purpose=DeliveryPurpose.ANSWER,
                seq=seq,
                platform="web",
                account="default",
                channel="general",
                content="",
                digest=digest,
                created_at=tx.now,
            )
            tx.deliveries.add_chunk(chunk)
    rows.end(job_id, JobStatus.FAILED)


def test_positions_and_ids_continue_after_a_restore(rows: JobRows, tmp_path: Path) -> None:
    before = rows.add()
    back_up(tmp_path)
    restore(tmp_path)
    store = Store(settings_of(tmp_path / "other").database)
    after = JobRows(store, rows.clock).add()
    store.close()
    turns = {row["id"]: row["turn"] for row in query(tmp_path / "other" / "maestro.db", "SELECT id, turn FROM queue")}
    assert turns[after] > turns[before]


# Archives that must not be restored


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Write an archive anew with other contents of its members."""
    members: list[tuple[str, bytes]] = []
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            members.append((member.name, change(member.name, file.read())))
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def with_header(path: Path, **values: Any) -> None:
    """Change fields of an archive's header."""

    def change(name: str, content: bytes) -> bytes:
        return json.dumps({**json.loads(content), **values}).encode() if name == HEADER else content

    rewritten(path, change)


def refused(tmp_path: Path) -> str:
    """Return why the restore is refused; nothing of it may be left."""
    with pytest.raises(InvalidBackup) as failure:
        restore(tmp_path)
    assert not (tmp_path / "other" / "maestro.db").exists()
    return str(failure.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.95])
def test_an_archive_that_was_cut_off_is_refused(rows: JobRows, tmp_path: Path, share: float) -> None:
    back_up(tmp_path)
    content = archive_of(tmp_path).read_bytes()
    archive_of(tmp_path).write_bytes(content[: int(len(content) * share)])
    assert "incomplete" in refused(tmp_path)


def test_an_archive_with_another_row_is_refused_and_the_member_is_named(rows: JobRows, tmp_path: Path) -> None:
    back_up(tmp_path)
    rewritten(archive_of(tmp_path), lambda _, content: content.replace(b"the sky is blue", b"the sky is pink"))
    assert "memory_facts" in refused(tmp_path)


def test_a_file_that_is_no_archive_is_refused(rows: JobRows, tmp_path: Path) -> None:
    archive_of(tmp_path).write_bytes(os.urandom(5000))
    assert "is not a backup of Maestro" in refused(tmp_path)


@pytest.mark.parametrize("header", [{"revision": "9000"}, {"format": 2}])
def test_an_archive_of_a_newer_release_is_refused(rows: JobRows, tmp_path: Path, header: dict[str, Any]) -> None:
    back_up(tmp_path)
    with_header(archive_of(tmp_path), release="9.9", **header)
    message = refused(tmp_path)
    assert "release 9.9" in message
    assert "Install that release" in message


def test_an_archive_of_an_earlier_release_is_migrated(rows: JobRows, tmp_path: Path) -> None:
    back_up(tmp_path)
    with next_release(tmp_path) as newest:
        restore(tmp_path)
        assert read_revision(settings_of(tmp_path / "other").database) == newest
    found = query(tmp_path / "other" / "maestro.db", "SELECT slug, motto FROM agents ORDER BY slug")
    assert [tuple(row) for row in found] == [("ada", "onward"), ("grace", "onward")]


# Places that cannot take it


def test_a_full_disk_leaves_no_archive_and_says_what_to_do(
    rows: JobRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigurationError, match=r"No space left on device\. Free some space there"):
        back_up(tmp_path)
    assert list(tmp_path.glob("*copy*")) == []


def test_an_installation_is_replaced_only_on_request_and_then_set_aside(rows: JobRows, tmp_path: Path) -> None:
    back_up(tmp_path)
    settings = settings_of(tmp_path / "data")
    with rows.store.begin() as tx:
        tx.agents.create(NewAgent(slug="later"), "operator")
    rows.store.close()
    with pytest.raises(ConfigurationError, match="maestro restore --replace"):
        restore_backup(settings, archive_of(tmp_path), silent, RestoreOptions())
    done = restore_backup(settings, archive_of(tmp_path), silent, RestoreOptions(replace=True))
    assert slugs(tmp_path / "data" / "maestro.db") == ["ada", "grace"]
    if postgresql.wanted():
        schema = done.set_aside.removeprefix("the schema ")
        before = [row["slug"] for row in query(tmp_path / "data" / "maestro.db", f"SELECT slug FROM {schema}.agents")]
    else:
        before = slugs(Path(done.set_aside) / "maestro.db")
    assert sorted(before) == ["ada", "grace", "later"]


def test_a_restore_that_is_killed_leaves_a_whole_database_and_can_be_run_again(rows: JobRows, tmp_path: Path) -> None:
    """It is killed before each file that it moves, and before its rows are committed."""
    add_keys(tmp_path / "data")
    back_up(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.create(NewAgent(slug="later"), "operator")
    rows.store.close()
    codes: list[int | None] = []
    while 0 not in codes:
        process = FORKING.Process(target=killed_restore, args=(tmp_path, len(codes)))
        process.start()
        process.join()
        codes.append(process.exitcode)
        path = tmp_path / "data" / "maestro.db"
        if postgresql.wanted() or path.exists():
            assert slugs(path) in (["ada", "grace", "later"], ["ada", "grace"])
    assert len(codes) > 2
    assert set(codes[:-1]) == {KILLED}
    assert slugs(tmp_path / "data" / "maestro.db") == ["ada", "grace"]


KILLED = 9


def killed_restore(tmp_path: Path, point: int) -> None:
    """Restore in this process, and end it without any clean-up at a point; points are counted from 0."""
    count = itertools.count()

    def at_a_point(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any, **named: Any) -> Any:
            if next(count) == point:
                os._exit(KILLED)
            return work(*values, **named)

        return wrapped

    Path.replace = at_a_point(Path.replace)  # type: ignore[method-assign]
    TableCopier.renew_row_versions = at_a_point(TableCopier.renew_row_versions)  # type: ignore[method-assign]
    restore_backup(settings_of(tmp_path / "data"), archive_of(tmp_path), silent, RestoreOptions(replace=True))


def add_keys(folder: Path) -> None:
    signing_key(settings_of(folder))
    open_keys(settings_of(folder), {})


def slugs(path: Path) -> list[str]:
    return [row["slug"] for row in query(path, "SELECT slug FROM agents ORDER BY slug")]


# Jobs that were open


def test_an_open_job_gets_a_new_run_and_its_unsent_chunks_new_ids_and_a_doubt(rows: JobRows, tmp_path: Path) -> None:
    job_id = rows.add()
    rows.worked(job_id)  # its first chunk is sent, its second one is under way
    before = query(tmp_path / "data" / "maestro.db", "SELECT * FROM deliveries ORDER BY seq")
    back_up(tmp_path)
    done = restore(tmp_path)
    assert (done.open_jobs, done.chunks) == (1, 1)
    path = tmp_path / "other" / "maestro.db"
    [job] = query(path, "SELECT * FROM queue WHERE id = ?", job_id)
    assert (job["status"], job["run"], job["claimed_at"]) == ("pending", 2, None)
    assert job["backed_up_at"] == done.backed_up_at.isoformat(timespec="microseconds")
    sent, unsent = query(path, "SELECT * FROM deliveries ORDER BY seq")
    assert tuple(sent) == tuple(before[0])
    assert unsent["state"] == "sending"
    assert unsent["tried_at"] == before[1]["tried_at"]
    assert unsent["id"] > before[1]["id"]
    assert unsent["key"] == before[1]["key"]


# From one database into the other


@pytest.mark.skipif(not postgresql.wanted(), reason="it needs a PostgreSQL server")
def test_a_backup_of_sqlite_is_restored_into_postgresql_and_back(tmp_path: Path) -> None:
    url, archive = postgresql.database_url(tmp_path / "empty"), archive_of(tmp_path)
    command(tmp_path, {"MAESTRO_DATA_DIR": "first"}, "migrate")
    command(tmp_path, {"MAESTRO_DATA_DIR": "first"}, "agents", "create", "hedy")
    command(tmp_path, {"MAESTRO_DATA_DIR": "first"}, "backup", "--with-keys", archive)
    for folder, store in (("second", {"MAESTRO_STORE_URL": url}), ("third", {})):
        place = {"MAESTRO_DATA_DIR": folder, **store}
        command(tmp_path, place, "restore", "--replace", archive)
        command(tmp_path, place, "fsck")
        shown = json.loads(command(tmp_path, place, "agents", "list", "--json"))
        assert [agent["slug"] for agent in shown["items"]] == ["conductor", "hedy"]
        command(tmp_path, place, "backup", "--force", "--with-keys", archive)


def command(folder: Path, environment: dict[str, str], *words: str | Path) -> str:
    """Run the installed command, which knows nothing of these tests, in a folder, and return what it prints."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAESTRO_")}
    done = subprocess.run(
        [COMMAND, *words], cwd=folder, env={**plain, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout

"""``maestro migrate`` says what it did, does it once, and never under the feet of somebody else."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from maestro.cli.installation import outcome_sentence
from maestro.cli.main import run
from maestro.installation import storage
from maestro.installation.data_folder import DataFolder
from maestro.installation.storage import (
    Migration,
    MigrationOutcome,
    contract_lock,
    hold_contract,
    migrate,
    open_existing_store,
)
from maestro.settings import Settings
from maestro.store import store as store_module
from maestro.store.engine import schema
from maestro.store.engine.schema import FIRST_CONTRACT
from tests.support.forking import FORKING
from tests.support.next_release import next_release

FIRST = schema.list_revisions()[-1]
PROCESSES = 3
FOLDERS = 4
LONG = 60.0
"""Seconds after which who waits for one that failed fails as well."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without a configuration."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[str]:
    """Make a database of this release, continue as the next one, and return the revision of the database."""
    (tmp_path / "data").mkdir()
    schema.upgrade_database(tmp_path / "data" / "maestro.db")
    with next_release(tmp_path):
        yield FIRST


@pytest.fixture
def contracted(tmp_path: Path) -> Iterator[str]:
    """Do so as a release that removes what this one uses."""
    (tmp_path / "data").mkdir()
    schema.upgrade_database(tmp_path / "data" / "maestro.db")
    with next_release(tmp_path, contracts=True):
        yield FIRST


def test_it_creates_a_database_and_then_finds_it_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate"]) == 0
    assert capsys.readouterr().out.startswith("Created the database data/maestro.db (schema ")
    assert run(["migrate"]) == 0
    assert capsys.readouterr().out.startswith("The database data/maestro.db was up to date (schema ")


def test_it_tells_programs_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {"outcome": "created", "database": "data/maestro.db", "before": "", "after": done["after"]}


def test_it_brings_the_database_of_an_earlier_release_up_to_this_one(
    earlier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["outcome"], done["before"]) == ("upgraded", earlier)
    assert done["after"] > earlier


def test_it_enters_the_configured_agents(tmp_path: Path) -> None:
    settings = Settings.model_validate({"dataDir": tmp_path / "data", "agents": [{"slug": "ada"}]})
    migrate(settings)
    with open_existing_store(settings).view() as tx:
        assert [agent.slug for agent in tx.agents.list_active_agents()] == ["ada"]


def test_an_upgrade_names_both_schemas() -> None:
    done = Migration(outcome=MigrationOutcome.UPGRADED, database="maestro.db", before="0001", after="0002")
    assert outcome_sentence(done) == "Brought the database maestro.db from schema 0001 to 0002."


def test_it_joins_processes_of_this_release(tmp_path: Path) -> None:
    with DataFolder(tmp_path / "data", shared=True):
        assert run(["migrate"]) == 0


def test_it_leaves_a_folder_alone_that_another_has_for_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DataFolder(tmp_path / "data"):
        assert run(["migrate"]) == 1
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.usefixtures("earlier")
def test_it_expands_the_tables_beside_processes_of_this_release(tmp_path: Path) -> None:
    settings = Settings.model_validate({"dataDir": tmp_path / "data"})
    with DataFolder(tmp_path / "data", shared=True), hold_contract(settings):
        assert migrate(settings).outcome is MigrationOutcome.UPGRADED


def test_processes_of_an_earlier_contract_must_end_before_it_contracts_the_tables(
    contracted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "WAIT_SECONDS", 0)
    settings = Settings.model_validate({"dataDir": tmp_path / "data"})
    lock = contract_lock(settings, FIRST_CONTRACT)
    assert lock.take_lock(shared=True)
    assert run(["migrate"]) == 1
    assert "a process of that version is running. End it" in capsys.readouterr().err
    assert schema.read_revision(settings.database) == contracted
    lock.release_lock()
    with DataFolder(tmp_path / "data", shared=True), hold_contract(settings):
        assert migrate(settings).outcome is MigrationOutcome.UPGRADED


def test_a_file_that_is_no_database_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "maestro.db").write_text("a letter to the editor, and no database at all\n" * 100)
    assert run(["migrate"]) == 1
    assert "is not a Maestro database" in capsys.readouterr().err


def start_on_all(folders: list[Path], together: Barrier, release: Path | None) -> None:
    """Migrate and then share each folder, at the same moment as the other processes; nothing is copied here."""
    store_module.upgrade = schema.upgrade_database  # type: ignore[attr-defined]
    with next_release(release / str(os.getpid())) if release is not None else nullcontext():
        for folder in folders:
            together.wait()
            migrate(Settings.model_validate({"dataDir": folder}))
            with DataFolder(folder, shared=True):
                together.wait()


@pytest.mark.parametrize("older", [False, True], ids=["empty", "older"])
def test_processes_that_start_together_on_an_empty_or_older_folder_all_succeed(tmp_path: Path, older: bool) -> None:
    folders = [tmp_path / str(number) for number in range(FOLDERS)]
    for folder in folders if older else ():
        folder.mkdir()
        schema.upgrade_database(folder / "maestro.db")
    together = FORKING.Barrier(PROCESSES, timeout=LONG)
    arguments = (folders, together, tmp_path if older else None)
    processes = [FORKING.Process(target=start_on_all, args=arguments) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    with next_release(tmp_path) if older else nullcontext():
        for folder in folders:
            assert migrate(Settings.model_validate({"dataDir": folder})).outcome is MigrationOutcome.UNCHANGED


def test_a_worker_does_not_contract_tables_under_an_older_process(
    contracted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAESTRO_TEMPORAL_ADDRESS", "localhost:1")
    monkeypatch.setattr(storage, "WAIT_SECONDS", 0)
    settings = Settings.model_validate({"dataDir": tmp_path / "data"})
    with DataFolder(tmp_path / "data", shared=True):
        lock = contract_lock(settings, FIRST_CONTRACT)
        assert lock.take_lock(shared=True)
        assert run(["worker"]) == 1
        lock.release_lock()
    assert "removes or changes what an earlier version of Maestro uses" in capsys.readouterr().err
    assert schema.read_revision(settings.database) == contracted

"""The data folder: one owner at a time, and every failure names the folder, the setting and the fix."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from maestro.domain.errors import ConfigurationError, DataFolderBusy
from maestro.installation.data_folder import DataFolder

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from maestro.installation.data_folder import DataFolder

with DataFolder(Path(sys.argv[1])):
    print("taken", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Return a process that has the folder until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "taken\n"
    return holder


def test_a_new_folder_is_created_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    with DataFolder(folder) as data:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert data.pid_file.read_text() == f"{os.getpid()}\n"
    assert not data.pid_file.exists()


def test_the_mode_of_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with DataFolder(tmp_path):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_all_that_is_made_in_the_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        old = tmp_path / "media" / "ab" / "cd"
        old.parent.mkdir(parents=True)
        for path in (old, tmp_path / "maestro.db", tmp_path / "maestro.db-wal", tmp_path / "notes.txt"):
            path.write_text("what people wrote")
        (tmp_path / "logs").symlink_to(tmp_path / "notes.txt")
        with DataFolder(tmp_path):
            (tmp_path / "media" / "new").write_text("")
            (tmp_path / "uploads").mkdir()
            made = [path for path in tmp_path.rglob("*") if path.name not in ("notes.txt", "logs")]
            assert {path.name: path.lstat().st_mode & 0o077 for path in made} == {path.name: 0 for path in made}
            # It was there before, and Maestro did not make it.
            assert stat.S_IMODE((tmp_path / "notes.txt").stat().st_mode) == 0o644
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)


def test_a_clean_exit_frees_the_folder(tmp_path: Path) -> None:
    for _ in range(2):
        with DataFolder(tmp_path):
            pass


def test_a_second_owner_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with DataFolder(tmp_path), pytest.raises(DataFolderBusy, match=str(os.getpid())), DataFolder(tmp_path):
        pass


def test_a_second_process_hears_who_has_the_folder_and_what_to_do(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    try:
        with pytest.raises(DataFolderBusy) as refused, DataFolder(tmp_path):
            pass
        assert f"process {holder.pid}" in str(refused.value)
        assert str(tmp_path) in str(refused.value)
        assert "Stop that Maestro" in str(refused.value)
        assert "dataDir" in str(refused.value)
        assert (tmp_path / "maestro.pid").read_text() == f"{holder.pid}\n"
    finally:
        holder.communicate()


def test_a_kill_frees_the_folder_at_once(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "maestro.pid").exists()
    with DataFolder(tmp_path) as data:
        assert data.pid_file.read_text() == f"{os.getpid()}\n"
    holder.communicate()


@pytest.mark.parametrize("name", ["file", "file/data"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError) as refused, DataFolder(tmp_path / name):
        pass
    assert str(tmp_path / name) in str(refused.value)
    assert "Set dataDir" in str(refused.value)


def test_a_lock_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "maestro.lock").mkdir()
    with pytest.raises(ConfigurationError, match="Set dataDir"), DataFolder(tmp_path):
        pass


def test_a_pid_file_that_cannot_be_written_frees_the_lock_again(tmp_path: Path) -> None:
    (tmp_path / f"maestro.{os.getpid()}").mkdir()
    with pytest.raises(ConfigurationError, match="Set dataDir"), DataFolder(tmp_path):
        pass
    (tmp_path / f"maestro.{os.getpid()}").rmdir()
    with DataFolder(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_configuration_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigurationError, match=r"Permission denied.*Set dataDir"), DataFolder(tmp_path):
        pass


def test_who_is_refused_is_not_told_of_a_process_that_was_killed_before_others_shared_the_folder(
    tmp_path: Path,
) -> None:
    holder = hold(tmp_path)
    holder.kill()
    holder.communicate()
    with (
        DataFolder(tmp_path, shared=True),
        pytest.raises(DataFolderBusy, match="in use by another Maestro"),
        DataFolder(tmp_path),
    ):
        pass

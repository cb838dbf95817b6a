"""The holder of a data folder is read without taking the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maestro.installation.data_folder import DataFolder, FolderHolder, data_folder_holder
from tests.unit.test_data_folder import hold


def test_nobody_has_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert data_folder_holder(tmp_path / "data") == FolderHolder()
    assert not (tmp_path / "data").exists()


def test_who_has_it_alone_is_known_by_process_id(tmp_path: Path) -> None:
    with DataFolder(tmp_path):
        assert data_folder_holder(tmp_path) == FolderHolder(running=True, pid=os.getpid())
        assert f"process {os.getpid()}" in str(data_folder_holder(tmp_path))
    assert data_folder_holder(tmp_path) == FolderHolder()


@pytest.mark.parametrize("count", [1, 2])
def test_those_who_share_it_are_found(tmp_path: Path, count: int) -> None:
    folders = [DataFolder(tmp_path, shared=True) for _ in range(count)]
    for folder in folders:
        folder.__enter__()
    assert data_folder_holder(tmp_path) == FolderHolder(running=True, shared=True)
    for folder in folders:
        folder.__exit__(None, None, None)
    assert data_folder_holder(tmp_path) == FolderHolder()


def test_what_a_killed_process_signed_counts_no_more(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    assert data_folder_holder(tmp_path).pid == holder.pid
    holder.kill()
    holder.wait()
    holder.communicate()
    assert (tmp_path / "maestro.pid").exists()
    assert data_folder_holder(tmp_path) == FolderHolder()


def test_a_look_takes_nothing(tmp_path: Path) -> None:
    with DataFolder(tmp_path):
        pass
    before = sorted(os.listdir(tmp_path))
    data_folder_holder(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before
    command = [
        sys.executable,
        "-c",
        "from pathlib import Path; from maestro.installation.data_folder import DataFolder\n",
    ]
    command[-1] += f"with DataFolder(Path({str(tmp_path)!r})): print('ours')"
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ours\n"

"""When free space is worth a note, and when it is too little."""

import shutil
from pathlib import Path

import pytest

from maestro.diagnostics import doctor as module
from maestro.diagnostics.doctor import LOW_BYTES, NEEDED_BYTES, check_data_folder
from maestro.diagnostics.ports import Examined
from maestro.domain.health import DiagnosisLevel
from maestro.settings import survey_settings


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (LOW_BYTES, DiagnosisLevel.FINE),
        (LOW_BYTES - 1, DiagnosisLevel.NOTE),
        (NEEDED_BYTES, DiagnosisLevel.NOTE),
        (NEEDED_BYTES - 1, DiagnosisLevel.BROKEN),
    ],
)
def test_the_less_space_the_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, verdict: DiagnosisLevel
) -> None:
    class Usage:
        def __init__(self, free: int) -> None:
            self.free = free

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))
    [found] = check_data_folder(subject(tmp_path))
    assert found.verdict is verdict
    assert bool(found.fix) is (verdict is not DiagnosisLevel.FINE)


def test_a_network_disk_is_worth_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(module, "MOUNTS", mounts)
    [found] = check_data_folder(subject(tmp_path / "data"))
    assert found.verdict is DiagnosisLevel.NOTE
    assert "nfs4" in found.found
    mounts.write_text(f"server:/home {tmp_path} nfs4 rw 0 0\n/dev/sda / ext4 rw 0 0\n/dev/sdb {tmp_path} xfs rw 0 0\n")
    assert check_data_folder(subject(tmp_path / "data"))[0].verdict is not DiagnosisLevel.NOTE
    assert not (tmp_path / "data").exists()


def subject(folder: Path) -> Examined:
    """Return an installation with this data folder."""
    return Examined(survey_settings(None, {}, {"dataDir": folder}), {})

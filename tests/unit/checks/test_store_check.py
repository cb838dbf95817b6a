"""What the doctor says of a store that a running Maestro cannot write."""

from pathlib import Path

import pytest

from maestro.diagnostics import doctor as module
from maestro.diagnostics.ports import Examined
from maestro.domain.health import DiagnosisLevel
from maestro.installation.data_folder import FolderHolder
from maestro.settings import survey_settings
from tests.support.fresh_store import fresh_store
from tests.support.locking import locked


def test_a_program_that_holds_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGES_SECONDS", 0.1)
    store = fresh_store(tmp_path / "maestro.db")
    running = Examined(survey_settings(None, {}, {"dataDir": str(tmp_path)}), {}, FolderHolder(running=True))
    with locked(tmp_path / "maestro.db"):
        found = module.check_store(running)[1]
    assert [(one.check, one.verdict) for one in found] == [
        ("store", DiagnosisLevel.FINE),
        ("store", DiagnosisLevel.BROKEN),
    ]
    assert "has held the lock of the database for 0.1 s" in found[1].found
    assert "End that program" in found[1].fix
    assert [one.verdict for one in module.check_store(running)[1]] == [DiagnosisLevel.FINE]
    store.close()

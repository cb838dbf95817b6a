"""Every test of the settings starts in a folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the folder where a maestro.json may stand."""
    monkeypatch.chdir(tmp_path)

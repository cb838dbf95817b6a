"""``maestro promote`` says why it cannot choose between releases, and how to fix it."""

from pathlib import Path

import pytest

from maestro.cli.main import run
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without a configuration."""
    monkeypatch.chdir(tmp_path)


def test_an_embedded_server_has_no_releases_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["promote"]) == 1
    assert "set temporal.address (MAESTRO_TEMPORAL_ADDRESS)" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("MAESTRO_TEMPORAL_ADDRESS", address)
    assert run(["promote", "--wait", "0"]) == 1
    assert address in capsys.readouterr().err

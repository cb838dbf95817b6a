"""What ``maestro doctor`` says of bots: a wrong token is a sentence with its fix, and no token is in it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from maestro.diagnostics.ports import Examined
from maestro.diagnostics.services import check_bots
from maestro.domain.connectors import BotInstance
from maestro.domain.health import DiagnosisLevel
from maestro.domain.people.people import ConnectorStatus
from maestro.installation.data_folder import FolderHolder
from maestro.settings import survey_settings

TOKEN = "TOKEN-SECRET-of-the-bot"
ENABLED = {"connectors.discord.enabled": True, "connectors.discord.token": TOKEN}
ROW = BotInstance(platform="discord", account="default", configured=True)


def subject(folder: Path, **overrides: Any) -> Examined:
    """Return an installation that runs."""
    return Examined(survey_settings(None, {}, {"dataDir": str(folder), **overrides}), {}, FolderHolder(running=True))


def status(state: str, detail: str = "") -> ConnectorStatus:
    return ConnectorStatus(
        platform="discord", account="default", state=state, detail=detail, changed_at=datetime.now(UTC)
    )


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("running", DiagnosisLevel.FINE),
        ("degraded", DiagnosisLevel.NOTE),
        ("stopped", DiagnosisLevel.NOTE),
        ("failed", DiagnosisLevel.BROKEN),
    ],
)
def test_a_bot_is_told_of_as_it_last_said(tmp_path: Path, state: str, verdict: DiagnosisLevel) -> None:
    [found] = check_bots(subject(tmp_path, **ENABLED), [status(state, "Discord does not know this token")], [ROW])
    assert (found.check, found.verdict) == ("connector discord/default", verdict)
    assert "Discord does not know this token" in found.found
    assert "SECRET" not in str(found)


def test_one_that_the_configuration_names_is_told_of_before_the_first_start(tmp_path: Path) -> None:
    [found] = check_bots(subject(tmp_path, **ENABLED), [], [])
    assert (found.verdict, found.found) == (DiagnosisLevel.NOTE, "it has not been connected yet")


def test_one_without_a_token_is_broken(tmp_path: Path) -> None:
    [found] = check_bots(subject(tmp_path, **{**ENABLED, "connectors.discord.token": ""}), [], [])
    assert (found.verdict, "token is missing" in found.found) == (DiagnosisLevel.BROKEN, True)


def test_one_that_is_switched_off_says_how_to_switch_it_on(tmp_path: Path) -> None:
    row = BotInstance(platform="discord", account="default", configured=True, enabled=False)
    [found] = check_bots(subject(tmp_path, **ENABLED), [status("failed", "old")], [row])
    assert (found.verdict, "connectors enable discord/default" in found.fix) == (DiagnosisLevel.NOTE, True)

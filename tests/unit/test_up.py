"""What ``maestro up`` does before anything runs: it tidies up after a kill, and tells the connector who protects it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from maestro.bootstrap.connect import web_config
from maestro.bootstrap.up import Up
from maestro.settings import Loaded, Settings
from maestro.store.store import Store


class Reached(Exception):
    """The store is about to be opened."""


class UntilTheStore(Up):
    """Starts, but not far."""

    def open_store(self) -> Store:
        """Stop here."""
        raise Reached


def settings(folder: Path, **sections: Any) -> Settings:
    """Return settings with this data folder."""
    return Settings.model_validate({"dataDir": folder, **sections})


async def test_what_a_kill_left_half_received_is_gone_at_the_next_start(tmp_path: Path) -> None:
    uploads, media = tmp_path / "uploads", tmp_path / "media"
    for folder in (uploads, media / "arriving-abc", media / "ab"):
        folder.mkdir(parents=True)
    kept, foreign = media / "ab" / "abcdef", uploads / "notes.txt"
    for file in (uploads / "maestro-upload-xyz", media / "arriving-abc" / "upload", kept, foreign):
        file.write_text("x")
    with pytest.raises(Reached):
        await UntilTheStore(Loaded(settings(tmp_path), {}, None), say=lambda _: None).serve(asyncio.Event())
    assert {path for folder in (uploads, media) for path in folder.rglob("*") if path.is_file()} == {kept, foreign}
    assert not (media / "arriving-abc").exists()


def test_the_connector_knows_one_password_from_another_and_how_long_a_login_lasts(tmp_path: Path) -> None:
    first, second, none = (
        web_config(settings(tmp_path, webui={"password": password, "sessionHours": 3}))
        for password in ("one", "two", "")
    )
    assert len({first.password_digest, second.password_digest, none.password_digest}) == 3
    assert first.owner_hours == 3
    assert b"one" not in first.password_digest

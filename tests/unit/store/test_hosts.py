"""Hosts that share a store: the same keys on each, or the process does not start (ADR 43), and folders of their own."""

import base64
import contextlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from maestro.domain.conversations.conversation import DiscardedFile
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import encryption, existing_keys, open_keys, signing_key
from maestro.installation.storage import accept_keys, open_store, require_same_keys
from maestro.operations.conversations import remove_discarded_files
from maestro.settings import Settings
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from tests.support.job_rows import Clock
from tests.support.postgresql import database_url

FIRST, SECOND = (base64.b64encode(bytes([number]) * 32).decode() for number in (251, 7))


def host(folder: Path, name: str, **keys: str) -> Settings:
    """Return the settings of a host with a data folder of its own, and the store of all of them."""
    data = folder / name
    data.mkdir(exist_ok=True)
    store = {"url": database_url(folder / "maestro.db")}
    return Settings.model_validate({"dataDir": str(data), "store": store, "keys": keys})


def start(settings: Settings) -> None:
    """Open the store as a process does."""
    with contextlib.closing(open_store(settings)) as store:
        require_same_keys(store, settings)


def test_keys_of_the_settings_are_used_in_place_of_files(tmp_path: Path) -> None:
    keys = {"signing": FIRST, "secrets": SECOND}
    settings = Settings.model_validate({"dataDir": str(tmp_path), "keys": keys})
    assert signing_key(settings) == bytes([251]) * 32
    sealed = encryption(settings)("the key of an account").secret
    assert existing_keys(settings, {}).reveal_key(sealed).get_secret_value() == "the key of an account"
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_one_host_can_be_the_settings_of_all(tmp_path: Path) -> None:
    files = Settings.model_validate({"dataDir": str(tmp_path)})
    sealed, signing = open_keys(files, {}).stored_form("the key of an account").secret, signing_key(files)
    keys = {"signing": base64.b64encode(signing).decode(), "secrets": (tmp_path / "secrets.key").read_text()}
    settings = Settings.model_validate({"dataDir": str(tmp_path / "elsewhere"), "keys": keys})
    assert signing_key(settings) == signing
    assert open_keys(settings, {}).reveal_key(sealed).get_secret_value() == "the key of an account"


@pytest.mark.parametrize("text", ["short", "c2hvcnQ=", FIRST + "=", "x" * 44])
@pytest.mark.parametrize("name", ["signing", "secrets"])
def test_what_is_no_key_is_refused_with_the_command_that_makes_one(name: str, text: str) -> None:
    with pytest.raises(ValidationError, match="openssl rand -base64 32"):
        Settings.model_validate({"keys": {name: text}})


@pytest.mark.postgresql_only(reason="is about a store that hosts share")
@pytest.mark.parametrize("name", ["signing", "secrets"])
def test_a_host_with_another_key_does_not_start_and_is_told_the_setting(tmp_path: Path, name: str) -> None:
    keys = {"signing": FIRST, "secrets": FIRST}
    start(host(tmp_path, "one", **keys))
    start(host(tmp_path, "two", **keys))
    with pytest.raises(ConfigurationError, match=rf"keys\.{name} .* is another key .* --accept-keys"):
        start(host(tmp_path, "three", **{**keys, name: SECOND}))


@pytest.mark.postgresql_only(reason="is about a store that hosts share")
def test_one_host_needs_no_setting_and_the_second_is_told_what_to_do(tmp_path: Path) -> None:
    one = host(tmp_path, "one")
    start(one)
    start(one)
    with pytest.raises(ConfigurationError, match=r"signing\.key in .*two is another key .*MAESTRO_KEYS_SIGNING"):
        start(host(tmp_path, "two"))
    keys = {
        "signing": base64.b64encode((tmp_path / "one" / "signing.key").read_bytes()).decode(),
        "secrets": (tmp_path / "one" / "secrets.key").read_text(),
    }
    start(host(tmp_path, "two", **keys))


@pytest.mark.postgresql_only(reason="is about a store that hosts share")
def test_a_command_on_a_host_without_a_key_encrypts_nothing(tmp_path: Path) -> None:
    start(host(tmp_path, "one"))
    with pytest.raises(ConfigurationError, match=r"keys\.secrets"):
        encryption(host(tmp_path, "two"))("the key of an account")
    assert list((tmp_path / "two").iterdir()) == []


@pytest.mark.postgresql_only(reason="is about a store that hosts share")
def test_keys_are_changed_on_purpose(tmp_path: Path) -> None:
    start(host(tmp_path, "one", signing=FIRST, secrets=FIRST))
    changed = host(tmp_path, "one", signing=SECOND, secrets=SECOND)
    accept_keys(changed)
    start(changed)
    with pytest.raises(ConfigurationError, match="another key"):
        start(host(tmp_path, "one", signing=FIRST, secrets=FIRST))


@pytest.mark.postgresql_only(reason="is about a store that hosts share")
def test_each_host_removes_its_own_folders_of_a_deleted_conversation(tmp_path: Path) -> None:
    clock, folder = Clock(), "sessions/7"
    with contextlib.closing(Store(database_url(tmp_path / "maestro.db"), clock)) as store:
        with store.begin() as tx:
            tx._link.session.add(DiscardedFile(path=folder, at=tx.now))
            tx._link.session.flush()
        for host in ("one", "two"):
            (tmp_path / host / folder).mkdir(parents=True)
            remove_discarded_files(store, tmp_path / host, MediaFolder(tmp_path / host / "media"))
            assert not (tmp_path / host / folder).exists()
        clock.go(days=31)
        remove_discarded_files(store, tmp_path / "one", MediaFolder(tmp_path / "one" / "media"))
        with store.view() as tx:
            assert tx.conversations.removals.list_discarded_files() == []

"""Keys of accounts at rest: they cannot be read from the database (docs/decisions.md: secrets at rest)."""

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import StoredKey, last4
from maestro.installation.data_folder import SecretKeys, open_keys
from maestro.settings import Settings

KEY = "sk-KEY-SECRET-23-and-more"


@pytest.fixture
def keys() -> SecretKeys:
    return SecretKeys(Fernet.generate_key(), {"MY_KEY": KEY})


def test_a_typed_key_is_encrypted_and_comes_back(keys: SecretKeys) -> None:
    kept = keys.stored_form(KEY)
    assert "KEY-SECRET" not in kept.secret
    assert kept.last4 == "more"
    assert keys.reveal_key(kept.secret).get_secret_value() == KEY
    assert keys.stored_form(KEY).secret != kept.secret, "equal keys do not look equal"


def test_a_reference_is_stored_as_it_is_and_read_when_it_is_needed(keys: SecretKeys, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    for reference in ("env:MY_KEY", f"file:{file}"):
        assert keys.stored_form(reference) == StoredKey(reference)
        assert keys.reveal_key(reference).get_secret_value() == KEY


@pytest.mark.parametrize(
    ("reference", "expectation"),
    [("file:key", "the whole path"), ("env:", "name of an environment variable"), ("env:MY KEY", "name of an")],
)
def test_a_reference_that_cannot_be_one_is_refused(keys: SecretKeys, reference: str, expectation: str) -> None:
    with pytest.raises(ConfigurationError, match=expectation):
        keys.stored_form(reference)


def test_a_reference_to_nothing_names_the_fix(keys: SecretKeys) -> None:
    with pytest.raises(ConfigurationError, match="OTHER_KEY is not set; set it"):
        keys.reveal_key("env:OTHER_KEY")
    with pytest.raises(ConfigurationError, match=r"cannot be read .* fix the path"):
        keys.reveal_key("file:/nowhere/key")


def test_without_the_file_it_was_encrypted_under_a_key_is_lost(keys: SecretKeys) -> None:
    with pytest.raises(ConfigurationError, match=r"another secrets\.key .* enter the key again") as caught:
        SecretKeys(Fernet.generate_key(), {}).reveal_key(keys.stored_form(KEY).secret)
    assert caught.value.__cause__ is None


def test_the_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    settings = Settings.model_validate({"dataDir": tmp_path})
    kept = open_keys(settings, {}).stored_form(KEY)
    assert open_keys(settings, {}).reveal_key(kept.secret).get_secret_value() == KEY
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


def test_a_fingerprint_tells_keys_apart_and_gives_none_away(keys: SecretKeys) -> None:
    assert keys.keyed_fingerprint("openai", "", KEY) == keys.keyed_fingerprint("openai", "", KEY)
    assert keys.keyed_fingerprint("openai", "", KEY) != keys.keyed_fingerprint("openai", "", KEY[:-1])
    assert keys.keyed_fingerprint("a", "bc") != keys.keyed_fingerprint("ab", "c")
    assert SecretKeys(Fernet.generate_key(), {}).keyed_fingerprint(KEY) != keys.keyed_fingerprint(KEY)


def test_the_end_of_a_short_key_is_not_shown() -> None:
    assert last4("0123456789abcdef") == "cdef"
    assert last4("0123456789abcde") == ""

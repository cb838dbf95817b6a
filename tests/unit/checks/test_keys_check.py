"""What the doctor says of the keys that the hosts of a store share."""

from base64 import b64encode
from pathlib import Path

from maestro.diagnostics.doctor import check_keys
from maestro.diagnostics.ports import Examined
from maestro.domain.health import DiagnosisLevel
from maestro.installation.data_folder import KeyName, fingerprint_of
from maestro.settings import survey_settings


def examined(folder: Path, **keys: bytes) -> Examined:
    """Return an installation with these keys in its environment."""
    environment = {f"MAESTRO_KEYS_{name.upper()}": b64encode(key.ljust(32)).decode() for name, key in keys.items()}
    return Examined(survey_settings(None, environment, {"dataDir": str(folder)}), environment)


def test_the_same_keys_as_those_of_the_store_are_fine(tmp_path: Path) -> None:
    here = examined(tmp_path, signing=b"one", secrets=b"two")
    [found] = check_keys(here, {name: fingerprint_of(here.settings, name) for name in KeyName})
    assert found.verdict is DiagnosisLevel.FINE
    assert found.found == (
        "signing: keys.signing (MAESTRO_KEYS_SIGNING), the same as that of the store; "
        "secrets: keys.secrets (MAESTRO_KEYS_SECRETS), the same as that of the store"
    )


def test_another_key_than_that_of_the_store_is_broken(tmp_path: Path) -> None:
    here, there = examined(tmp_path, signing=b"one", secrets=b"two"), examined(tmp_path, signing=b"1", secrets=b"two")
    found = check_keys(here, {name: fingerprint_of(there.settings, name) for name in KeyName})
    assert [one.verdict for one in found] == [DiagnosisLevel.BROKEN, DiagnosisLevel.FINE]
    assert "another key" in found[0].found
    assert found[0].fix.startswith("Give all hosts the same keys.signing")
    assert found[1].found.startswith("secrets: ")


def test_a_host_without_a_key_that_the_others_have_is_broken_and_makes_none(tmp_path: Path) -> None:
    there = examined(tmp_path, signing=b"one", secrets=b"two")
    found = check_keys(examined(tmp_path), {name: fingerprint_of(there.settings, name) for name in KeyName})
    assert [(one.verdict, one.fix) for one in found] == [
        (DiagnosisLevel.BROKEN, f"Set keys.{name} (MAESTRO_KEYS_{name.upper()}) to their key.") for name in KeyName
    ]
    assert list(tmp_path.iterdir()) == []

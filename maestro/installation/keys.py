"""The keys of accounts in the store: encrypted, or stored as references to a variable or a file.

See docs/decisions.md: secrets at rest.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr

from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import StoredKey, last4
from maestro.installation.data_folder import FileLock
from maestro.operations.inputs import EncryptSecret
from maestro.settings import Settings
from maestro.settings.sources import ENVIRONMENT, FILE, References

SEALED = "sealed:"


class SecretKeys:
    """The secrets in the store, encrypted by a key outside of the database, which alone reveals none.

    References to variables are looked up in ``environment`` at each call. References to files have absolute paths,
    because processes may start in different folders.
    """

    def __init__(self, encryption: bytes, environment: Mapping[str, str]) -> None:
        self._fernet = Fernet(encryption)
        self._salt = encryption
        self._references = References(environment, Path("/"))

    def keep(self, text: str) -> StoredKey:
        """Return the form in which an entered key or reference is stored.

        Raises ``ConfigurationError`` for an invalid reference, whose target only the process that uses the key reads.
        """
        if text.startswith(FILE) and not Path(text.removeprefix(FILE)).is_absolute():
            raise ConfigurationError(
                "file: must be followed by the whole path of a file, such as file:/run/secrets/key"
            )
        if text.startswith(ENVIRONMENT) and not text.removeprefix(ENVIRONMENT).isidentifier():
            raise ConfigurationError("env: must be followed by the name of an environment variable")
        if text.startswith((ENVIRONMENT, FILE)):
            return StoredKey(text)
        return StoredKey(SEALED + self._fernet.encrypt(text.encode()).decode(), last4(text))

    def reveal(self, secret: str) -> SecretStr:
        """Return the key from its stored form; raises ``ConfigurationError`` with the fix."""
        if not secret.startswith(SEALED):
            try:
                return SecretStr(self._references.read(secret))
            except ValueError as error:
                raise ConfigurationError(str(error)) from None
        try:
            return SecretStr(self._fernet.decrypt(secret.removeprefix(SEALED)).decode())
        except InvalidToken:
            raise ConfigurationError(
                "its key was encrypted with another secrets.key than that of this data folder; restore the old file, "
                "or enter the key again"
            ) from None

    def fingerprint(self, *parts: str) -> str:
        """Return a keyed hash of these texts, which differs for different keys and reveals none."""
        return hmac.new(self._salt, "\0".join(parts).encode(), hashlib.sha256).hexdigest()


def open_keys(settings: Settings, environment: Mapping[str, str]) -> SecretKeys:
    """Return the secrets' encryption for a data folder, whose encryption key is created if it is missing."""
    key = _read_or_create(settings, encryption_file(settings), Fernet.generate_key)
    return SecretKeys(key, environment)


def encryption(settings: Settings) -> EncryptSecret:
    """Return a function that encrypts secrets; the data folder's key is created with the first secret."""
    return lambda text: open_keys(settings, {}).keep(text)


def existing_keys(settings: Settings, environment: Mapping[str, str]) -> SecretKeys:
    """Return the secrets' encryption without creating a key; without a key file no secret can be decrypted."""
    path = encryption_file(settings)
    return SecretKeys(path.read_bytes() if path.is_file() else Fernet.generate_key(), environment)


def signing_key(settings: Settings) -> bytes:
    """Return the key that signs sessions and resume tokens, created on first use, readable by its owner only."""
    return _read_or_create(settings, signing_key_file(settings), lambda: secrets.token_bytes(32))


def encryption_file(settings: Settings) -> Path:
    """Return the path of the encryption key; if the file is lost, operators must enter the keys of accounts again."""
    return settings.data_dir / "secrets.key"


def _read_or_create(settings: Settings, path: Path, create: Callable[[], bytes]) -> bytes:
    """Return the content of a file, which one process creates if it is missing."""
    with FileLock(settings.data_dir / "start.lock").held():
        if not path.exists():
            fresh = path.with_suffix(".new")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(create())
            fresh.replace(path)
    return path.read_bytes()


def signing_key_file(settings: Settings) -> Path:
    return settings.data_dir / "signing.key"

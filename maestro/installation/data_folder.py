"""The data folder, its lock, and its keys for secrets and sessions (docs/decisions.md: secrets at rest)."""

import base64
import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TextIO

from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr

from maestro.domain.errors import ConfigurationError, DataFolderBusy
from maestro.domain.llm.accounts import StoredKey, last4
from maestro.domain.settings.section import decode_key
from maestro.operations.inputs import EncryptSecret
from maestro.settings import Settings
from maestro.settings.sources import ENVIRONMENT, FILE, References
from maestro.store.engine.database import name_of
from temporal.server_process import ServerConfig, ServerRecord, read_record

LOCK = "maestro.lock"
OWNER_ONLY = 0o077
"""The umask for files that only their owner may read, because they hold prompts, keys and messages."""
CONTENT = (
    *("maestro.db*", "temporal.db*", "temporal.json", "*.key", "*.lock", "maestro.pid"),
    *("answers", "leases", "logs", "media", "media-cache", "sessions", "uploads", "workspaces"),
)
"""Patterns of the files that Maestro creates in the data folder, which may also hold other programs' files."""
RETRY_SECONDS = 0.05

SEALED = "sealed:"


class FileLock:
    """An exclusive or shared lock between processes of one machine, also in containers with the same volume.

    It uses flock, which ends with a killed process; a mere lock file would remain.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def take_lock(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock; return false if another process holds it, or wait for it with ``wait``. Raises ``OSError``."""
        # Python opens files as close-on-exec, so child processes do not inherit the lock.
        file = self._path.open("a+")
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._file = file
        return True

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Wait for the lock and hold it exclusively during the block; raises ``OSError``."""
        self.take_lock(wait=True)
        try:
            yield
        finally:
            self.release_lock()

    def write_process_id(self) -> None:
        """Write the id of this process into the lock file."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def describe_holder(self) -> str:
        """Return a text for the process that holds the lock: ``process 123``, or ``another process`` if unknown."""
        pid = _read_pid(self._path)
        return f"process {pid}" if pid is not None else "another process"

    def release_lock(self) -> None:
        """Release the lock, if this object holds it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def close_to_others(paths: Iterable[Path]) -> None:
    """Remove the permissions of group and others from these files, and from everything in these folders."""
    for path in paths:
        with contextlib.suppress(OSError):  # the file was deleted in the meantime, or belongs to another user
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & OWNER_ONLY:
                path.chmod(stat.S_IMODE(mode) & ~OWNER_ONLY)
            if stat.S_ISDIR(mode):
                close_to_others(path.iterdir())


class DataFolder:
    """The data folder, locked during a ``with`` block; new files in the block are readable by their owner only.

    A process with an embedded Temporal server takes the exclusive lock. Worker, API and connector processes beside a
    Temporal cluster take a shared lock, which only excludes the exclusive one.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """Set the path; a missing folder is created when the block begins, readable by its owner only."""
        self.path = path.expanduser().absolute()
        self._shared = shared
        self._lock = FileLock(self.path / LOCK)
        self._mask = 0

    @property
    def pid_file(self) -> Path:
        """The file with the id of the process that holds the exclusive lock; a clean exit removes the file."""
        return self.path / "maestro.pid"

    def __enter__(self) -> "DataFolder":
        """Create the folder if it is missing, and lock it.

        Raises ``DataFolderBusy`` if another process holds the lock, ``ConfigurationError`` if the folder is unusable.
        """
        self._mask = os.umask(OWNER_ONLY)
        with contextlib.ExitStack() as undo:
            undo.callback(os.umask, self._mask)
            try:
                self._create_and_lock()
            except OSError as error:
                raise ConfigurationError(self._unusable_message(error)) from error
            undo.pop_all()
        close_to_others(path for pattern in CONTENT for path in self.path.glob(pattern))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shared:
            self.pid_file.unlink(missing_ok=True)
        self._lock.release_lock()
        os.umask(self._mask)

    def _create_and_lock(self) -> None:
        if not self.path.is_dir():
            # Another process may create the folder at the same time (exist_ok).
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_with_retries()
        try:
            # A process with the shared lock also writes a file, to check that the folder is writable.
            fresh = self.pid_file.with_suffix(f".{os.getpid()}")
            fresh.write_text(f"{os.getpid()}\n")
            if self._shared:
                fresh.unlink(missing_ok=True)
                self.pid_file.unlink(missing_ok=True)  # A killed process may have left this file behind.
            else:
                fresh.replace(self.pid_file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._lock.release_lock()
            raise

    def _lock_with_retries(self) -> None:
        # Several tries, because `maestro doctor` briefly holds the lock, and another process that starts at the
        # same time holds the lock exclusively while it migrates the tables.
        for _ in range(60 if self._shared else 4):
            if self._lock.take_lock(shared=self._shared):
                return
            time.sleep(RETRY_SECONDS)
        pid = _read_pid(self.pid_file)
        # No pid file: the process with the lock has just started, or several processes hold a shared lock.
        holder = f"process {pid}" if pid is not None else "another Maestro, such as a separate worker"
        raise DataFolderBusy(
            f"The data folder {self.path} is in use by {holder}. "
            "Stop that Maestro first, or set dataDir to another folder for this one."
        )

    def _unusable_message(self, error: OSError) -> str:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "Free some space on that disk, or set" if full else "Set"
        return (
            f"The data folder {self.path} (dataDir) cannot be used: {reason}. "
            f"{fix} dataDir to a folder on a local disk that this user may create and write."
        )


@dataclass(frozen=True)
class FolderHolder:
    """The use of a data folder: whether processes of Maestro run, with a shared lock or not, and the process id."""

    running: bool = False
    shared: bool = False
    pid: int | None = None

    def __str__(self) -> str:
        if self.shared:
            return "separate processes of Maestro"
        return f"a running Maestro (process {self.pid})" if self.pid else "a running Maestro"


def data_folder_holder(folder: Path) -> FolderHolder:
    """Return which processes of Maestro hold the data folder.

    Each kind of lock is tried and released at once. The exclusive lock is tried last, because a starting process fails
    while it is held.
    """
    data = DataFolder(folder)
    try:
        lock = os.open(data.path / LOCK, os.O_RDONLY)
    except OSError:
        return FolderHolder()
    try:
        if not _can_lock(lock, fcntl.LOCK_SH):
            return FolderHolder(running=True, pid=_read_pid(data.pid_file))
        return FolderHolder() if _can_lock(lock, fcntl.LOCK_EX) else FolderHolder(running=True, shared=True)
    finally:
        os.close(lock)


def embedded_server_of(folder: Path) -> ServerRecord | None:
    """Return the embedded Temporal server of the data folder, None if it does not run."""
    try:
        record = read_record(ServerConfig(folder, port=0, ui_port=1).record_path)
    except OSError:  # `check_data_folder` of `maestro doctor` reports an unreadable folder
        return None
    return record if record is not None and record.is_running() else None


def _can_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # `check_data_folder` of `maestro doctor` reports a file system without locks
        return True
    return True


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):  # The process that took the lock has not yet written its id.
        return None


class SecretKeys:
    """The encryption of the secrets in the store; its key is outside of the database, which alone reveals no secret.

    References to variables are looked up in ``environment`` at each call. References to files have absolute paths,
    because processes may start in different folders.
    """

    def __init__(self, encryption: bytes, environment: Mapping[str, str]) -> None:
        self._fernet = Fernet(encryption)
        self._salt = encryption
        self._references = References(environment, Path("/"))

    def stored_form(self, text: str) -> StoredKey:
        """Return the form in which an entered key or reference is stored.

        Raises ``ConfigurationError`` for an invalid reference. Only the process that uses the key reads the target.
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

    def reveal_key(self, secret: str) -> SecretStr:
        """Return the key from its stored form; raises ``ConfigurationError`` with the fix."""
        if not secret.startswith(SEALED):
            try:
                return SecretStr(self._references.resolve_reference(secret))
            except ValueError as error:
                raise ConfigurationError(str(error)) from None
        try:
            return SecretStr(self._fernet.decrypt(secret.removeprefix(SEALED)).decode())
        except InvalidToken:
            raise ConfigurationError(
                "its key was encrypted with another secrets.key than that of this data folder; restore the old file, "
                "or enter the key again"
            ) from None

    def keyed_fingerprint(self, *parts: str) -> str:
        """Return a keyed hash of these texts; it differs for different keys, and reveals none of the texts."""
        return hmac.new(self._salt, "\0".join(parts).encode(), hashlib.sha256).hexdigest()


def open_keys(settings: Settings, environment: Mapping[str, str]) -> SecretKeys:
    """Return the encryption of the store's secrets; a missing encryption key is created."""
    return SecretKeys(_encryption_key(settings), environment)


def encryption(settings: Settings) -> EncryptSecret:
    """Return a function that encrypts secrets; a missing key is created with the first secret.

    Where several hosts share the store, the function raises ``ConfigurationError`` instead of creating a key.
    """

    def encrypt_secret(text: str) -> StoredKey:
        if not isinstance(settings.database, Path) and not has_key(settings, KeyName.SECRETS):
            raise ConfigurationError(missing_key_message(settings))
        return open_keys(settings, {}).stored_form(text)

    return encrypt_secret


def existing_keys(settings: Settings, environment: Mapping[str, str]) -> SecretKeys:
    """Return the encryption of secrets without creating a key; without a key no secret can be decrypted."""
    is_there = has_key(settings, KeyName.SECRETS)
    return SecretKeys(_encryption_key(settings) if is_there else Fernet.generate_key(), environment)


def signing_key(settings: Settings) -> bytes:
    """Return the key that signs sessions and resume tokens, created on first use, readable by its owner only."""
    if settings.keys.signing:
        return decode_key(settings.keys.signing)
    return _read_or_create(settings, signing_key_file(settings), lambda: secrets.token_bytes(32))


def _encryption_key(settings: Settings) -> bytes:
    if settings.keys.secrets:
        return base64.urlsafe_b64encode(decode_key(settings.keys.secrets))
    return _read_or_create(settings, encryption_file(settings), Fernet.generate_key)


class KeyName(StrEnum):
    """The keys of an installation, by the last part of the setting that names each."""

    SIGNING = "signing"
    SECRETS = "secrets"


def has_key(settings: Settings, name: KeyName) -> bool:
    """Return whether a key is in the settings or in the data folder."""
    file = signing_key_file(settings) if name is KeyName.SIGNING else encryption_file(settings)
    return bool(getattr(settings.keys, name)) or file.is_file()


def fingerprint_of(settings: Settings, name: KeyName) -> str:
    """Return a keyed hash of a key, by which hosts see whether they have the same one; a missing key is created."""
    key = signing_key(settings) if name is KeyName.SIGNING else base64.urlsafe_b64decode(_encryption_key(settings))
    return hmac.new(key, f"maestro {name}".encode(), hashlib.sha256).hexdigest()


def key_source(settings: Settings, name: KeyName) -> str:
    """Return where this host has a key from: a setting, or a file of the data folder."""
    in_settings = bool(getattr(settings.keys, name))
    return f"keys.{name} (MAESTRO_KEYS_{name.upper()})" if in_settings else f"{name}.key in {settings.data_dir}"


def missing_key_message(settings: Settings) -> str:
    """Return why this host cannot encrypt secrets, and the fix."""
    return (
        f"this host has no key for the secrets in {name_of(settings.database)}. Set keys.secrets "
        "(MAESTRO_KEYS_SECRETS) to the key of the other hosts, or run this command on a host that has it."
    )


def encryption_file(settings: Settings) -> Path:
    """Return the path of the encryption key; if the file is lost, operators must enter the keys of accounts again."""
    return settings.data_dir / "secrets.key"


def _read_or_create(settings: Settings, path: Path, create: Callable[[], bytes]) -> bytes:
    """Return the content of a key file; a lock lets only one process create a missing file."""
    with FileLock(settings.data_dir / "start.lock").hold_lock():
        if not path.exists():
            fresh = path.with_suffix(".new")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(create())
            fresh.replace(path)
    return path.read_bytes()


def signing_key_file(settings: Settings) -> Path:
    return settings.data_dir / "signing.key"

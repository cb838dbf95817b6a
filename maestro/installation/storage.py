"""The store of a data folder, and the folders beside it."""

import os
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from cryptography.fernet import Fernet

from connectors.web import endpoints
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import FileLock, close_to_others
from maestro.installation.entries import enter
from maestro.settings import Settings
from maestro.store.engine.schema import check
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

KEY_BYTES = 32


def open_store(settings: Settings) -> Store:
    """Open the store, bring it up to date and enter the configured agents and bindings.

    One process at a time: several that start together on an empty folder must not each begin afresh.
    """
    database = settings.database
    with FileLock(settings.data_dir / "start.lock").held():
        if not database.exists():
            # A new database needs a new key: old tokens refer to channels and deliveries that no longer exist.
            _key_file(settings).unlink(missing_ok=True)
        store = Store.open(database)
        close_to_others(database.parent.glob(f"{database.name}*"))  # the database may be outside of the data folder
        with store.begin() as tx:
            _renew_ids(tx)
            enter(tx, settings)
    return store


def _renew_ids(tx: Transaction) -> None:
    """Begin the ids that clients remember after the present time, in milliseconds since 1970.

    After an older backup was restored, the store would give ids again that clients have seen with other messages; a web
    client would take new answers for old ones. JavaScript counts exactly up to 2**53, which is the year 287396.
    """
    floor = int(tx.now.timestamp() * 1000)
    tx.deliveries.begin_ids_after(floor)
    tx.chat.begin_ids_after(floor)


def open_existing_store(settings: Settings) -> Store:
    """Open an existing store without migrating it, because another release may use it.

    Raises ``ConfigurationError`` without a store, ``OlderDatabase`` and ``NewerDatabase`` when this release does not
    fit.
    """
    path = settings.database
    if not path.exists():
        raise ConfigurationError(
            f"there is no Maestro database at {path}. Start Maestro once with `maestro up`, or set dataDir "
            "(--data-dir) to its data folder."
        )
    check(path)
    return Store(path)


def open_files(settings: Settings) -> MediaFolder:
    """Return the media folder."""
    return MediaFolder(settings.data_dir / "media")


def workspaces_folder(settings: Settings) -> Path:
    """Return where each conversation has a folder for the tools of its agent.

    It is not that of the command ``claude``: settings for the command that a tool wrote there would be obeyed.
    """
    return settings.data_dir / "workspaces"


def upload_folder(settings: Settings) -> Path:
    """Return the folder for files that are still being uploaded."""
    return settings.data_dir / "uploads"


def sweep_uploads(settings: Settings, older_than: timedelta = timedelta()) -> None:
    """Remove half-received files of an earlier process; in a shared folder, only those that are old enough."""
    until = time.time() - older_than.total_seconds()
    endpoints.sweep(upload_folder(settings), until)
    open_files(settings).sweep(until)


def signing_key(settings: Settings) -> bytes:
    """Return the key that signs sessions and resume tokens; made once, readable by its owner only."""
    return _read_or_make(settings, _key_file(settings), lambda: secrets.token_bytes(KEY_BYTES))


def encryption_key(settings: Settings) -> bytes:
    """Return the key that encrypts the keys of accounts; created once, readable by its owner only.

    See docs/decisions.md: secrets at rest.
    """
    return _read_or_make(settings, encryption_file(settings), Fernet.generate_key)


def encryption_file(settings: Settings) -> Path:
    """Return the file of that key; if it is lost, keys that operators typed have to be entered again."""
    return settings.data_dir / "secrets.key"


def _read_or_make(settings: Settings, path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the content of a file, created if missing; processes that start together create it once."""
    with FileLock(settings.data_dir / "start.lock").held():
        if not path.exists():
            fresh = path.with_suffix(".new")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(make())
            fresh.replace(path)
    return path.read_bytes()


def _key_file(settings: Settings) -> Path:
    return settings.data_dir / "signing.key"

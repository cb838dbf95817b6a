"""Read-only inspection of the store by another process, while Maestro may be running."""

import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, func
from sqlalchemy.exc import OperationalError
from sqlmodel import select

from maestro.domain.connectors import BotInstance
from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.llm.accounts import ModelAccount
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.webhooks.webhook import Webhook
from maestro.store.background.schedules import Schedules
from maestro.store.background.webhooks import WebhookEndpoints
from maestro.store.cluster import KeyFingerprints
from maestro.store.engine.database import Location, administer
from maestro.store.engine.repository import Link
from maestro.store.engine.schema import require_release
from maestro.store.llm.accounts import Accounts
from maestro.store.platforms.bots import Bots
from maestro.store.users.audit import SettingsOverrides
from maestro.store.users.users import WebUsers

STEPS_BETWEEN_LOOKS = 10_000
"""The number of SQLite instructions between two checks of the time limit."""


@dataclass(frozen=True)
class Inspection:
    """The content, condition and size in bytes of the store; ``damage`` is SQLite's report, empty for none.

    ``thorough`` is false if the time limit ended the check before it reached every page. A PostgreSQL server checks its
    own pages. ``fingerprints`` are those of the keys that hosts share, ``overrides`` the settings changed at run time.
    """

    damage: str
    thorough: bool
    size: int = 0
    open_jobs: int = 0
    failed_jobs: int = 0
    connectors: Sequence[ConnectorStatus] = ()
    schedules: Sequence[ScheduleColumns] = ()
    webhooks: Sequence[Webhook] = ()
    bots: Sequence[BotInstance] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, object] = field(default_factory=dict)


def inspect_database(location: Location, seconds: float) -> Inspection:
    """Inspect the database; the check of the database's pages for damage stops after ``seconds``.

    Raises ``StoreUnreadable``, ``OlderDatabase`` and ``NewerDatabase``.
    """
    with administer(location, observe=True) as connection:
        require_release(connection, location)
        damage = _find_damage(connection, seconds) if isinstance(location, Path) else ""
        if damage:
            return Inspection(damage, thorough=True)
        with closing(Link(connection)) as link:
            jobs = Counter(dict(link.session.exec(select(Job.status, func.count()).group_by(Job.status)).all()))
            return Inspection(
                damage="",
                thorough=damage is not None,
                size=_size_of(connection, location),
                open_jobs=sum(jobs[status] for status in OPEN),
                failed_jobs=jobs[JobStatus.FAILED],
                connectors=WebUsers(link, datetime.now(UTC)).list_connectors(),
                schedules=Schedules(link, datetime.now(UTC)).list_schedules(),
                webhooks=WebhookEndpoints(link, datetime.now(UTC)).list_webhooks(),
                bots=Bots(link, datetime.now(UTC)).list_bots(),
                fingerprints=KeyFingerprints(link, datetime.now(UTC)).list_fingerprints(),
                overrides=SettingsOverrides(link, datetime.now(UTC)).read_values(),
            )


def is_locked(path: Path, seconds: float) -> bool:
    """Return whether another program holds the database's write lock for at least ``seconds``.

    Call this only while Maestro uses the database: closing the last connection to it changes its files.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=seconds, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        connection.execute("ROLLBACK")
    return False


def read_stored_accounts(location: Location) -> Sequence[ModelAccount]:
    """Return the stored accounts of model providers; raises the errors of ``inspect_database``."""
    with administer(location, observe=True) as connection:
        require_release(connection, location)
        with closing(Link(connection)) as link:
            return Accounts(link, datetime.now(UTC)).list_accounts()


def _size_of(connection: Connection, location: Location) -> int:
    if isinstance(location, Path):
        return location.stat().st_size
    return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())


def _find_damage(connection: Connection, seconds: float) -> str | None:
    """Return SQLite's report of damage: empty without damage, None if the time limit ended the check."""
    deadline = time.monotonic() + seconds
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        report = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    except OperationalError:
        if time.monotonic() <= deadline:
            raise
        return None
    finally:
        driver.set_progress_handler(None, 0)
    return "" if report == "ok" else str(report)

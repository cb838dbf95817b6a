"""The checks of the store, and of its schedules and webhooks."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.webhooks.webhook import Webhook, checked_secret
from maestro.installation.keys import SEALED, SecretKeys
from maestro.store.engine.database import RESCUE
from maestro.store.inspection import Inspection, inspect, is_locked

STORE_CHECK = "store"
JOBS = "jobs"
SECONDS = 2.0
"""Seconds for reading every page; a larger database is read in part."""

SCHEDULES_CHECK = "schedules"
MOST_NAMED = 10

WEBHOOKS_CHECK = "webhooks"


@dataclass(frozen=True)
class StoreFindings:
    """The inspection of the store, None if it cannot be read, and its diagnoses."""

    inspection: Inspection | None
    diagnoses: list[Diagnosis]


def store(subject: Examined) -> StoreFindings:
    """Inspect the store without changing it."""
    path = subject.settings.database
    # Os.path.exists returns False without permission for the folder, where Path.exists raises.
    if not os.path.exists(path):
        return StoreFindings(None, [note(STORE_CHECK, f"there is no {path} yet: the first start makes it")])
    try:
        inspection = inspect(path, SECONDS)
    except MaestroError as error:
        found, _, fix = str(error).partition(". ")
        return StoreFindings(None, [broken(STORE_CHECK, found, fix)])
    return StoreFindings(inspection, [_pages(subject, inspection), *_lock(subject), *_jobs(inspection)])


def _pages(subject: Examined, inspection: Inspection) -> Diagnosis:
    path = subject.settings.database
    if inspection.damage:
        return broken(STORE_CHECK, f"{path} is damaged: {' '.join(inspection.damage.split())}", RESCUE)
    size = f"{path.stat().st_size / 1024**2:.1f} MB"
    if not inspection.thorough:
        return fine(STORE_CHECK, f"{path} ({size}) is of this release; it is too large to read every page now")
    return fine(STORE_CHECK, f"{path} ({size}) is of this release and whole")


def _lock(subject: Examined) -> list[Diagnosis]:
    path = subject.settings.database
    if not subject.holder.running or not is_locked(path, SECONDS):
        return []
    found = f"{path} cannot be written: another program has held the lock of the database for {SECONDS:g} s"
    return [
        broken(STORE_CHECK, found, "End that program, such as an open sqlite3 shell; Maestro then goes on by itself.")
    ]


def _jobs(inspection: Inspection) -> list[Diagnosis]:
    found = f"{inspection.open_jobs} open, {inspection.failed_jobs} failed"
    if inspection.failed_jobs:
        return [note(JOBS, found, "`maestro jobs list --status failed` shows why; `maestro jobs replay ID` repeats.")]
    return [note(JOBS, found)] if inspection.open_jobs else []


def schedules(planned: Sequence[ScheduleColumns]) -> list[Diagnosis]:
    """Return the diagnoses of schedules; none without schedules."""
    found = [*_refused(planned), *_given_up(planned)]
    waiting = sum(not one.followed and not one.follow_error for one in planned)
    if waiting:
        fix = "A running Maestro tells it within a second of reaching it."
        found.append(note(SCHEDULES_CHECK, f"Temporal was not told of {waiting} of {len(planned)} yet", fix))
    if not planned or found:
        return found
    return [fine(SCHEDULES_CHECK, f"{len(planned)} planned, and Temporal was told of all of them")]


def _refused(planned: Sequence[ScheduleColumns]) -> Iterator[Diagnosis]:
    for one in [one for one in planned if one.follow_error][:MOST_NAMED]:
        fix = f"Correct it with `maestro schedules edit {one.ref}`, or remove it."
        yield broken(SCHEDULES_CHECK, f"Temporal could not be told of {one.ref} ({one.name}): {one.follow_error}", fix)


def _given_up(planned: Sequence[ScheduleColumns]) -> Iterator[Diagnosis]:
    for one in [one for one in planned if one.paused_reason][:MOST_NAMED]:
        fix = f"See why in its jobs, then `maestro schedules resume {one.ref}`."
        yield note(SCHEDULES_CHECK, f"{one.ref} ({one.name}) is paused: {one.paused_reason}", fix)


def webhooks(found: Sequence[Webhook], keys: SecretKeys) -> list[Diagnosis]:
    """Return the diagnoses of webhooks; none without webhooks."""
    used = [webhook for webhook in found if webhook.enabled]
    said = list(_unreadable(used, keys))[:MOST_NAMED]
    if not found or said:
        return said
    return [fine(WEBHOOKS_CHECK, f"{len(used)} of {len(found)} take deliveries")]


def _unreadable(used: Sequence[Webhook], keys: SecretKeys) -> Iterator[Diagnosis]:
    for webhook in used:
        try:
            checked_secret(webhook.scheme, keys.reveal(webhook.secret).get_secret_value())
        except (ConfigurationError, ValueError) as error:
            problem = f"the secret of {webhook.path} is of no use: {error}"
            if webhook.secret.startswith(SEALED):
                fix = f"Mend that, or make another with `maestro webhooks rotate {webhook.path}`."
                yield broken(WEBHOOKS_CHECK, problem, fix)
            else:  # the dashboard's process may have an environment that this command lacks
                yield note(WEBHOOKS_CHECK, problem, "Put it where the process that serves the dashboard can read it.")

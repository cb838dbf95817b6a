"""Whether the store can be read, is of this release and whole; nothing is created and nothing is changed."""

import os
from dataclasses import dataclass

from maestro.bootstrap.checks.subject import Subject, broken, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.errors import MaestroError
from maestro.store.engine.database import RESCUE
from maestro.store.inspection import Inspection, inspect, is_locked

CHECK = "store"
JOBS = "jobs"
SECONDS = 2.0
"""How long reading every page may take; a large database is then read in part."""


@dataclass(frozen=True)
class Look:
    """What was read, None where nothing could be, and what is to be said of it."""

    inspection: Inspection | None
    diagnoses: list[Diagnosis]


def store(subject: Subject) -> Look:
    """Read the store as it is."""
    path = subject.settings.database
    if not os.path.exists(path):  # unlike Path's, it says no as well where the folder may not be entered
        return Look(None, [note(CHECK, f"there is no {path} yet: the first start makes it")])
    try:
        inspection = inspect(path, SECONDS)
    except MaestroError as error:
        found, _, fix = str(error).partition(". ")
        return Look(None, [broken(CHECK, found, fix)])
    return Look(inspection, [_pages(subject, inspection), *_lock(subject), *_jobs(inspection)])


def _pages(subject: Subject, inspection: Inspection) -> Diagnosis:
    path = subject.settings.database
    if inspection.damage:
        return broken(CHECK, f"{path} is damaged: {' '.join(inspection.damage.split())}", RESCUE)
    size = f"{path.stat().st_size / 1024**2:.1f} MB"
    if not inspection.thorough:
        return fine(CHECK, f"{path} ({size}) is of this release; it is too large to read every page now")
    return fine(CHECK, f"{path} ({size}) is of this release and whole")


def _lock(subject: Subject) -> list[Diagnosis]:
    path = subject.settings.database
    if not subject.holder.running or not is_locked(path, SECONDS):
        return []
    found = f"{path} cannot be written: another program has held the lock of the database for {SECONDS:g} s"
    return [broken(CHECK, found, "End that program, such as an open sqlite3 shell; Maestro then goes on by itself.")]


def _jobs(inspection: Inspection) -> list[Diagnosis]:
    found = f"{inspection.open_jobs} open, {inspection.failed_jobs} failed"
    if inspection.failed_jobs:
        return [note(JOBS, found, "`maestro jobs list --status failed` shows why; `maestro jobs replay ID` repeats.")]
    return [note(JOBS, found)] if inspection.open_jobs else []

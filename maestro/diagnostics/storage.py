"""The diagnosis of the data folder and of the store."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.skills.files import SkillSet, arrange
from maestro.domain.webhooks.webhook import Webhook, checked_secret
from maestro.installation.keys import SEALED, SecretKeys
from maestro.operations.skill_folder import SkillFolder
from maestro.settings import Settings
from maestro.store.engine.database import RESCUE
from maestro.store.inspection import Inspection, inspect, is_locked

FOLDER_CHECK = "data folder"
HOLDER = "holder"

LOW_BYTES = 1024**3
"""Less free space than this is worth a note: a busy day takes some hundred megabytes."""
NEEDED_BYTES = 50 * 1024**2
"""With less free space the first start fails, because the two databases and their logs need it."""
PROBE_BYTES = 256 * 1024

ELSEWHERE = "Set dataDir (--data-dir) to a folder on a local disk that this user may create and write."
MAKE_ROOM = "Free some space on that disk, or move the folder and set dataDir (--data-dir) to its new place."
FULL = (errno.ENOSPC, errno.EDQUOT)
NETWORKED = frozenset({"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"})
MOUNTS = Path("/proc/self/mounts")

SKILLS_CHECK = "skills"
MOST_PROBLEMS = 10

STORE_CHECK = "store"
JOBS = "jobs"
SECONDS = 2.0
"""Seconds for reading every page; a larger database is read in part."""

SCHEDULES_CHECK = "schedules"
MOST_NAMED = 10

WEBHOOKS_CHECK = "webhooks"


def data_folder(subject: Examined) -> list[Diagnosis]:
    """Check the folder, or the parent in which it will be created."""
    folder = subject.settings.data_dir.absolute()
    place = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not place.is_dir():
        return [broken(FOLDER_CHECK, f"{place} is not a folder", ELSEWHERE)]
    try:
        _write(place)
    except OSError as error:
        return [_unusable(place, error)]
    return [_usable(folder, place), *_held(subject)]


def _write(place: Path) -> None:
    """Write, flush to the disk and lock; raises ``OSError``."""
    with tempfile.TemporaryFile(dir=place) as probe:
        probe.write(os.urandom(PROBE_BYTES))
        probe.flush()
        os.fsync(probe.fileno())
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unusable(place: Path, error: OSError) -> Diagnosis:
    if error.errno in FULL:
        return broken(FOLDER_CHECK, f"{place} has no space left ({error.strerror})", MAKE_ROOM)
    return broken(FOLDER_CHECK, f"{place} cannot be written: {error.strerror}", ELSEWHERE)


def _usable(folder: Path, place: Path) -> Diagnosis:
    free = shutil.disk_usage(place).free
    what = f"{folder} can be written" if place == folder else f"{folder} does not exist yet and can be made"
    kind = _file_system(place)
    if kind in NETWORKED:
        found = f"{what}, but is on a network file system ({kind}), which may lose what a database writes"
        return note(FOLDER_CHECK, found, ELSEWHERE)
    if free < LOW_BYTES:
        say = broken if free < NEEDED_BYTES else note
        return say(FOLDER_CHECK, f"{what}; only {free / 1024**2:.0f} MB are free there", MAKE_ROOM)
    return fine(FOLDER_CHECK, f"{what}; {free / 1024**3:.0f} GB are free there")


def _held(subject: Examined) -> list[Diagnosis]:
    return [fine(HOLDER, f"the data folder is held by {subject.holder}")] if subject.holder.running else []


def _file_system(place: Path) -> str:
    """Return the kind of the file system, empty where the system does not say."""
    try:
        mounts = [line.split(" ") for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    above = [(len(where), kind) for _, where, kind, *_ in mounts if place.resolve().is_relative_to(where)]
    # The last mount at a path hides earlier ones.
    return sorted(above, key=lambda mount: mount[0])[-1][1] if above else ""


def skills(subject: Examined) -> list[Diagnosis]:
    """Read the files as a start would; an invalid file disables its skill only."""
    folder = SkillFolder(subject.settings.skills.folder)
    library = arrange(folder.read(), known=())
    own = sum(not file.shipped for file in library.taken.values())
    counted = f"{len(library.taken) - own} of Maestro, {own} of your own in {folder.own}"
    return [fine(SKILLS_CHECK, counted), *_problems(library), *_missing(library, subject.settings)]


def _problems(library: SkillSet) -> Iterator[Diagnosis]:
    for source, problem in library.problems[:MOST_PROBLEMS]:
        yield note(
            SKILLS_CHECK, f"{Path(source).name}: {problem}", f"Edit {source}; a running Maestro sees it by itself."
        )
    more = len(library.problems) - MOST_PROBLEMS
    if more > 0:
        yield note(SKILLS_CHECK, f"{more} more problems", "Mend the first ones, then look again.")


def _missing(library: SkillSet, settings: Settings) -> Iterator[Diagnosis]:
    for agent in settings.agents:
        for slug in sorted(set(agent.skills or ()) - library.taken.keys()):
            found = f"the agent {agent.slug} lists the skill {slug}, which is not there"
            yield note(SKILLS_CHECK, found, "Correct the slug in agents, or put the skill into the folder.")


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

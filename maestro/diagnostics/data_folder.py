"""The checks of the data folder and of each file in the skills folder."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.health import Diagnosis
from maestro.domain.skills.files import SkillSet, arrange
from maestro.operations.skill_folder import SkillFolder
from maestro.settings import Settings

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

"""The files of skills: those that come with Maestro, and the operator's own, which are read again when they change."""

import asyncio
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

import maestro
from maestro.domain.errors import ConfigurationError, Conflict, StoreBusy
from maestro.domain.skills.files import MAX_BYTES, SkillSource, choose_files
from maestro.domain.texts import storable
from maestro.store.store import Store

SHIPPED = Path(maestro.__file__).parent / "skills"
ENDING = ".md"
MOST_FILES = 2_000

Stamps = Mapping[Path, tuple[int, int, int]]
"""What changes with a file: its time, its size and its place on the disk."""

log = structlog.get_logger(__name__)


class SkillFolder:
    """All files of skills; ``own`` is the operator's folder, which need not be there."""

    def __init__(self, own: Path) -> None:
        self.own = own.absolute()

    def stamps(self) -> Stamps:
        """Return every file with its stamp; a look at the folders, not into the files."""
        stamps: dict[Path, tuple[int, int, int]] = {}
        for path in itertools.chain(_files(SHIPPED), _files(self.own)):
            try:
                status = path.stat()
            except OSError:  # the file was there a moment ago; reading it reports the error if it persists
                stamps[path] = (0, 0, 0)
                continue
            if stat.S_ISREG(status.st_mode):
                stamps[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps

    def read(self) -> list[SkillSource]:
        """Read every file; one that cannot be read, or a folder that cannot, says so instead of a skill."""
        paths = list(self.stamps())
        found = [self._read(path) for path in paths[:MOST_FILES]]
        if len(paths) > MOST_FILES:
            found.append(
                SkillSource(str(self.own), False, problem=f"it has more than {MOST_FILES} files; take some out")
            )
        return found + self._unreadable()

    def shipped(self, slug: str) -> SkillSource | None:
        """Return the skill of this slug that comes with Maestro, if there is one."""
        found = (self._read(path) for path in _files(SHIPPED))
        return next((file for file in found if file.skill is not None and file.skill.slug == slug), None)

    def text(self, source: str) -> str:
        """Return a file of ours as it stands there; raises ``Conflict`` for one that cannot be read."""
        path = Path(source)
        try:
            if not (self.holds(source) or path.is_relative_to(SHIPPED)):
                raise Conflict(f"the skill stands in {source}, which is not in the folder {self.own}; look there")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Conflict(f"{source} cannot be read here: {error}; mend the file") from None

    def holds(self, source: str) -> bool:
        """Say whether a file is in the operator's folder."""
        return Path(source).is_relative_to(self.own)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file whole or not at all; raises ``ConfigurationError`` when the folder does not take it."""
        fresh = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            fresh.replace(path)
        except OSError as error:
            raise _refused(path, error) from None

    def delete(self, path: Path) -> None:
        """Delete a file, which may be gone already; raises as ``write`` does."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _refused(path, error) from None

    def _read(self, path: Path) -> SkillSource:
        shipped, source = path.is_relative_to(SHIPPED), storable(str(path))
        if source != str(path):
            return SkillSource(source, shipped, problem="its name is not UTF-8 text; give it another name")
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}; mend its permissions or take it out"
            return SkillSource(source, shipped, problem=problem)
        return SkillSource.read(source, data, shipped=shipped)

    def _unreadable(self) -> list[SkillSource]:
        """Return what is wrong with folders."""
        errors: list[OSError] = []
        list(os.walk(self.own, onerror=errors.append))
        problems = {error.filename: error.strerror for error in errors if not isinstance(error, FileNotFoundError)}
        return [
            SkillSource(storable(str(folder)), False, problem=f"this folder cannot be read: {reason}; mend that")
            for folder, reason in problems.items()
        ]


class SkillLoader:
    """Brings the store in line with the files, at the start and whenever they change, without a restart."""

    def __init__(self, store: Store, folder: SkillFolder, seconds: float) -> None:
        self._store = store
        self._folder = folder
        self._seconds = seconds
        self._entered: Stamps | None = None
        self._missed: frozenset[Path] = frozenset()

    async def watch(self) -> None:
        """Look at the files now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await asyncio.to_thread(self.look)
            except StoreBusy as error:
                log.warning("skills.postponed", reason=str(error))

    def look(self) -> None:
        """Enter the files if they have changed since the last look; raises ``StoreBusy``."""
        stamps = self._folder.stamps()
        if stamps == self._entered:
            return
        gone = frozenset((self._entered or {}).keys() - stamps.keys())
        newly_gone, self._missed = gone - self._missed, gone
        if newly_gone:  # many editors take a file away for a moment to put a new one there
            return
        files = self._folder.read()
        with self._store.begin() as tx:
            library = choose_files(files, tx.agents.skills.sources())
            tx.agents.skills.replace_all(library)
        self._entered, self._missed = stamps, frozenset()
        for source, problem in library.problems:
            log.warning("skills.problem", file=source, problem=problem)


async def load_skills(store: Store, folder: Path, look_seconds: float) -> SkillLoader:
    """Enter the skills before the first message asks for one, and return what keeps them as their files are."""
    loader = SkillLoader(store, SkillFolder(folder), look_seconds)
    await asyncio.to_thread(loader.look)
    return loader


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that are to be skills; hidden ones, those that begin with ``_`` and a README are not."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if name.endswith(ENDING) and not name.startswith((".", "_")) and name != "README.md":
                yield Path(place, name)


def _refused(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be changed: {error.strerror}; mend the permissions, or set skills.folder to another folder"
    )

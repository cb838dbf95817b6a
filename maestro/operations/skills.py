"""The operations on skills, and access to skill files: those shipped with Maestro, and those of the operator."""

import asyncio
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

import maestro
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import ConfigurationError, Conflict, StoreBusy
from maestro.domain.skills.files import MAX_BYTES, SkillSource, choose_files, read_skill
from maestro.domain.skills.skill import SkillRow
from maestro.domain.skills.views import (
    SkillChange,
    SkillDetail,
    SkillPage,
    SkillTrial,
    SkillTrialRequest,
    skill_page,
    skill_view,
    try_message,
)
from maestro.domain.texts import storable_text
from maestro.operations.inputs import LIMIT, Limit
from maestro.store.store import Store
from maestro.store.transaction import Transaction

SHIPPED = Path(maestro.__file__).parent / "skills"
ENDING = ".md"
MOST_FILES = 2_000

Stamps = Mapping[Path, tuple[int, int, int]]
"""The modification time (ns), size (bytes) and inode of each skill file; a changed file has other values."""

log = structlog.get_logger(__name__)


class SkillFolder:
    """The skill files of Maestro and of the operator; ``own`` is the operator's folder, which may be missing."""

    def __init__(self, own: Path) -> None:
        self.own = own.absolute()

    def read_stamps(self) -> Stamps:
        """Return the time, size and inode of every skill file, without reading the files."""
        stamps: dict[Path, tuple[int, int, int]] = {}
        for path in itertools.chain(_skill_files(SHIPPED), _skill_files(self.own)):
            try:
                status = path.stat()
            except OSError:  # If the error persists, ``read_files`` reports the error.
                stamps[path] = (0, 0, 0)
                continue
            if stat.S_ISREG(status.st_mode):
                stamps[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps

    def read_files(self) -> list[SkillSource]:
        """Read every skill file; an unreadable file or folder yields a problem instead of a skill."""
        paths = list(self.read_stamps())
        found = [self._read_file(path) for path in paths[:MOST_FILES]]
        if len(paths) > MOST_FILES:
            found.append(
                SkillSource(str(self.own), False, problem=f"more than {MOST_FILES} files of skills; remove some")
            )
        return found + self._folder_problems()

    def find_shipped(self, slug: str) -> SkillSource | None:
        """Return the skill with this slug that is shipped with Maestro, or None."""
        found = (self._read_file(path) for path in _skill_files(SHIPPED))
        return next((file for file in found if file.skill is not None and file.skill.slug == slug), None)

    def read_text(self, source: str) -> str:
        """Return the content of a skill file; raises ``Conflict`` if the file is elsewhere or cannot be read."""
        path = Path(source)
        try:
            if not (path.is_relative_to(self.own) or path.is_relative_to(SHIPPED)):
                raise Conflict(f"the file {source} is not in the folder {self.own}; read it with an editor")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Conflict(f"{source} cannot be read here: {error}; repair the file") from None

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a skill file atomically; raises ``ConfigurationError`` when the folder cannot be written."""
        fresh = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            fresh.replace(path)
        except OSError as error:
            raise _write_error(path, error) from None

    def delete_file(self, path: Path) -> None:
        """Delete a skill file if it exists; raises ``ConfigurationError`` when the folder cannot be written."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _write_error(path, error) from None

    def _read_file(self, path: Path) -> SkillSource:
        shipped, source = path.is_relative_to(SHIPPED), storable_text(str(path))
        if source != str(path):
            return SkillSource(source, shipped, problem="the file's name is not UTF-8 text; rename the file")
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            problem = f"the file cannot be read: {error.strerror}; correct its permissions or remove it"
            return SkillSource(source, shipped, problem=problem)
        return SkillSource.parse_file(source, data, shipped=shipped)

    def _folder_problems(self) -> list[SkillSource]:
        errors: list[OSError] = []
        list(os.walk(self.own, onerror=errors.append))
        problems = {error.filename: error.strerror for error in errors if not isinstance(error, FileNotFoundError)}
        return [
            SkillSource(
                storable_text(str(folder)), False, problem=f"this folder cannot be read: {reason}; correct that"
            )
            for folder, reason in problems.items()
        ]


class SkillLoader:
    """The loader that copies skill files into the store, at the start and after each change of a file."""

    def __init__(self, store: Store, folder: SkillFolder, seconds: float) -> None:
        self._store = store
        self._folder = folder
        self._seconds = seconds
        self._entered: Stamps | None = None
        self._missed: frozenset[Path] = frozenset()

    async def watch_files(self) -> None:
        """Load changed skill files at intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await asyncio.to_thread(self.load_changes)
            except StoreBusy as error:
                log.warning("skills.postponed", reason=str(error))

    def load_changes(self) -> None:
        """Store the skills if skill files have changed since the last check; raises ``StoreBusy``."""
        stamps = self._folder.read_stamps()
        if stamps == self._entered:
            return
        gone = frozenset((self._entered or {}).keys() - stamps.keys())
        newly_gone, self._missed = gone - self._missed, gone
        if newly_gone:  # many editors delete a file for a moment before they write its new version
            return
        files = self._folder.read_files()
        with self._store.begin() as tx:
            library = choose_files(files, tx.agents.skills.list_skill_sources())
            tx.agents.skills.replace_all(library)
        self._entered, self._missed = stamps, frozenset()
        for source, problem in library.problems:
            log.warning("skills.problem", file=source, problem=problem)


async def load_skills(store: Store, folder: Path, look_seconds: float) -> SkillLoader:
    """Load all skill files into the store, and return the loader that can watch the files for changes."""
    loader = SkillLoader(store, SkillFolder(folder), look_seconds)
    await asyncio.to_thread(loader.load_changes)
    return loader


def _skill_files(folder: Path) -> Iterator[Path]:
    """Yield the Markdown files in a folder tree, except README.md and names that begin with ``.`` or ``_``."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if name.endswith(ENDING) and not name.startswith((".", "_")) and name != "README.md":
                yield Path(parent, name)


def _write_error(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be changed: {error.strerror}; correct the permissions, or set skills.folder to another folder"
    )


SkillCursor = Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,63}$")]
ToolNames = Callable[[Agent], frozenset[str]]


class SkillOperations:
    """The operations on skills; an unknown slug raises ``NotFound``.

    Each change writes the file last. If the process ends before the commit, the loader stores the changed file later.
    ``tools`` returns the names of the tools that an agent may call, by default the agent's own list.
    """

    def __init__(
        self, store: Store, folder: SkillFolder, tools: ToolNames = lambda agent: frozenset(agent.tool_names or ())
    ) -> None:
        self._store = store
        self._folder = folder
        self._tools = tools

    def list(self, limit: Limit = LIMIT, cursor: SkillCursor = None) -> SkillPage:
        """List the skills by slug, and the problems found in skill files."""
        with self._store.view() as tx:
            return skill_page(tx.agents.skills.list_skills(), tx.agents.skills.list_skill_problems(), cursor, limit)

    def show(self, slug: str) -> SkillDetail:
        """Return a skill with its instructions for the model."""
        with self._store.view() as tx:
            return _skill_detail(tx, tx.agents.skills.get(slug))

    def text(self, slug: str) -> str:
        """Return the content of a skill's file; raises ``Conflict`` if the file cannot be read."""
        with self._store.view() as tx:
            source = tx.agents.skills.get(slug).source
        return self._folder.read_text(source)

    def trial(self, request: SkillTrialRequest) -> SkillTrial:
        """Return the skills that a message would select, best first, and why the others are not; no model is called."""
        with self._store.view() as tx:
            if not request.agent:
                return try_message(tx.agents.skills.list_skills(), request.message, None, None)
            agent = tx.agents.get_agent_by_slug(request.agent)
            return try_message(tx.agents.skills.list_skills(), request.message, self._tools(agent), agent.skill_slugs)

    def add(self, data: bytes, actor: str, *, replace: bool = False) -> SkillDetail:
        """Add a skill to the operator's folder; raises ``InvalidSkill``, or ``Conflict`` if the slug or file exists.

        ``replace`` overwrites the operator's own skill with this slug.
        """
        skill = read_skill(data)
        with self._store.begin() as tx:
            before = tx.agents.skills.find_skill_by_slug(skill.slug)
            path = self._own_path(skill.slug, before, replace)
            row = tx.agents.skills.save_skill(SkillSource(str(path), shipped=False, skill=skill))
            tx.agents.skills.set_problems(row.source, skill.problems)
            tx.system.audit.add_entry(
                actor, "skill.add", skill.slug, f"version {skill.version}" if skill.version else ""
            )
            self._folder.write_file(path, data)
            return _skill_detail(tx, row)

    def change(self, slug: str, change: SkillChange, actor: str) -> SkillDetail:
        """Enable or disable a skill, from the next message on."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if change.enabled is not None and change.enabled is not row.enabled:
                row = tx.agents.skills.set_enabled(slug, change.enabled)
                tx.system.audit.add_entry(actor, "skill.enable" if change.enabled else "skill.disable", slug)
            return _skill_detail(tx, row)

    def remove(self, slug: str, actor: str) -> None:
        """Delete the file of an operator's skill; 409 for a shipped skill, which an operator can only disable."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if row.shipped:
                raise Conflict(f"the skill {slug!r} comes with Maestro; disable it instead")
            path = self._existing_path(row)
            shipped = self._folder.find_shipped(slug)
            tx.agents.skills.set_problems(row.source, ())
            if shipped is None:
                tx.agents.skills.remove(slug)
            else:
                tx.agents.skills.save_skill(shipped)
            tx.system.audit.add_entry(actor, "skill.remove", slug)
            self._folder.delete_file(path)

    def _own_path(self, slug: str, before: SkillRow | None, replace: bool) -> Path:
        """Return the path to write a skill's file to; raises ``Conflict`` if the slug or path is already taken."""
        if before is not None and not before.shipped:
            if not replace:
                raise Conflict(f"you have a skill {slug!r} already, in {before.source}; replace it, or change the slug")
            return self._existing_path(before)
        path = self._folder.own / f"{slug}{ENDING}"
        if path.exists():
            raise Conflict(f"{path} exists already, but is not the file of this skill; remove it, or change the slug")
        return path

    def _existing_path(self, row: SkillRow) -> Path:
        path = Path(row.source)
        if not path.is_relative_to(self._folder.own):
            raise Conflict(
                f"the skill {row.slug!r} is in {row.source}, which is not in the folder {self._folder.own}; run "
                "this command where Maestro is started, or set skills.folder to an absolute path"
            )
        return path


def _skill_detail(tx: Transaction, row: SkillRow) -> SkillDetail:
    return skill_view(SkillDetail, row, tx.agents.skills.list_skill_problems())

"""The operations on skills: each changes the file and the store together."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict
from maestro.domain.skills.files import SkillSource, read_skill
from maestro.domain.skills.skill import SkillRow
from maestro.domain.skills.views import (
    SkillChange,
    SkillDetail,
    SkillPage,
    SkillTrial,
    SkillTrialRequest,
    skill_detail,
    skill_page,
    try_message,
)
from maestro.operations.inputs import LIMIT, Limit
from maestro.operations.skill_folder import ENDING, SkillFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

SkillCursor = Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,63}$")]
ToolNames = Callable[[Agent], frozenset[str]]


def listed_tools(agent: Agent) -> frozenset[str]:
    """Return the names of the tools that an agent lists itself."""
    return frozenset(agent.tool_names or ())


class SkillOperations:
    """The operations on skills; each raises ``NotFound`` for an unknown slug.

    Each transaction changes the file last. If the process ends before the commit, the loader stores the changed file
    later. ``tools`` returns the names of the tools that an agent may call.
    """

    def __init__(self, store: Store, folder: SkillFolder, tools: ToolNames = listed_tools) -> None:
        self._store = store
        self._folder = folder
        self._tools = tools

    def list(self, limit: Limit = LIMIT, cursor: SkillCursor = None) -> SkillPage:
        """List the skills by slug, and the problems of skill files."""
        with self._store.view() as tx:
            return skill_page(tx.agents.skills.all(), tx.agents.skills.problems(), cursor, limit)

    def show(self, slug: str) -> SkillDetail:
        """Return a skill with its instructions for the model."""
        with self._store.view() as tx:
            return _skill_detail(tx, tx.agents.skills.get(slug))

    def text(self, slug: str) -> str:
        """Return the content of a skill's file; raises ``Conflict`` for a file that cannot be read."""
        with self._store.view() as tx:
            source = tx.agents.skills.get(slug).source
        return self._folder.text(source)

    def trial(self, request: SkillTrialRequest) -> SkillTrial:
        """Return the skills that a message would select, best first, and why others are not; calls no model."""
        with self._store.view() as tx:
            if not request.agent:
                return try_message(tx.agents.skills.all(), request.message, None, None)
            agent = tx.agents.named(request.agent)
            return try_message(tx.agents.skills.all(), request.message, self._tools(agent), agent.skill_slugs)

    def add(self, data: bytes, actor: str, *, replace: bool = False) -> SkillDetail:
        """Add a skill to the operator's folder; raises ``InvalidSkill``, and ``Conflict`` if its slug or file exists.

        ``replace`` overwrites the operator's own skill with this slug.
        """
        skill = read_skill(data)
        with self._store.begin() as tx:
            before = tx.agents.skills.by_slug(skill.slug)
            path = self._own_path(skill.slug, before, replace)
            row = tx.agents.skills.put(SkillSource(str(path), shipped=False, skill=skill))
            tx.agents.skills.set_problems(row.source, skill.problems)
            tx.system.audit.add(actor, "skill.add", skill.slug, f"version {skill.version}" if skill.version else "")
            self._folder.write(path, data)
            return _skill_detail(tx, row)

    def change(self, slug: str, change: SkillChange, actor: str) -> SkillDetail:
        """Enable or disable a skill, from the next message on."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if change.enabled is not None and change.enabled is not row.enabled:
                row = tx.agents.skills.enable(slug, change.enabled)
                tx.system.audit.add(actor, "skill.enable" if change.enabled else "skill.disable", slug)
            return _skill_detail(tx, row)

    def remove(self, slug: str, actor: str) -> None:
        """Delete the file of an operator's own skill; 409 for a shipped skill, which can be disabled."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if row.shipped:
                raise Conflict(f"the skill {slug!r} comes with Maestro; disable it instead")
            path = self._existing_path(row)
            shipped = self._folder.shipped(slug)
            tx.agents.skills.set_problems(row.source, ())
            if shipped is None:
                tx.agents.skills.remove(slug)
            else:
                tx.agents.skills.put(shipped)
            tx.system.audit.add(actor, "skill.remove", slug)
            self._folder.delete(path)

    def _own_path(self, slug: str, before: SkillRow | None, replace: bool) -> Path:
        """Return the path for a skill's file; raises ``Conflict`` if the operator has another skill or file there."""
        if before is not None and not before.shipped:
            if not replace:
                raise Conflict(f"you have a skill {slug!r} already, in {before.source}; replace it, or change the slug")
            return self._existing_path(before)
        path = self._folder.own / f"{slug}{ENDING}"
        if path.exists():
            raise Conflict(f"{path} is there already and holds something else; remove it, or change the slug")
        return path

    def _existing_path(self, row: SkillRow) -> Path:
        if not self._folder.holds(row.source):
            raise Conflict(
                f"the skill {row.slug!r} is in {row.source}, which is not in the folder {self._folder.own}; run "
                "this command where Maestro is started, or set skills.folder to an absolute path"
            )
        return Path(row.source)


def _skill_detail(tx: Transaction, row: SkillRow) -> SkillDetail:
    return skill_detail(row, tx.agents.skills.problems())

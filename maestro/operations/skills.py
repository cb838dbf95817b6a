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
Names = Callable[[Agent], frozenset[str]]


def listed_tools(agent: Agent) -> frozenset[str]:
    """Return the tools that an agent lists itself."""
    return frozenset(agent.tool_names or ())


class SkillOperations:
    """The operations on skills; each raises ``NotFound`` for an unknown slug.

    The file comes last in each transaction. If the process ends right after it, the store learns of the file by itself.
    ``tools`` names those that an agent may call.
    """

    def __init__(self, store: Store, folder: SkillFolder, tools: Names = listed_tools) -> None:
        self._store = store
        self._folder = folder
        self._tools = tools

    def list(self, limit: Limit = LIMIT, cursor: SkillCursor = None) -> SkillPage:
        """List the skills by slug, and what is wrong with files of skills."""
        with self._store.view() as tx:
            return skill_page(tx.agents.skills.all(), tx.agents.skills.problems(), cursor, limit)

    def show(self, slug: str) -> SkillDetail:
        """Return a skill with what it tells the model."""
        with self._store.view() as tx:
            return _detail(tx, tx.agents.skills.get(slug))

    def text(self, slug: str) -> str:
        """Return the file of a skill as it stands there; raises ``Conflict`` if it cannot be read."""
        with self._store.view() as tx:
            source = tx.agents.skills.get(slug).source
        return self._folder.text(source)

    def trial(self, wish: SkillTrialRequest) -> SkillTrial:
        """Tell which skills a message would bring in, the best first, and why not; nothing is sent or paid."""
        with self._store.view() as tx:
            if not wish.agent:
                return try_message(tx.agents.skills.all(), wish.message, None, None)
            agent = tx.agents.named(wish.agent)
            return try_message(tx.agents.skills.all(), wish.message, self._tools(agent), agent.skill_slugs)

    def add(self, data: bytes, actor: str, *, replace: bool = False) -> SkillDetail:
        """Put a skill into the folder; raises ``InvalidSkill``, and ``Conflict`` for a slug or a file that is there.

        With ``replace``, an own skill of the same slug gets this text instead.
        """
        skill = read_skill(data)
        with self._store.begin() as tx:
            before = tx.agents.skills.by_slug(skill.slug)
            path = self._place(skill.slug, before, replace)
            row = tx.agents.skills.put(SkillSource(str(path), shipped=False, skill=skill))
            tx.agents.skills.set_problems(row.source, skill.problems)
            tx.system.audit.add(actor, "skill.add", skill.slug, f"version {skill.version}" if skill.version else "")
            self._folder.write(path, data)
            return _detail(tx, row)

    def change(self, slug: str, change: SkillChange, actor: str) -> SkillDetail:
        """Enable or disable a skill, from the next message on."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if change.enabled is not None and change.enabled is not row.enabled:
                row = tx.agents.skills.enable(slug, change.enabled)
                tx.system.audit.add(actor, "skill.enable" if change.enabled else "skill.disable", slug)
            return _detail(tx, row)

    def remove(self, slug: str, actor: str) -> None:
        """Delete the file of an own skill; 409 for one that comes with Maestro, which can be disabled."""
        with self._store.begin() as tx:
            row = tx.agents.skills.get(slug)
            if row.shipped:
                raise Conflict(f"the skill {slug!r} comes with Maestro; disable it instead")
            path = self._own(row)
            shipped = self._folder.shipped(slug)
            tx.agents.skills.set_problems(row.source, ())
            if shipped is None:
                tx.agents.skills.remove(slug)
            else:
                tx.agents.skills.put(shipped)
            tx.system.audit.add(actor, "skill.remove", slug)
            self._folder.delete(path)

    def _place(self, slug: str, before: SkillRow | None, replace: bool) -> Path:
        """Return where the file of a skill is to be."""
        if before is not None and not before.shipped:
            if not replace:
                raise Conflict(f"you have a skill {slug!r} already, in {before.source}; replace it, or change the slug")
            return self._own(before)
        path = self._folder.own / f"{slug}{ENDING}"
        if path.exists():
            raise Conflict(f"{path} is there already and holds something else; take it away, or change the slug")
        return path

    def _own(self, row: SkillRow) -> Path:
        if not self._folder.holds(row.source):
            raise Conflict(
                f"the skill {row.slug!r} stands in {row.source}, which is not in the folder {self._folder.own}; start "
                "this where Maestro is started, or set skills.folder to the whole path"
            )
        return Path(row.source)


def _detail(tx: Transaction, row: SkillRow) -> SkillDetail:
    return skill_detail(row, tx.agents.skills.problems())

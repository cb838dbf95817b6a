"""Queries for skills (instructions for prompts), which Maestro reads from files and stores in a table."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import delete
from sqlmodel import col, select

from maestro.domain.skills.files import SkillSet, SkillSource
from maestro.domain.skills.skill import Skill, SkillIndex, SkillProblem, SkillRow
from maestro.store.cache import cached_by_version
from maestro.store.engine.repository import Repository, require_found
from maestro.store.engine.statements import PreparedStatement

_TEXTS = ("name", "description", "category", "version", "author", "body", "digest")
_LISTS = ("keywords", "patterns", "required_tools")


class Skills(Repository):
    """Queries for skills, and for the problems found in skill files."""

    _ENABLED = PreparedStatement(select(SkillRow).where(col(SkillRow.enabled)).order_by(col(SkillRow.slug)))

    def list_enabled_skills(self) -> Sequence[Skill]:
        """Return the enabled skills, sorted by slug."""
        return [Skill.from_row(row) for row in self._read_models(self._ENABLED, SkillRow)]

    @cached_by_version("skills")
    def read_index(self) -> SkillIndex:
        """Return the index of enabled skills, which finds the skills whose triggers match a message."""
        return SkillIndex(self.list_enabled_skills())

    def list_skills(self) -> Sequence[SkillRow]:
        """Return all skills, sorted by slug."""
        return self._find_all(select(SkillRow).order_by(col(SkillRow.slug)))

    def list_skill_sources(self) -> Mapping[str, str]:
        """Return the file path of each stored skill, by the skill's slug."""
        # Without ``list``, ``dict`` would call the result's ``keys()``, which returns the names of the columns.
        return dict(list(self._run_statement(select(SkillRow.slug, SkillRow.source).order_by(col(SkillRow.slug)))))

    def list_skill_problems(self) -> Sequence[SkillProblem]:
        """Return the problems in skill files, sorted by file."""
        return self._find_all(select(SkillProblem).order_by(col(SkillProblem.id)))

    def find_skill_by_slug(self, slug: str) -> SkillRow | None:
        """Return the skill with this slug, or None if no skill has it."""
        return self._session.get(SkillRow, slug)

    def get(self, slug: str) -> SkillRow:
        """Return the skill with this slug; raises ``NotFound``."""
        return require_found(
            self.find_skill_by_slug(slug), f"there is no skill {slug!r}; `maestro skills list` shows all skills"
        )

    def replace_all(self, library: SkillSet) -> None:
        """Store the skills read from files; delete stored skills without a file and not in ``library.retained``."""
        self._run_statement(delete(SkillRow).where(col(SkillRow.slug).not_in([*library.chosen, *library.retained])))
        for file in library.chosen.values():
            self.save_skill(file)
        self._run_statement(delete(SkillProblem))
        self._session.add_all(SkillProblem(source=source, problem=problem) for source, problem in library.problems)
        self._session.flush()

    def set_problems(self, source: str, problems: Sequence[str]) -> None:
        """Replace the recorded problems of one skill file."""
        self._run_statement(delete(SkillProblem).where(col(SkillProblem.source) == source))
        self._session.add_all(SkillProblem(source=source, problem=problem) for problem in problems)
        self._session.flush()

    def save_skill(self, file: SkillSource) -> SkillRow:
        """Insert or update the skill of a file; a new skill is enabled, an update keeps the skill's switch."""
        assert file.skill is not None
        skill = file.skill
        values = {
            **{name: getattr(skill, name) for name in _TEXTS},
            **{name: json.dumps(getattr(skill, name), ensure_ascii=False) for name in _LISTS},
            "source": file.source,
            "shipped": file.shipped,
        }
        row = self.find_skill_by_slug(skill.slug) or SkillRow(slug=skill.slug, updated_at=self._now, **values)
        if row not in self._session or any(getattr(row, name) != value for name, value in values.items()):
            row.sqlmodel_update({**values, "updated_at": self._now})
            self._save_objects(row)
        return row

    def set_enabled(self, slug: str, enabled: bool) -> SkillRow:
        """Enable or disable a skill; raises ``NotFound``."""
        row = self.get(slug)
        row.enabled, row.updated_at = enabled, self._now
        return self._save_objects(row)

    def remove(self, slug: str) -> None:
        """Remove a skill; raises ``NotFound``."""
        self._delete_object(self.get(slug))

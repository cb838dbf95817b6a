"""Skills as they were read from their files."""

from collections.abc import Sequence

from sqlmodel import col, select

from maestro.domain.skills import Skill, SkillRow
from maestro.store.repository import Repository


class Skills(Repository):
    """All skills."""

    _ALL = select(SkillRow).order_by(col(SkillRow.slug))
    _ENABLED = select(SkillRow).where(col(SkillRow.enabled)).order_by(col(SkillRow.slug))
    _EDITION = select(SkillRow.slug, SkillRow.digest).where(col(SkillRow.enabled)).order_by(col(SkillRow.slug))

    def enabled(self) -> Sequence[Skill]:
        """Return the skills that messages may be given, by slug."""
        return [Skill.of(row) for row in self._session.exec(self._ENABLED)]

    def edition(self) -> tuple[tuple[str, str], ...]:
        """Return what changes whenever ``enabled`` would return something else; cheap enough for every message."""
        return tuple((slug, digest) for slug, digest in self._run(self._EDITION))

    def all(self) -> Sequence[SkillRow]:
        """Return every skill, by slug."""
        return self._session.exec(self._ALL).all()

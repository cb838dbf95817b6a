"""Skills as operators see and change them, on the API and on the command line alike."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from maestro.domain.skills.skill import SkillProblem, SkillRow
from maestro.domain.values import View


class SkillView(View):
    """A skill, without what it tells the model.

    ``shipped`` ones come with Maestro. ``problems`` are those of its file as it is now; while that cannot be read, the
    skill is as it was before.
    """

    slug: str
    name: str
    description: str
    category: str
    version: str
    author: str
    enabled: bool
    shipped: bool
    source: str
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]
    required_tools: tuple[str, ...]
    problems: tuple[str, ...]
    updated_at: datetime


class SkillDetail(SkillView):
    """A skill with what it tells the model."""

    body: str


class SkillProblemView(View):
    """What is wrong with a file, and how to mend it."""

    source: str
    problem: str


class SkillPage(View):
    """Skills by slug; ``next`` is the cursor of the following page, null at the end.

    ``problems`` are those of all files, also of files that have never been a skill.
    """

    items: tuple[SkillView, ...]
    next: str | None
    problems: tuple[SkillProblemView, ...]


class SkillChange(View):
    """What is to be changed of a skill; what is null stays."""

    enabled: bool | None = None


def skill_view(row: SkillRow, problems: Sequence[SkillProblem]) -> SkillView:
    """Show a skill; the problems may be those of all files."""
    return SkillView(**_shown(row, problems))


def skill_detail(row: SkillRow, problems: Sequence[SkillProblem]) -> SkillDetail:
    """Show a skill with its body."""
    return SkillDetail(**_shown(row, problems), body=row.body)


def skill_page(rows: Sequence[SkillRow], problems: Sequence[SkillProblem], cursor: str | None, limit: int) -> SkillPage:
    """Show up to ``limit`` skills, which are sorted by slug; the cursor is the page before's ``next``."""
    rest = [row for row in rows if cursor is None or row.slug > cursor]
    shown = rest[:limit]
    return SkillPage(
        items=tuple(skill_view(row, problems) for row in shown),
        next=shown[-1].slug if len(rest) > limit else None,
        problems=tuple(map(SkillProblemView.model_validate, problems)),
    )


def _shown(row: SkillRow, problems: Sequence[SkillProblem]) -> Mapping[str, object]:
    lists = {name: tuple(json.loads(getattr(row, name))) for name in ("keywords", "patterns", "required_tools")}
    return {
        **row.model_dump(include=set(SkillView.model_fields)),
        **lists,
        "problems": tuple(found.problem for found in problems if found.source == row.source),
    }

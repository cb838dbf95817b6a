"""Views, changes and trials of skills for operators."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

from maestro.domain.messages import MAX_CONTENT_CHARS
from maestro.domain.skills.skill import MOST_SKILLS, Skill, SkillIndex, SkillProblem, SkillRow
from maestro.domain.values import OptionalSlug, Page, View


class SkillView(View):
    """A skill without its body.

    ``shipped`` skills come with Maestro. ``problems`` are those of the current file; while the file is not valid, the
    other fields show its last valid state.
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


Shown = TypeVar("Shown", bound=SkillView)


class SkillDetail(SkillView):
    """A skill with its body, the text for the model."""

    body: str


class SkillProblemView(View):
    """A problem of a skill file, with its fix."""

    source: str
    problem: str


class SkillPage(Page[SkillView]):
    """A page of skills by slug; ``problems`` are those of all skill files, including files that were never valid."""

    problems: tuple[SkillProblemView, ...]


class SkillChange(View):
    """Changes to a skill; a null field stays as it is."""

    enabled: bool | None = None


def skill_page(rows: Sequence[SkillRow], problems: Sequence[SkillProblem], cursor: str | None, limit: int) -> SkillPage:
    """Return a page of up to ``limit`` skills; ``rows`` are sorted by slug, ``cursor`` is from the previous page."""
    following = [row for row in rows if cursor is None or row.slug > cursor]
    items = tuple(skill_view(SkillView, row, problems) for row in following[:limit])
    return SkillPage(
        items=items,
        next=items[-1].slug if len(following) > limit else None,
        problems=tuple(map(SkillProblemView.model_validate, problems)),
    )


def skill_view(kind: type[Shown], row: SkillRow, problems: Sequence[SkillProblem]) -> Shown:
    """Return the view of a skill as the class ``kind``; ``problems`` of other files are ignored."""
    lists = {name: tuple(json.loads(getattr(row, name))) for name in ("keywords", "patterns", "required_tools")}
    return kind.from_row(row, **lists, problems=tuple(one.problem for one in problems if one.source == row.source))


class SkillTrialRequest(View):
    """A sample message to test skills with, and an agent's slug; without an agent, all tools and skills are allowed."""

    message: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS)]
    agent: OptionalSlug = ""


class SkillScoreView(View):
    """A skill that matches a sample message: its points, its matches, and why it is not chosen (``reason``)."""

    slug: str
    points: int
    chosen: bool
    reason: str
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]


class SkillTrial(View):
    """The skills that match a sample message, highest score first."""

    items: tuple[SkillScoreView, ...]


def try_message(
    rows: Sequence[SkillRow], message: str, tools: frozenset[str] | None, allowed: frozenset[str] | None
) -> SkillTrial:
    """Return the skills that match a message, for an agent with these tools and skills; None allows all."""
    enabled = {row.slug for row in rows if row.enabled}
    items: list[SkillScoreView] = []
    for score in SkillIndex([Skill.from_row(row) for row in rows]).rank_skills(message):
        obstacle = _find_obstacle(score.skill, enabled, tools, allowed)
        if not obstacle and sum(item.chosen for item in items) == MOST_SKILLS:
            obstacle = "other skills have more points"
        items.append(
            SkillScoreView(
                slug=score.skill.slug,
                points=score.points,
                chosen=not obstacle,
                reason=obstacle,
                keywords=score.keywords,
                patterns=score.patterns,
            )
        )
    return SkillTrial(items=tuple(items))


def _find_obstacle(
    skill: Skill, enabled: Collection[str], tools: frozenset[str] | None, allowed: frozenset[str] | None
) -> str:
    if skill.slug not in enabled:
        return "the skill is disabled"
    if allowed is not None and skill.slug not in allowed:
        return "the skill is not among the agent's skills"
    missing = sorted(set(skill.required_tools) - tools) if tools is not None else []
    return f"the agent does not have {', '.join(missing)}" if missing else ""

"""Views, changes and trials of skills for operators."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from maestro.domain.fields import OptionalSlug
from maestro.domain.messages import MAX_CONTENT_CHARS
from maestro.domain.skills.skill import Skill, SkillProblem, SkillRow, SkillScore, choose_skills, ranking
from maestro.domain.values import Page, View


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


def skill_view(row: SkillRow, problems: Sequence[SkillProblem]) -> SkillView:
    """Build the view of a skill; ``problems`` may include those of other files."""
    return SkillView(**_view_fields(row, problems))


def skill_detail(row: SkillRow, problems: Sequence[SkillProblem]) -> SkillDetail:
    """Build the view of a skill with its body."""
    return SkillDetail(**_view_fields(row, problems), body=row.body)


def skill_page(rows: Sequence[SkillRow], problems: Sequence[SkillProblem], cursor: str | None, limit: int) -> SkillPage:
    """Build a page of up to ``limit`` skills; ``rows`` are sorted by slug, ``cursor`` is the last page's ``next``."""
    remaining_rows = [row for row in rows if cursor is None or row.slug > cursor]
    page = remaining_rows[:limit]
    return SkillPage(
        items=tuple(skill_view(row, problems) for row in page),
        next=page[-1].slug if len(remaining_rows) > limit else None,
        problems=tuple(map(SkillProblemView.model_validate, problems)),
    )


def _view_fields(row: SkillRow, problems: Sequence[SkillProblem]) -> Mapping[str, object]:
    lists = {name: tuple(json.loads(getattr(row, name))) for name in ("keywords", "patterns", "required_tools")}
    return {
        **row.model_dump(include=set(SkillView.model_fields)),
        **lists,
        "problems": tuple(found.problem for found in problems if found.source == row.source),
    }


class SkillTrialRequest(View):
    """A sample message to test skills with, and an agent's slug; without an agent, all tools and skills are allowed."""

    message: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS)]
    agent: OptionalSlug = ""


class SkillScoreView(View):
    """A skill that matches the sample: its points, the matches, and in ``reason`` why it is not chosen."""

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
    skills = {row.slug: Skill.of(row) for row in rows}
    enabled = [skills[row.slug] for row in rows if row.enabled]
    had = frozenset(tool for skill in enabled for tool in skill.required_tools) if tools is None else tools
    chosen = choose_skills(enabled, message, had, allowed)
    return SkillTrial(
        items=tuple(
            SkillScoreView(
                slug=score.skill.slug,
                points=score.points,
                chosen=score.skill in chosen,
                reason="" if score.skill in chosen else _reason(score, enabled, had, allowed),
                keywords=score.keywords,
                patterns=score.patterns,
            )
            for score in ranking(list(skills.values()), message)
        )
    )


def _reason(score: SkillScore, enabled: Sequence[Skill], tools: frozenset[str], allowed: frozenset[str] | None) -> str:
    skill = score.skill
    if skill not in enabled:
        return "it is disabled"
    if allowed is not None and skill.slug not in allowed:
        return "it is not among the agent's skills"
    missing = sorted(frozenset(skill.required_tools) - tools)
    if missing:
        return f"the agent does not have {', '.join(missing)}"
    return "others have more points"

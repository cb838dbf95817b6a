"""Skills as operators see, change and try them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from maestro.domain.fields import OptionalSlug
from maestro.domain.messages import MAX_CONTENT_CHARS
from maestro.domain.skills.skill import Skill, SkillProblem, SkillRow, SkillScore, choose_skills, ranking
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
    return SkillView(**_view_fields(row, problems))


def skill_detail(row: SkillRow, problems: Sequence[SkillProblem]) -> SkillDetail:
    """Show a skill with its body."""
    return SkillDetail(**_view_fields(row, problems), body=row.body)


def skill_page(rows: Sequence[SkillRow], problems: Sequence[SkillProblem], cursor: str | None, limit: int) -> SkillPage:
    """Show up to ``limit`` skills, which are sorted by slug; the cursor is the page before's ``next``."""
    rest = [row for row in rows if cursor is None or row.slug > cursor]
    shown = rest[:limit]
    return SkillPage(
        items=tuple(skill_view(row, problems) for row in shown),
        next=shown[-1].slug if len(rest) > limit else None,
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
    """What somebody might write, and to which agent, by its slug; without one all tools and skills are there."""

    message: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS)]
    agent: OptionalSlug = ""


class SkillScoreView(View):
    """A skill that a message calls for: its points, what gave them, and in ``reason`` why it would not be chosen."""

    slug: str
    points: int
    chosen: bool
    reason: str
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]


class SkillTrial(View):
    """What a message calls for, the best first."""

    items: tuple[SkillScoreView, ...]


def try_message(
    rows: Sequence[SkillRow], message: str, tools: frozenset[str] | None, allowed: frozenset[str] | None
) -> SkillTrial:
    """Say what becomes of a message for an agent with these tools and skills; None stands for all of them."""
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

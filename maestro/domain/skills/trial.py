"""Tries a message on the skills: which would be chosen, and why the others would not."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from maestro.domain.messages import MAX_CONTENT_CHARS
from maestro.domain.skills.skill import Score, Skill, SkillRow, choose, ranking
from maestro.domain.values import View
from maestro.domain.words import OptionalSlug


class TrialWish(View):
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
    chosen = choose(enabled, message, had, allowed)
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


def _reason(score: Score, enabled: Sequence[Skill], tools: frozenset[str], allowed: frozenset[str] | None) -> str:
    skill = score.skill
    if skill not in enabled:
        return "it is disabled"
    if allowed is not None and skill.slug not in allowed:
        return "it is not among the agent's skills"
    missing = sorted(frozenset(skill.required_tools) - tools)
    if missing:
        return f"the agent does not have {', '.join(missing)}"
    return "others have more points"

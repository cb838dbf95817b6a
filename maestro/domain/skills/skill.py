"""Skills: instructions that are given to a model when a message needs them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime
from maestro.domain.skills.keywords import Keywords, Words
from maestro.domain.skills.patterns import Patterns

MOST = 3
"""How many skills one message may bring in (docs/decisions.md: prompt layers)."""

KEYWORD_POINTS = 1
PATTERN_POINTS = 2

SCORED_CHARS = 32_000
"""How much of either end of a long message is scored: what somebody asks for stands before or after what they paste."""


class SkillRow(SQLModel, table=True):
    """One skill as it was read from its file; ``enabled`` survives when the file changes.

    ``keywords``, ``patterns`` and ``required_tools`` are JSON lists, ``source`` is the path of the file, ``shipped``
    says whether it came with Maestro, ``digest`` is that of the whole file. The body is last, so that what is asked for
    every message can be read without it.
    """

    __tablename__ = "skills"

    slug: str = Field(primary_key=True)
    digest: str
    enabled: bool = True
    shipped: bool = False
    source: str
    name: str
    description: str = ""
    category: str = ""
    version: str = ""
    author: str = ""
    keywords: str = "[]"
    patterns: str = "[]"
    required_tools: str = "[]"
    updated_at: datetime = Field(sa_type=UtcDateTime)
    body: str


class SkillProblem(SQLModel, table=True):
    """What is wrong with a file of skills as it is now: a sentence that names the fix."""

    __tablename__ = "skill_problems"

    id: int | None = Field(default=None, primary_key=True)
    source: str
    problem: str


@dataclass(frozen=True)
class Skill:
    """What a message is judged by, and what the model is given: the body, without the front matter."""

    slug: str
    name: str
    body: str
    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    required_tools: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: SkillRow) -> "Skill":
        """Return the skill of a row."""
        keywords, patterns, tools = map(json.loads, (row.keywords, row.patterns, row.required_tools))
        return cls(row.slug, row.name, row.body, tuple(keywords), tuple(patterns), tuple(tools))

    # Preparing these takes longer than using them, so whoever keeps the skill keeps them too.
    @cached_property
    def _keywords(self) -> Keywords:
        return Keywords(self.keywords)

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.patterns)

    def score(self, message: "Scored") -> "Score":
        """Say how well this skill fits a message."""
        return Score(self, self._keywords.found(message.words), self._patterns.matching(message.encoded))


@dataclass(frozen=True)
class Score:
    """How well a skill fits a message: the keywords found in it and the patterns that match."""

    skill: Skill
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]

    @property
    def points(self) -> int:
        """Return one point for each keyword and two for each pattern."""
        return KEYWORD_POINTS * len(self.keywords) + PATTERN_POINTS * len(self.patterns)


class Scored:
    """A message, ready to be scored; of a long one only both ends count."""

    def __init__(self, message: str) -> None:
        if len(message) > 2 * SCORED_CHARS:
            message = f"{message[:SCORED_CHARS]}\n{message[-SCORED_CHARS:]}"
        self.words = Words(message)
        self.encoded = message.encode("utf-8", "replace")


def choose(
    skills: Sequence[Skill], message: str, tools: frozenset[str], allowed: frozenset[str] | None
) -> tuple[Skill, ...]:
    """Choose what the model is given for a message: at most three skills, the best first.

    Only the message itself counts, never what was said before. Of equal ones the first by slug wins. A skill is passed
    over when it needs a tool that the agent does not have, or is not among the ``allowed`` ones; None allows all.
    """
    return _best(ranking(skills, message), tools, allowed)


def is_for(skill: Skill, tools: frozenset[str], allowed: frozenset[str] | None) -> bool:
    """Say whether an agent with these tools may be given a skill."""
    return (allowed is None or skill.slug in allowed) and tools.issuperset(skill.required_tools)


def ranking(skills: Sequence[Skill], message: str) -> list[Score]:
    """Return the scores above zero, the best first."""
    scored = Scored(message)
    return _ranked(skill.score(scored) for skill in skills)


class Repertoire:
    """Skills that message after message is tried on: it chooses as ``choose`` does, and reads a message once for all.

    What that costs hardly grows with the number of skills.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = skills
        self._keywords = Keywords(_distinct(skill.keywords for skill in skills))
        self._patterns = Patterns(_distinct(skill.patterns for skill in skills))
        self._with: dict[str, list[int]] = {}
        for place, skill in enumerate(skills):
            for source in {*skill.keywords, *skill.patterns}:
                self._with.setdefault(source, []).append(place)

    def choose(self, message: str, tools: frozenset[str], allowed: frozenset[str] | None) -> tuple[Skill, ...]:
        """Choose what the model is given for a message; see ``choose``."""
        return _best(self._ranking(Scored(message)), tools, allowed)

    def _ranking(self, message: Scored) -> list[Score]:
        found = frozenset(self._keywords.found(message.words))
        matching = frozenset(self._patterns.matching(message.encoded))
        called_for = {place for source in found | matching for place in self._with[source]}
        return _ranked(
            Score(
                skill,
                tuple(keyword for keyword in skill.keywords if keyword in found),
                tuple(pattern for pattern in skill.patterns if pattern in matching),
            )
            for skill in map(self._skills.__getitem__, called_for)
        )


def _best(scores: Iterable[Score], tools: frozenset[str], allowed: frozenset[str] | None) -> tuple[Skill, ...]:
    fitting = [score.skill for score in scores if is_for(score.skill, tools, allowed)]
    return tuple(fitting[:MOST])


def _ranked(scores: Iterable[Score]) -> list[Score]:
    return sorted((score for score in scores if score.points), key=lambda score: (-score.points, score.skill.slug))


def _distinct(sources: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(sources)))

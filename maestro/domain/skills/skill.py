"""Skills: instructions for a model, found by the keywords and patterns in a message."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]  # it comes without types
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime

_WORD = re.compile(r"\w+")
# Scripts that put no blank between words: there a keyword is found wherever it stands.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")

PATTERN_CHARS = 500
PROGRAM_SIZE = 4_000
"""The most instructions a pattern may become: with the text a message is judged by, 1 second at the very worst."""
GROUP_MEMORY = 8 << 20
"""Bytes that many patterns may take which are searched for as one."""

MOST_SKILLS = 3
"""How many skills one message may bring in (docs/decisions.md: prompt layers)."""

KEYWORD_POINTS = 1
PATTERN_POINTS = 2

SCORED_CHARS = 32_000
"""How much of either end of a long message is scored: what somebody asks for stands before or after what they paste."""


def fold(text: str) -> str:
    """Return a text in the form in which letters of either case, wide letters and every run of blanks are the same."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(folded.split())


class MessageWords:
    """A message, ready to be searched."""

    def __init__(self, message: str) -> None:
        self.text = fold(message)
        self.words = frozenset(_WORD.findall(self.text))


class _PreparedKeyword(NamedTuple):
    place: int
    source: str
    keyword: str
    pieces: frozenset[str]


@dataclass(frozen=True)
class Keywords:
    """Words and phrases to look for, such as ``pull request``, ``c++`` and ``.net``, of one skill or of hundreds."""

    sources: Sequence[str]

    @cached_property
    def _by_sign(self) -> Mapping[str, Sequence[_PreparedKeyword]]:
        """Each under one of its words, without which a message cannot have it; under nothing where it has none."""
        found: dict[str, list[_PreparedKeyword]] = {}
        for place, source in enumerate(self.sources):
            keyword = fold(source)
            if keyword:
                pieces = _pieces(keyword)
                found.setdefault(max(pieces, key=len, default=""), []).append(
                    _PreparedKeyword(place, source, keyword, pieces)
                )
        return found

    def found(self, message: MessageWords) -> tuple[str, ...]:
        """Return those that stand in the message as whole words: with no letter, digit or ``_`` right beside them.

        They are in the order of their sources. Only those are looked for whose sign is a word of the message: most
        messages have none, however many keywords there are.
        """
        signs = self._by_sign.keys() & message.words
        near = chain(self._by_sign.get("", ()), *(self._by_sign[sign] for sign in signs))
        there = [one for one in near if one.pieces <= message.words and _stands_in(one.keyword, message.text)]
        return tuple(one.source for one in sorted(there))


def _pieces(keyword: str) -> frozenset[str]:
    """Return the words that a text must have for the keyword to be there; none where words are not set apart."""
    return frozenset() if _UNSPACED.search(keyword) else frozenset(_WORD.findall(keyword))


def _stands_in(keyword: str, text: str) -> bool:
    return any(_is_whole(keyword, text, at) for at in _places(keyword, text))


def _places(keyword: str, text: str) -> Iterable[int]:
    at = text.find(keyword)
    while at >= 0:
        yield at
        at = text.find(keyword, at + 1)


def _is_whole(keyword: str, text: str, at: int) -> bool:
    end = at + len(keyword)
    before, after = text[at - 1 : at], text[end : end + 1]
    return not _joined(before, keyword[0]) and not _joined(after, keyword[-1])


def _joined(outside: str, edge: str) -> bool:
    """Say whether the keyword goes on beyond its edge."""
    if not outside or _UNSPACED.match(edge):
        return False
    # Marks are the vowels of some scripts and the accents of others: what they stand on is no whole word.
    return outside.isalnum() or outside == "_" or unicodedata.category(outside).startswith("M")


def _options(memory: int = 1 << 20) -> re2.Options:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True  # we only ask whether it matches, which is ten times faster
    options.max_mem = memory
    return options


class _Group:
    """Patterns that are searched for as one, and half by half only where one of them matches: most messages have none.

    What finds several patterns at once in RE2 (``Set``) has no way to say that its memory was not enough: it would miss
    what each pattern by itself finds.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def matching(self, text: bytes) -> Iterator[str]:
        """Yield those that match somewhere in a text in UTF-8, in their order."""
        if self._all is not None and self._all.search(text) is None:
            return
        if len(self._sources) == 1:
            yield self._sources[0]
        for half in self._halves:
            yield from half.matching(text)

    @cached_property
    def _all(self) -> Any | None:
        """All of them as one; None where that cannot be."""
        if len(self._sources) == 1:
            return re2.compile(self._sources[0], _options())
        # An open \Q quotes whatever stands behind it.
        if any(r"\Q" in source for source in self._sources):
            return None
        try:
            return re2.compile("|".join(f"(?:{source})" for source in self._sources), _options(GROUP_MEMORY))
        except re2.error:  # it is too large, or two of them name a group alike
            return None

    @cached_property
    def _halves(self) -> Sequence["_Group"]:
        middle = len(self._sources) // 2
        return [_Group(half) for half in (self._sources[:middle], self._sources[middle:]) if middle]


@dataclass(frozen=True)
class Patterns:
    """Patterns that are compiled when they are first needed; letters match in either case unless ``(?-i)`` says no.

    They may be those of a skill, or of hundreds.
    """

    sources: Sequence[str]

    @cached_property
    def _usable(self) -> _Group:
        return _Group([source for source in self.sources if problem_of_pattern(source) is None])

    def matching(self, text: bytes) -> tuple[str, ...]:
        """Return those that match somewhere in a text in UTF-8, in the order of their sources."""
        return tuple(self._usable.matching(text))


def problem_of_pattern(source: str) -> str | None:
    """Return why a text is no usable pattern, in a few words, or None."""
    if not source.strip():
        return "it is empty"
    if len(source) > PATTERN_CHARS:
        return f"it has more than {PATTERN_CHARS} characters"
    try:
        compiled = re2.compile(source.encode("utf-8", "replace").decode(), _options())
    except re2.error as error:
        return _reason(error)
    if compiled.programsize > PROGRAM_SIZE:
        return "it is too large; use fewer or smaller repetitions"
    if compiled.search(b"") is not None:
        return "it matches every message"
    return None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "invalid perl operator" in text or "invalid escape sequence" in text:
        return f"{text} (lookaround and backreferences are not supported)"
    return text or "it cannot be read"


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

    def score(self, message: "ScoredMessage") -> "SkillScore":
        """Say how well this skill fits a message."""
        return SkillScore(self, self._keywords.found(message.words), self._patterns.matching(message.encoded))


@dataclass(frozen=True)
class SkillScore:
    """How well a skill fits a message: the keywords found in it and the patterns that match."""

    skill: Skill
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]

    @property
    def points(self) -> int:
        """Return one point for each keyword and two for each pattern."""
        return KEYWORD_POINTS * len(self.keywords) + PATTERN_POINTS * len(self.patterns)


class ScoredMessage:
    """A message, ready to be scored; of a long one only both ends count."""

    def __init__(self, message: str) -> None:
        if len(message) > 2 * SCORED_CHARS:
            message = f"{message[:SCORED_CHARS]}\n{message[-SCORED_CHARS:]}"
        self.words = MessageWords(message)
        self.encoded = message.encode("utf-8", "replace")


def choose_skills(
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


def ranking(skills: Sequence[Skill], message: str) -> list[SkillScore]:
    """Return the scores above zero, the best first."""
    scored = ScoredMessage(message)
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
        return _best(self._ranking(ScoredMessage(message)), tools, allowed)

    def _ranking(self, message: ScoredMessage) -> list[SkillScore]:
        found = frozenset(self._keywords.found(message.words))
        matching = frozenset(self._patterns.matching(message.encoded))
        called_for = {place for source in found | matching for place in self._with[source]}
        return _ranked(
            SkillScore(
                skill,
                tuple(keyword for keyword in skill.keywords if keyword in found),
                tuple(pattern for pattern in skill.patterns if pattern in matching),
            )
            for skill in map(self._skills.__getitem__, called_for)
        )


def _best(scores: Iterable[SkillScore], tools: frozenset[str], allowed: frozenset[str] | None) -> tuple[Skill, ...]:
    fitting = [score.skill for score in scores if is_for(score.skill, tools, allowed)]
    return tuple(fitting[:MOST_SKILLS])


def _ranked(scores: Iterable[SkillScore]) -> list[SkillScore]:
    return sorted((score for score in scores if score.points), key=lambda score: (-score.points, score.skill.slug))


def _distinct(sources: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(sources)))

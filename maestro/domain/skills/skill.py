"""Skills: instructions for a model, selected by the keywords and patterns that match a message."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]  # the package has no type hints
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime

_WORD = re.compile(r"\w+")
# Scripts without blanks between words: a keyword in them may match anywhere, not only as a whole word.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")

PATTERN_CHARS = 500
PROGRAM_SIZE = 4_000
"""The largest compiled pattern, in RE2 instructions: on the longest scored text it takes 1 second at worst."""
GROUP_MEMORY = 8 << 20
"""The memory limit, in bytes, of patterns that are searched as one alternation."""

MOST_SKILLS = 3
"""The most skills that one message adds to a prompt (docs/decisions.md: prompt layers)."""

KEYWORD_POINTS = 1
PATTERN_POINTS = 2

SCORED_CHARS = 32_000
"""Characters scored at each end of a long message: users write their request before or after a pasted text."""


def fold(text: str) -> str:
    """Normalise a text for comparison: letter case, wide letters and runs of blanks no longer differ."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(folded.split())


class MessageWords:
    """A folded message and its set of words, prepared for keyword search."""

    def __init__(self, message: str) -> None:
        self.text = fold(message)
        self.words = frozenset(_WORD.findall(self.text))


class _PreparedKeyword(NamedTuple):
    position: int
    source: str
    keyword: str
    pieces: frozenset[str]


@dataclass(frozen=True)
class Keywords:
    """An index of keywords, such as ``pull request``, ``c++`` and ``.net``, of one skill or of all skills."""

    sources: Sequence[str]

    @cached_property
    def _by_sign(self) -> Mapping[str, Sequence[_PreparedKeyword]]:
        """Map the longest word of each keyword to the keyword; keywords without words are under the empty text."""
        found: dict[str, list[_PreparedKeyword]] = {}
        for position, source in enumerate(self.sources):
            keyword = fold(source)
            if keyword:
                pieces = _required_words(keyword)
                found.setdefault(max(pieces, key=len, default=""), []).append(
                    _PreparedKeyword(position, source, keyword, pieces)
                )
        return found

    def found(self, message: MessageWords) -> tuple[str, ...]:
        """Return the keywords that occur in the message as whole words: with no letter, digit or ``_`` next to them.

        They keep the order of ``sources``. Only keywords with their index word in the message are compared, so the cost
        hardly depends on how many keywords there are.
        """
        signs = self._by_sign.keys() & message.words
        near = chain(self._by_sign.get("", ()), *(self._by_sign[sign] for sign in signs))
        present = [one for one in near if one.pieces <= message.words and _occurs_in(one.keyword, message.text)]
        return tuple(one.source for one in sorted(present))


def _required_words(keyword: str) -> frozenset[str]:
    """Return the words that a message must contain for this keyword; none for scripts without blanks between words."""
    return frozenset() if _UNSPACED.search(keyword) else frozenset(_WORD.findall(keyword))


def _occurs_in(keyword: str, text: str) -> bool:
    return any(_is_whole(keyword, text, at) for at in _positions(keyword, text))


def _positions(keyword: str, text: str) -> Iterable[int]:
    at = text.find(keyword)
    while at >= 0:
        yield at
        at = text.find(keyword, at + 1)


def _is_whole(keyword: str, text: str, at: int) -> bool:
    end = at + len(keyword)
    before, after = text[at - 1 : at], text[end : end + 1]
    return not _continues_word(before, keyword[0]) and not _continues_word(after, keyword[-1])


def _continues_word(outside: str, edge: str) -> bool:
    """Say whether the character next to the keyword continues a word, so that the match is no whole word."""
    if not outside or _UNSPACED.match(edge):
        return False
    # Combining marks (vowel signs, accents) belong to the letter before them, so they continue the word.
    return outside.isalnum() or outside == "_" or unicodedata.category(outside).startswith("M")


def _options(memory: int = 1 << 20) -> re2.Options:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True  # only whether a pattern matches is needed; without captures this is ten times faster
    options.max_mem = memory
    return options


class _Group:
    """Patterns that are searched as one alternation, and split in halves only if it matches: most messages match none.

    RE2's ``Set`` is not used: it does not report when it runs out of memory, and would then miss matches.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def matching(self, text: bytes) -> Iterator[str]:
        """Yield the patterns that match anywhere in a UTF-8 text, in their order."""
        if self._combined is not None and self._combined.search(text) is None:
            return
        if len(self._sources) == 1:
            yield self._sources[0]
        for half in self._halves:
            yield from half.matching(text)

    @cached_property
    def _combined(self) -> Any | None:
        """All patterns compiled as one alternation, or None if they cannot be combined."""
        if len(self._sources) == 1:
            return re2.compile(self._sources[0], _options())
        # An unclosed \Q would quote the patterns after it.
        if any(r"\Q" in source for source in self._sources):
            return None
        try:
            return re2.compile("|".join(f"(?:{source})" for source in self._sources), _options(GROUP_MEMORY))
        except re2.error:  # the alternation is too large, or two patterns name a group alike
            return None

    @cached_property
    def _halves(self) -> Sequence["_Group"]:
        middle = len(self._sources) // 2
        return [_Group(half) for half in (self._sources[:middle], self._sources[middle:]) if middle]


@dataclass(frozen=True)
class Patterns:
    """Patterns of one skill or of all skills, compiled at first use; case is ignored unless a pattern has ``(?-i)``."""

    sources: Sequence[str]

    @cached_property
    def _usable(self) -> _Group:
        return _Group([source for source in self.sources if problem_of_pattern(source) is None])

    def matching(self, text: bytes) -> tuple[str, ...]:
        """Return the patterns that match anywhere in a UTF-8 text, in the order of ``sources``."""
        return tuple(self._usable.matching(text))


def problem_of_pattern(source: str) -> str | None:
    """Return why a pattern is not usable, in a few words, or None if it is."""
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
    detail = error.args[0] if error.args else b""
    text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    if "invalid perl operator" in text or "invalid escape sequence" in text:
        return f"{text} (lookaround and backreferences are not supported)"
    return text or "it cannot be read"


class SkillRow(SQLModel, table=True):
    """A skill as last read from its file; ``enabled`` is the operator's choice and stays when the file changes.

    ``keywords``, ``patterns`` and ``required_tools`` are JSON lists, ``source`` is the path of the file, ``shipped`` is
    true for skills that come with Maestro, ``digest`` is that of the whole file. The body is the last column, so that a
    query for the triggers, made for every message, does not read it.
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
    """A problem of a skill file in its current state, as a sentence that names the fix."""

    __tablename__ = "skill_problems"

    id: int | None = Field(default=None, primary_key=True)
    source: str
    problem: str


@dataclass(frozen=True)
class Skill:
    """A skill with its triggers and its ``body``: the text for the model, without the front matter."""

    slug: str
    name: str
    body: str
    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    required_tools: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: SkillRow) -> "Skill":
        """Return the skill of a table row."""
        keywords, patterns, tools = map(json.loads, (row.keywords, row.patterns, row.required_tools))
        return cls(row.slug, row.name, row.body, tuple(keywords), tuple(patterns), tuple(tools))

    # Cached with the skill, because building these indexes takes longer than using them.
    @cached_property
    def _keywords(self) -> Keywords:
        return Keywords(self.keywords)

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.patterns)

    def score(self, message: "ScoredMessage") -> "SkillScore":
        """Return the keywords and patterns of this skill that match a message."""
        return SkillScore(self, self._keywords.found(message.words), self._patterns.matching(message.encoded))


@dataclass(frozen=True)
class SkillScore:
    """The matches of a skill in a message: the keywords found and the patterns that match."""

    skill: Skill
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]

    @property
    def points(self) -> int:
        """Return the score: one point for each keyword and two for each pattern."""
        return KEYWORD_POINTS * len(self.keywords) + PATTERN_POINTS * len(self.patterns)


class ScoredMessage:
    """A message prepared for scoring; of a long message only the first and last 32,000 characters count."""

    def __init__(self, message: str) -> None:
        if len(message) > 2 * SCORED_CHARS:
            message = f"{message[:SCORED_CHARS]}\n{message[-SCORED_CHARS:]}"
        self.words = MessageWords(message)
        self.encoded = message.encode("utf-8", "replace")


def choose_skills(
    skills: Sequence[Skill], message: str, tools: frozenset[str], allowed: frozenset[str] | None
) -> tuple[Skill, ...]:
    """Return the skills that the model gets for a message: at most three, highest score first.

    Only this message counts, not earlier ones. Equal scores are ordered by slug. A skill is skipped if it requires a
    tool that the agent does not have, or if it is not in ``allowed``; None allows all skills.
    """
    return _best(ranking(skills, message), tools, allowed)


def is_for(skill: Skill, tools: frozenset[str], allowed: frozenset[str] | None) -> bool:
    """Say whether an agent with these tools and allowed skills may get this skill."""
    return (allowed is None or skill.slug in allowed) and tools.issuperset(skill.required_tools)


def ranking(skills: Sequence[Skill], message: str) -> list[SkillScore]:
    """Return the scores above zero, highest first."""
    scored = ScoredMessage(message)
    return _ranked(skill.score(scored) for skill in skills)


class Repertoire:
    """A set of skills indexed together, for repeated choices: each message is searched once for all skills.

    The result equals that of ``choose_skills``; the cost hardly grows with the number of skills.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = skills
        self._keywords = Keywords(_distinct(skill.keywords for skill in skills))
        self._patterns = Patterns(_distinct(skill.patterns for skill in skills))
        self._with: dict[str, list[int]] = {}
        for position, skill in enumerate(skills):
            for source in {*skill.keywords, *skill.patterns}:
                self._with.setdefault(source, []).append(position)

    def choose(self, message: str, tools: frozenset[str], allowed: frozenset[str] | None) -> tuple[Skill, ...]:
        """Return the skills that the model gets for a message; the rules are those of ``choose_skills``."""
        return _best(self._ranking(ScoredMessage(message)), tools, allowed)

    def _ranking(self, message: ScoredMessage) -> list[SkillScore]:
        found = frozenset(self._keywords.found(message.words))
        matching = frozenset(self._patterns.matching(message.encoded))
        called_for = {position for source in found | matching for position in self._with[source]}
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

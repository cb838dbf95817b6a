"""Skills: instructions for a model, selected by the keywords and patterns that match a message."""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]  # re2 has no type hints
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime

_WORD = re.compile(r"\w+")
# Letters of scripts without blanks between words: a keyword with one may match anywhere, not only as a whole word.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")

PATTERN_CHARS = 500
PROGRAM_SIZE = 4_000
"""The largest compiled pattern, in RE2 instructions: on the longest scored text it takes 1 second at worst."""
GROUP_MEMORY = 8 << 20
"""The memory limit, in bytes, of patterns that are searched as one alternation."""

MOST_SKILLS = 3
"""The most skills that one message adds to a prompt (docs/decisions.md: prompt layers)."""

SCORED_CHARS = 32_000
"""Characters scored at each end of a long message: users write their request before or after a pasted text."""


def normalize_text(text: str) -> str:
    """Normalise a text for comparison: letter case, wide letters and runs of blanks no longer differ."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(folded.split())


class ScoredMessage:
    """A message prepared for scoring; of a long message only the first and last 32,000 characters count."""

    def __init__(self, message: str) -> None:
        if len(message) > 2 * SCORED_CHARS:
            message = f"{message[:SCORED_CHARS]}\n{message[-SCORED_CHARS:]}"
        self.text = normalize_text(message)
        self.words = frozenset(_WORD.findall(self.text))
        self.encoded = message.encode("utf-8", "replace")


def _occurs_as_word(keyword: str, text: str) -> bool:
    """Return whether a keyword occurs in a text with no letter, digit or ``_`` next to it."""
    at = text.find(keyword)
    while at >= 0:
        end = at + len(keyword)
        if not (_continues_word(text[at - 1 : at], keyword[0]) or _continues_word(text[end : end + 1], keyword[-1])):
            return True
        at = text.find(keyword, at + 1)
    return False


def _continues_word(outside: str, edge: str) -> bool:
    """Return whether the character next to the keyword continues a word, so that the match is no whole word."""
    if not outside or _UNSPACED.match(edge):
        return False
    # Combining marks (vowel signs, accents) belong to the letter before them, so a mark continues the word.
    return outside.isalnum() or outside == "_" or unicodedata.category(outside).startswith("M")


def _pattern_options(memory: int = 1 << 20) -> re2.Options:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True  # a search without captures is ten times faster, and no capture is needed
    options.max_mem = memory
    return options


class _PatternGroup:
    """Patterns that are searched as one alternation, and in halves only after a match: most messages match none.

    RE2's ``Set`` is not used: it does not report when it runs out of memory, and would then miss matches.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def find_matching(self, text: bytes) -> Iterator[str]:
        """Yield the patterns that match anywhere in a UTF-8 text, in their order."""
        if self._combined is not None and self._combined.search(text) is None:
            return
        if len(self._sources) == 1:
            yield self._sources[0]
        for half in self._halves:
            yield from half.find_matching(text)

    @cached_property
    def _combined(self) -> Any | None:
        """All patterns compiled as one alternation, or None if they cannot be combined."""
        if len(self._sources) == 1:
            return re2.compile(self._sources[0], _pattern_options())
        # An unclosed \Q would quote the patterns after it.
        if any(r"\Q" in source for source in self._sources):
            return None
        try:
            return re2.compile("|".join(f"(?:{source})" for source in self._sources), _pattern_options(GROUP_MEMORY))
        except re2.error:  # the alternation is too large, or two patterns use one group name
            return None

    @cached_property
    def _halves(self) -> Sequence["_PatternGroup"]:
        middle = len(self._sources) // 2
        return [_PatternGroup(half) for half in (self._sources[:middle], self._sources[middle:]) if middle]


def pattern_problem(source: str) -> str | None:
    """Return why a pattern is not usable, in a few words; None for a usable pattern."""
    if not source.strip():
        return "the pattern is empty"
    if len(source) > PATTERN_CHARS:
        return f"the pattern has more than {PATTERN_CHARS} characters"
    try:
        compiled = re2.compile(source.encode("utf-8", "replace").decode(), _pattern_options())
    except re2.error as error:
        detail = error.args[0] if error.args else b""
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        if "invalid perl operator" in text or "invalid escape sequence" in text:
            return f"{text} (lookaround and backreferences are not supported)"
        return text or "the pattern cannot be parsed"
    if compiled.programsize > PROGRAM_SIZE:
        return "the pattern is too large; use fewer or smaller repetitions"
    if compiled.search(b"") is not None:
        return "the pattern matches every message"
    return None


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
    def from_row(cls, row: SkillRow) -> "Skill":
        keywords, patterns, tools = map(json.loads, (row.keywords, row.patterns, row.required_tools))
        return cls(row.slug, row.name, row.body, tuple(keywords), tuple(patterns), tuple(tools))


@dataclass(frozen=True)
class SkillScore:
    """The matches of a skill in a message: the keywords found and the patterns that match."""

    skill: Skill
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]

    @property
    def points(self) -> int:
        """The score: one point for each keyword and two for each pattern."""
        return len(self.keywords) + 2 * len(self.patterns)


class _IndexedKeyword(NamedTuple):
    """A keyword, its normalized form, and the words that a message must contain for it."""

    source: str
    folded: str
    words: frozenset[str]


class SkillIndex:
    """Skills with a common index of their triggers: each message is searched once, however many skills there are."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = skills
        self._positions: dict[str, list[int]] = {}
        """For each keyword or pattern, the positions of the skills that have it."""
        for position, skill in enumerate(skills):
            for source in {*skill.keywords, *skill.patterns}:
                self._positions.setdefault(source, []).append(position)

    def choose_skills(self, message: str, tools: frozenset[str], allowed: frozenset[str] | None) -> tuple[Skill, ...]:
        """Return the skills that the model gets for a message: at most three, highest score first.

        Only this message counts, not earlier ones. A skill is skipped if it requires a tool that the agent does not
        have, or if it is not in ``allowed``; None allows all skills.
        """
        suitable = (
            score.skill
            for score in self.rank_skills(message)
            if (allowed is None or score.skill.slug in allowed) and tools.issuperset(score.skill.required_tools)
        )
        return tuple(islice(suitable, MOST_SKILLS))

    def rank_skills(self, message: str) -> list[SkillScore]:
        """Return the scores of the skills that match a message, highest first; equal scores are sorted by slug."""
        scored = ScoredMessage(message)
        keywords, patterns = self._find_keywords(scored), set(self._patterns.find_matching(scored.encoded))
        positions = {position for source in keywords | patterns for position in self._positions[source]}
        scores = (
            SkillScore(
                skill,
                tuple(keyword for keyword in skill.keywords if keyword in keywords),
                tuple(pattern for pattern in skill.patterns if pattern in patterns),
            )
            for skill in map(self._skills.__getitem__, positions)
        )
        # A match may belong to another skill: the same text is a keyword there and a pattern here, or the reverse.
        return sorted((score for score in scores if score.points), key=lambda score: (-score.points, score.skill.slug))

    def _find_keywords(self, message: ScoredMessage) -> set[str]:
        """Return the keywords that occur in the message; a keyword is compared only if its longest word occurs."""
        words = self._keywords_by_word.keys() & message.words
        candidates = chain.from_iterable(self._keywords_by_word[word] for word in ("", *words))
        return {
            keyword.source
            for keyword in candidates
            if keyword.words <= message.words and _occurs_as_word(keyword.folded, message.text)
        }

    @cached_property
    def _keywords_by_word(self) -> Mapping[str, Sequence[_IndexedKeyword]]:
        """The keywords by their longest word; keywords without words are under the empty text."""
        index: dict[str, list[_IndexedKeyword]] = {"": []}
        for source in dict.fromkeys(chain.from_iterable(skill.keywords for skill in self._skills)):
            keyword = normalize_text(source)
            words = frozenset() if _UNSPACED.search(keyword) else frozenset(_WORD.findall(keyword))
            if keyword:
                index.setdefault(max(words, key=len, default=""), []).append(_IndexedKeyword(source, keyword, words))
        return index

    @cached_property
    def _patterns(self) -> _PatternGroup:
        sources = dict.fromkeys(chain.from_iterable(skill.patterns for skill in self._skills))
        return _PatternGroup([source for source in sources if pattern_problem(source) is None])

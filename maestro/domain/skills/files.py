"""A skill as it stands in its file: what the front matter may say, and a sentence for everything it may not."""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from maestro.domain.skills.front_matter import InvalidSkill, split_front_matter
from maestro.domain.skills.skill import fold, problem_of
from maestro.domain.words import Slug, ToolName

MAX_BYTES = 262_144
MAX_KEYWORDS = 200
KEYWORD_CHARS = 80
MAX_PATTERNS = 50
MAX_TOOLS = 50

_LENGTHS = {"name": 100, "description": 1_000, "category": 60, "version": 60, "author": 200}
_KEYS = ("slug", *_LENGTHS, "triggers", "required_tools")
_SLUG: TypeAdapter[str] = TypeAdapter(Slug)
_TOOL: TypeAdapter[str] = TypeAdapter(ToolName)
_TRIGGERS = {"keywords": "keywords", "keyword": "keywords", "patterns": "patterns", "pattern": "patterns"}
"""What a trigger may be called, in a mapping or in a list of items with one key each."""


@dataclass(frozen=True)
class SkillFile:
    """A skill that can be used; ``problems`` are what its author should mend all the same."""

    slug: str
    name: str
    description: str
    category: str
    version: str
    author: str
    keywords: tuple[str, ...]
    patterns: tuple[str, ...]
    required_tools: tuple[str, ...]
    body: str
    digest: str
    problems: tuple[str, ...] = ()


def read_skill(data: bytes) -> SkillFile:
    """Read the bytes of a file.

    A key or a pattern that cannot be used is a problem of the skill, which works without it; everything else that is
    wrong raises ``InvalidSkill``.
    """
    front, body = split_front_matter(_text(data))
    texts = {key: _line(front, key, length) for key, length in _LENGTHS.items()}
    slug = _line(front, "slug", 63)
    if not _fits(_SLUG, slug):
        raise InvalidSkill("it needs a slug of up to 63 lower-case letters, digits and hyphens, such as code-review")
    if not body:
        raise InvalidSkill("it says nothing to the model; write the instructions below the front matter")
    triggers = _triggers(front.get("triggers", ""))
    keywords = _unique(triggers["keywords"], fold)
    patterns = _unique(triggers["patterns"], str)
    _bound("triggers.keywords", keywords, MAX_KEYWORDS, KEYWORD_CHARS)
    _bound("triggers.patterns", patterns, MAX_PATTERNS)
    usable = tuple(pattern for pattern in patterns if problem_of(pattern) is None)
    return SkillFile(
        slug=slug,
        **{**texts, "name": texts["name"] or slug},
        keywords=keywords,
        patterns=usable,
        required_tools=_tools(front.get("required_tools", "")),
        body=body,
        digest=hashlib.sha256(data).hexdigest(),
        problems=(*_unknown(front), *_unusable(patterns), *_silent(keywords, usable)),
    )


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise InvalidSkill(f"it is larger than {MAX_BYTES // 1024} kB; make it shorter")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSkill(f"it is not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from None
    if "\0" in text:
        raise InvalidSkill("it has a zero byte in it, so it is no text; save it as UTF-8")
    return text


def _line(front: Mapping[str, Any], key: str, length: int) -> str:
    value = front.get(key, "")
    if not isinstance(value, str):
        raise InvalidSkill(f"{key} is a list or a mapping; write one line of text")
    line = " ".join(value.split())
    if len(line) > length:
        raise InvalidSkill(f"{key} has more than {length} characters; shorten it")
    _check_letters(key, line)
    return line


def _triggers(value: object) -> dict[str, list[str]]:
    """Read the triggers: a mapping of two lists, or a list of items with one key each, as some skills have it."""
    found: dict[str, list[str]] = {"keywords": [], "patterns": []}
    items = value if isinstance(value, list) else [value] if value != "" else []
    for item in items:
        if not isinstance(item, dict) or not item.keys() <= _TRIGGERS.keys():
            raise InvalidSkill("triggers is not understood; give it the two lists keywords and patterns")
        for key, trigger in item.items():
            # One item of a list of triggers may hold one word; anywhere else that would be a list someone forgot.
            single = isinstance(value, list) and isinstance(trigger, str)
            found[_TRIGGERS[key]] += _list(f"triggers.{key}", [trigger] if single else trigger)
    return found


def _list(key: str, value: object) -> list[str]:
    if value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSkill(f"{key} is not a list of texts; write it as [one, two]")
    items = [item.strip() for item in value if item.strip()]
    _check_letters(key, "".join(items))
    return items


def _check_letters(key: str, text: str) -> None:
    """Raise for half characters, which no database takes, and for control characters, which nobody types."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise InvalidSkill(f"{key} has a control character or half of a character in it; take it out")


def _unique(items: list[str], key: Callable[[str], str]) -> tuple[str, ...]:
    """Return the items without those that say the same again, which would count twice."""
    first = {key(item): item for item in reversed(items)}
    return tuple(item for item in dict.fromkeys(items) if first[key(item)] == item)


def _bound(key: str, items: tuple[str, ...], most: int, chars: int | None = None) -> None:
    if len(items) > most:
        raise InvalidSkill(f"{key} has more than {most} entries; keep those that people really write")
    if chars is not None and any(len(item) > chars for item in items):
        raise InvalidSkill(f"{key} has an entry of more than {chars} characters; shorten it")


def _tools(value: object) -> tuple[str, ...]:
    tools = _unique(_list("required_tools", value), str)
    _bound("required_tools", tools, MAX_TOOLS)
    if not all(_fits(_TOOL, tool) for tool in tools):
        raise InvalidSkill("required_tools has an entry that is no name of a tool: letters, digits, _ and -")
    return tools


def _fits(rule: TypeAdapter[str], text: str) -> bool:
    try:
        rule.validate_python(text)
    except ValidationError:
        return False
    return True


def _unknown(front: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(front.keys() - set(_KEYS)):
        yield f"the key {key[:60]!r} is not known and changes nothing; known are {', '.join(_KEYS)}"


def _unusable(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        reason = problem_of(pattern)
        if reason is not None:
            yield f"the pattern {pattern[:80]!r} is left out: {reason}"


def _silent(keywords: tuple[str, ...], patterns: tuple[str, ...]) -> Iterator[str]:
    if not keywords and not patterns:
        yield "no message can call for it; give it triggers, keywords or patterns"

"""Skill files: parsing of their YAML front matter, and selection among the files of all folders."""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from maestro.domain.errors import ConfigurationError
from maestro.domain.skills.skill import normalize_text, pattern_problem
from maestro.domain.values import Slug, ToolName

MAX_FRONT_MATTER = 16_384
"""The longest front matter, in characters: YAML parses this many in a tenth of a second."""
MAX_DEPTH = 6

_YAML_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None)

_FENCE = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_SHAPE = 'begin the file with a line "---", lines such as "slug: my-skill", and another line "---"'

MAX_BYTES = 262_144

_LENGTHS = {"name": 100, "description": 1_000, "category": 60, "version": 60, "author": 200}
_KEYS = ("slug", *_LENGTHS, "triggers", "required_tools")
_SLUG: TypeAdapter[str] = TypeAdapter(Slug)
_TOOL: TypeAdapter[str] = TypeAdapter(ToolName)
_TRIGGERS = {"keywords": "keywords", "keyword": "keywords", "patterns": "patterns", "pattern": "patterns"}
"""The accepted names of triggers, and the list to which each belongs."""


class InvalidSkill(ConfigurationError):
    """A skill file is not valid; the message is one sentence that names the fix."""

    public = "The skill is not valid."


def split_yaml_header(text: str) -> tuple[dict[str, Any], str]:
    """Split a skill file into its front matter, with every scalar as text, and its body.

    Raises ``InvalidSkill`` if the front matter is missing or not valid.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    fence = _FENCE.match(text)
    if fence is None:
        raise InvalidSkill(f"the file has no front matter; {_SHAPE}")
    source = fence["yaml"]
    if len(source) > MAX_FRONT_MATTER:
        raise InvalidSkill(f"the front matter has more than {MAX_FRONT_MATTER} characters; shorten it")
    try:
        front = yaml.load(source, Loader=_Loader)  # noqa: S506 - _Loader is a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise InvalidSkill(f"the front matter is not valid YAML{line}: {error.problem}; correct it there") from None
    except yaml.YAMLError as error:
        raise InvalidSkill(f"the front matter is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(front, dict):
        raise InvalidSkill(f"the front matter has no keys; {_SHAPE}")
    return {str(key): value for key, value in front.items()}, text[fence.end() :].strip()


class _Loader(yaml.SafeLoader):
    """A YAML loader for texts, lists and mappings only; it rejects aliases, deep nesting and repeated keys."""

    # Every value stays a text: the keyword "no" is no boolean, and the version 1.10 is no number.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML reads these class attributes
    yaml_constructors = {kind: yaml.SafeLoader.yaml_constructors[kind] for kind in _YAML_TAGS}  # noqa: RUF012 - as above
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Build a node; raises ``YAMLError`` for an alias (it could expand endlessly) or nesting above 6 levels."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not supported", self._position())
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "the YAML is nested too deeply", self._position())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; raises ``YAMLError`` for a repeated key, because one of the values would be lost."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", node.value[at][0].start_mark
                )
        return super().construct_mapping(node, deep=deep)

    def _position(self) -> yaml.Mark | None:
        mark: yaml.Mark | None = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return mark


@dataclass(frozen=True)
class SkillFile:
    """A valid skill file; ``problems`` are mistakes that do not prevent its use and that its author should correct."""

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
    """Parse the bytes of a skill file.

    An unknown key or an unusable pattern becomes an entry of ``problems``, and the skill works without it; every other
    mistake raises ``InvalidSkill``.
    """
    front, body = split_yaml_header(_decode_file(data))
    texts = {key: _read_line(front, key, length) for key, length in _LENGTHS.items()}
    slug = _read_line(front, "slug", 63)
    if not _is_valid(_SLUG, slug):
        raise InvalidSkill("the skill needs a slug: up to 63 lower-case letters, digits and hyphens, such as my-skill")
    if not body:
        raise InvalidSkill("the skill has no instructions for the model; write them below the front matter")
    triggers = _parse_triggers(front.get("triggers", ""))
    keywords = remove_repeats(triggers["keywords"], normalize_text)
    patterns = remove_repeats(triggers["patterns"], str)
    _check_limits("triggers.keywords", keywords, 200, 80)
    _check_limits("triggers.patterns", patterns, 50)
    required_tools = remove_repeats(_parse_list("required_tools", front.get("required_tools", "")), str)
    _check_limits("required_tools", required_tools, 50)
    if not all(_is_valid(_TOOL, tool) for tool in required_tools):
        raise InvalidSkill("required_tools has an entry that is no name of a tool; use letters, digits, _ and -")
    unusable = {pattern: problem for pattern in patterns if (problem := pattern_problem(pattern)) is not None}
    problems = [
        f"the key {key[:60]!r} is not known and has no effect; the keys are {', '.join(_KEYS)}"
        for key in sorted(front.keys() - set(_KEYS))
    ]
    problems += (f"the pattern {pattern[:80]!r} is left out: {problem}" for pattern, problem in unusable.items())
    if not keywords and len(unusable) == len(patterns):
        problems.append("no message can trigger the skill; add keywords or patterns to its triggers")
    return SkillFile(
        slug=slug,
        **{**texts, "name": texts["name"] or slug},
        keywords=keywords,
        patterns=tuple(pattern for pattern in patterns if pattern not in unusable),
        required_tools=required_tools,
        body=body,
        digest=hashlib.sha256(data).hexdigest(),
        problems=tuple(problems),
    )


def _decode_file(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise InvalidSkill(f"the file is larger than {MAX_BYTES // 1024} kB; shorten it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSkill(f"the file is not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from None
    if "\0" in text:
        raise InvalidSkill("the file contains a zero byte, so it is no text; save it as UTF-8")
    return text


def _read_line(front: Mapping[str, Any], key: str, max_chars: int) -> str:
    value = front.get(key, "")
    if not isinstance(value, str):
        raise InvalidSkill(f"{key} is a list or a mapping; write one line of text")
    line = " ".join(value.split())
    if len(line) > max_chars:
        raise InvalidSkill(f"{key} has more than {max_chars} characters; shorten it")
    _check_characters(key, line)
    return line


def _parse_triggers(value: object) -> dict[str, list[str]]:
    """Parse the triggers: a mapping of two lists, or the other common form, a list of items with one key each."""
    triggers: dict[str, list[str]] = {"keywords": [], "patterns": []}
    items = value if isinstance(value, list) else [value] if value != "" else []
    for item in items:
        if not isinstance(item, dict) or not item.keys() <= _TRIGGERS.keys():
            raise InvalidSkill("triggers is not valid; write it as the two lists keywords and patterns")
        for key, trigger in item.items():
            # In a list of triggers, an item may be one text; in a mapping, one text in place of a list is a mistake.
            single = isinstance(value, list) and isinstance(trigger, str)
            triggers[_TRIGGERS[key]] += _parse_list(f"triggers.{key}", [trigger] if single else trigger)
    return triggers


def _parse_list(key: str, value: object) -> list[str]:
    if value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSkill(f"{key} is not a list of texts; write it as [one, two]")
    items = [item.strip() for item in value if item.strip()]
    _check_characters(key, "".join(items))
    return items


def _check_characters(key: str, text: str) -> None:
    """Raise ``InvalidSkill`` for lone surrogates, which databases reject, and for control characters."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise InvalidSkill(f"{key} has a control character or a character that is not valid Unicode; remove it")


def remove_repeats(items: list[str], key: Callable[[str], str]) -> tuple[str, ...]:
    """Return the items without repeats, compared by ``key``; a repeated trigger would score twice."""
    first = {key(item): item for item in reversed(items)}
    return tuple(item for item in dict.fromkeys(items) if first[key(item)] == item)


def _check_limits(key: str, items: tuple[str, ...], max_items: int, max_chars: int | None = None) -> None:
    if len(items) > max_items:
        raise InvalidSkill(f"{key} has more than {max_items} entries; keep those that people really write")
    if max_chars is not None and any(len(item) > max_chars for item in items):
        raise InvalidSkill(f"{key} has an entry of more than {max_chars} characters; shorten it")


def _is_valid(rule: TypeAdapter[str], text: str) -> bool:
    try:
        rule.validate_python(text)
    except ValidationError:
        return False
    return True


@dataclass(frozen=True)
class SkillSource:
    """A skill file by its path, with the parsed skill or, if it is not valid, the problem."""

    source: str
    shipped: bool
    skill: SkillFile | None = None
    problem: str = ""

    @classmethod
    def parse_file(cls, source: str, data: bytes, *, shipped: bool) -> "SkillSource":
        """Parse a skill file; for an invalid file, return a source with the problem."""
        try:
            return cls(source, shipped, skill=read_skill(data))
        except InvalidSkill as error:
            return cls(source, shipped, problem=str(error))


@dataclass(frozen=True)
class SkillSet:
    """The result of reading all skill files: the skills to store by slug, and the slugs of stored skills that stay.

    ``problems`` are pairs of a file path and a sentence.
    """

    chosen: dict[str, SkillSource] = field(default_factory=dict)
    retained: frozenset[str] = frozenset()
    problems: tuple[tuple[str, str], ...] = ()


def choose_files(files: Iterable[SkillSource], stored: Mapping[str, str]) -> SkillSet:
    """Choose one file for each slug; ``stored`` has the file of each stored skill, by slug.

    A user's skill replaces a shipped one with the same slug; of two user skills with one slug, the first by path wins.
    If a file is no longer valid, its stored skill stays.
    """
    ordered = sorted(files, key=lambda file: file.source)
    chosen: dict[str, SkillSource] = {}
    problems: list[tuple[str, str]] = []
    for file in ordered:
        skill = file.skill
        problems += ((file.source, problem) for problem in (skill.problems if skill is not None else (file.problem,)))
        if skill is not None and not file.shipped and chosen.setdefault(skill.slug, file) is not file:
            first = chosen[skill.slug].source
            problems.append((file.source, f"the file {first} already has the slug {skill.slug}; choose another"))
    invalid = {file.source for file in ordered if file.skill is None}
    retained = frozenset(slug for slug, source in stored.items() if source in invalid and slug not in chosen)
    for file in ordered:
        if file.skill is not None and file.skill.slug not in retained:
            chosen.setdefault(file.skill.slug, file)
    return SkillSet(chosen, retained, tuple(problems))

"""Reads the front matter of a skill: YAML between two lines of ``---``, and the Markdown below it."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from maestro.domain.errors import ConfigurationError

MAX_FRONT_MATTER = 16_384
"""Characters; YAML takes its time, and this many take a tenth of a second."""
MAX_DEPTH = 6

_KINDS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None)

_FENCE = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_SHAPE = 'begin the file with a line "---", lines such as "slug: my-skill", and another line "---"'


class InvalidSkill(ConfigurationError):
    """A file is no skill that can be used; the text is one sentence that names the fix."""

    public = "The skill is not valid."


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return what stands in the front matter, every plain value as text, and the body.

    Raises ``InvalidSkill``.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    fence = _FENCE.match(text)
    if fence is None:
        raise InvalidSkill(f"it has no front matter; {_SHAPE}")
    source = fence["yaml"]
    if len(source) > MAX_FRONT_MATTER:
        raise InvalidSkill(f"its front matter has more than {MAX_FRONT_MATTER} characters; shorten it")
    found = _read(source)
    if not isinstance(found, dict):
        raise InvalidSkill(f"its front matter has no keys; {_SHAPE}")
    return {str(key): value for key, value in found.items()}, text[fence.end() :].strip()


class _Loader(yaml.SafeLoader):
    """Reads texts, lists and mappings, and refuses what could grow beyond its own length or hide a mistake."""

    # A keyword "no" is a word and a version 1.10 is no number: nothing is taken for anything but text.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the library's own way to say so
    yaml_constructors = {kind: yaml.SafeLoader.yaml_constructors[kind] for kind in _KINDS}  # noqa: RUF012 - as above
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Build a node; raises ``YAMLError`` for an alias, which can repeat itself, and for too much depth."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not supported", self._mark())
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "it is nested too deeply", self._mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; raises ``YAMLError`` when a key stands there twice, of which one would be lost."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands there twice", node.value[at][0].start_mark
                )
        return super().construct_mapping(node, deep=deep)

    def _mark(self) -> yaml.Mark | None:
        mark: yaml.Mark | None = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return mark


def _read(source: str) -> object:
    try:
        return yaml.load(source, Loader=_Loader)  # noqa: S506 - it is a safe loader, made stricter
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise InvalidSkill(f"its front matter is not valid YAML{line}: {error.problem}; correct it there") from None
    except yaml.YAMLError as error:
        raise InvalidSkill(f"its front matter is not valid YAML: {' '.join(str(error).split())}") from None

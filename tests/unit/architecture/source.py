"""A Python file as the rules see it: its place, its text, its syntax tree and its comments."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("maestro", "connectors", "activities", "workflows", "temporal", "api")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Finding:
    """One breach of a rule; printed as ``path:line: what is wrong``."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One file; ``path`` is relative to the root of the project, with slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def comments(self) -> dict[int, str]:
        """The text of each comment by its line, without the mark and without instructions to a tool."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        found = ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)
        return {line: _words(text) for line, text in found}

    def walk(self, kind: type[Node]) -> Iterator[Node]:
        """Yield every node of a kind."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    def functions(self) -> Iterator[FunctionNode]:
        """Yield every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, FunctionNode))

    def finding(self, node: ast.stmt | ast.expr | ast.ExceptHandler, message: str) -> Finding:
        """Say what is wrong with a node."""
        return Finding(self.path, node.lineno, message)

    def is_in(self, *places: str) -> bool:
        """Say whether this file is one of these, or inside one of these folders (a place that ends in a slash)."""
        return any(self.path.startswith(place) if place.endswith("/") else self.path == place for place in places)


Rule = Callable[[Source], Iterator[Finding]]


def _words(comment: str) -> str:
    """Return what a comment tells a reader: ``# noqa: BLE001 - why`` says ``why``."""
    text = comment.lstrip("# ")
    for instruction in ("noqa:", "type: ignore", "pragma:"):
        if text.startswith(instruction):
            _, _, text = text.removeprefix(instruction).strip().partition(" ")
    return text.strip(" -–—:")


def read(*folders: str) -> tuple[Source, ...]:
    """Read every Python file below these folders of the project."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths)


def dotted(node: ast.expr) -> str:
    """Return the dotted name of an expression, ``""`` if it is none: ``os.environ.get`` for that attribute."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""

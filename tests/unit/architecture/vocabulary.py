"""Rules about words and folders: one idea has one name, and a folder holds what a reader can survey."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.unit.architecture.source import Finding, Source

MOST_MODULES = 25

# Pictures and participles that say nothing to a reader who did not write them (docs/glossary.md).
_PICTURES = (
    "matter shelf shelves sheet papers desk house doorman stations stretch course pace prospect prospects outlook"
)
_PARTICIPLES = "kept said told asked shown typed left standing growing hearing listening us"
BANNED_WORDS = frozenset(f"{_PICTURES} {_PARTICIPLES}".split())
# A class or module of this name does not say of what: a position in a lane, a message of a prompt, a chunk.
BANNED_NAMES = frozenset({"place", "places", "turn", "turns"})

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def class_names_are_unique(sources: Iterable[Source], shared: Mapping[str, str]) -> Iterator[Finding]:
    """No two classes of the product have one name, except those in the list of shared names."""
    places = defaultdict(list)
    for source in sources:
        for node in source.walk(ast.ClassDef):
            places[node.name].append(source.finding(node, f"{node.name} is also the name of another class"))
    for name, found in places.items():
        if len(found) > 1 and name not in shared:
            yield from found


def names_are_of_the_field(source: Source) -> Iterator[Finding]:
    """No module, class or function has a name from the lists of banned words: take the word of docs/glossary.md."""
    module = PurePosixPath(source.path).stem
    if _is_banned(module) or module in BANNED_NAMES:
        yield Finding(source.path, 1, f"the module's name {module!r} is not a word of the field")
    for node in (*source.walk(ast.ClassDef), *source.functions()):
        is_class = isinstance(node, ast.ClassDef)
        if _is_banned(node.name) or (is_class and node.name.strip("_").lower() in BANNED_NAMES):
            yield source.finding(node, f"{node.name!r} is not a word of the field")


def _is_banned(name: str) -> bool:
    return not BANNED_WORDS.isdisjoint(map(str.lower, _WORD.findall(name)))


def folders_are_small(sources: Iterable[Source]) -> Iterator[Finding]:
    """A folder holds at most 25 modules, the package's own file not counted."""
    paths = [PurePosixPath(source.path) for source in sources]
    counts = Counter(path.parent.as_posix() for path in paths if path.name != "__init__.py")
    for folder, count in counts.items():
        if count > MOST_MODULES:
            yield Finding(folder, 1, f"{count} modules, the limit is {MOST_MODULES}: make packages by noun")


def fields_of_rows(sources: Iterable[Source]) -> dict[str, frozenset[str]]:
    """Return the fields of each class that is a table, by its name."""
    classes = (node for source in sources for node in source.walk(ast.ClassDef))
    return {node.name: _fields(node) for node in classes if any(key.arg == "table" for key in node.keywords)}


def _fields(node: ast.ClassDef) -> frozenset[str]:
    declared = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
    return frozenset(target.id for target in declared if isinstance(target, ast.Name))


def views_are_built_from_rows(rows: Mapping[str, frozenset[str]], source: Source) -> Iterator[Finding]:
    """A view that has 70 % of a row's fields is built from the row as a whole, not field by field."""
    for call in source.walk(ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        copied = _copied(call)
        repeated = [
            row for row, fields in rows.items() if len(fields) > 4 and len(fields & copied) >= 0.7 * len(fields)
        ]
        if name not in rows and repeated:
            yield source.finding(call, f"{name} repeats the fields of {repeated[0]}")


def _copied(call: ast.Call) -> frozenset[str]:
    """Return the arguments that hand on an attribute of the same name."""
    copies = (key for key in call.keywords if isinstance(key.value, ast.Attribute) and key.value.attr == key.arg)
    return frozenset(key.arg for key in copies if key.arg)

"""Rules about state: who builds it and who reads it. Modules hold constants; bootstrap composes what lives."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from tests.unit.architecture.source import Finding, Source, dotted

# Calls whose result never changes, by the last part of their name.
BUILT_IN = frozenset(
    {"bool", "bytes", "chr", "float", "frozenset", "int", "len", "max", "min", "object", "ord", "range"}
)
COMBINED = frozenset(
    {"encode", "exists", "items", "joinpath", "keys", "replace", "round", "sorted", "str", "sum", "tuple", "values"}
)
LIBRARY = frozenset(
    {"Decimal", "JSONEncoder", "MappingProxyType", "Path", "PurePath", "PurePosixPath", "UUID", "ZoneInfo", "compile"}
)
LIBRARY_TOO = frozenset(
    {"IPv4Address", "IPv4Network", "IPv6Network", "attrgetter", "date", "datetime", "files", "itemgetter", "timedelta"}
)
TYPES = frozenset({"ConfigDict", "NewType", "ParamSpec", "SecretStr", "TypeAdapter", "TypeVar", "namedtuple"})
VALUES = BUILT_IN | COMBINED | LIBRARY | LIBRARY_TOO | TYPES
# A function of the same module may compute a table, if it says that it returns nothing but one.
TABULAR = frozenset(
    {"Iterable", "Iterator", "Mapping", "Sequence", "bytes", "dict", "frozenset", "int", "str", "tuple"}
)
# Calls that build something with state and are right at module level all the same, each with its reason.
DECLARATIONS = {
    "getLogger": "a logger is a name; logging itself owns the state",
    "get_logger": "a logger is a name; structlog itself owns the state",
    "ContextVar": "a context variable has to be a module's, and holds nothing by itself",
    "APIRouter": "a table of routes, filled by decorators while the module is read",
    "Commands": "a table of commands, filled by decorators while the module is read",
    "OperationAPIRouter": "an APIRouter that is filled from operations",
    "OperationCommands": "Commands that are filled from operations",
    "Typer": "the same, of a library",
    "RetryPolicy": "a value of temporalio that is not declared frozen",
    "SearchAttributeKey": "a value of temporalio: a name with its type",
}
TABLES = ("APIRouter", "Commands", "Typer")
COLLECTIONS = frozenset({"OrderedDict", "defaultdict", "deque", "dict", "list", "set"})
FROZEN_BASES = frozenset({"Enum", "Flag", "IntEnum", "IntFlag", "NamedTuple", "StrEnum"})


def modules_hold_no_state(frozen: frozenset[str], source: Source) -> Iterator[Finding]:
    """No module builds a stateful object, keeps a collection to fill, or does work while it is imported.

    ``frozen`` names the classes whose instances are values (see ``frozen_classes``).
    """
    tables = set(_tables(source))
    frozen |= set(_tabulating(source))
    for statement in _top_level(source.tree.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value and not _is_dunder(statement):
            if _is_to_be_filled(statement.value):
                yield source.finding(statement, "an empty collection at module level is state; give it an owner")
            for name in _builds(statement.value, frozen):
                yield source.finding(statement, f"{name}() at module level: build it in bootstrap and pass it in")
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = dotted(statement.value.func)
            if name.split(".")[0] not in tables:
                yield source.finding(statement, f"{name}() runs when the module is imported")
    for word in source.walk(ast.Global):
        yield source.finding(word, f"global {', '.join(word.names)}: a module-level variable that changes")


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run on import, those inside ``if``, ``with`` and ``try`` too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and "__main__" not in ast.dump(statement.test):
            yield from _top_level([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.With):
            yield from _top_level(statement.body)
        elif isinstance(statement, ast.Try):
            yield from _top_level([*statement.body, *statement.orelse, *statement.finalbody])


def _is_dunder(statement: ast.Assign | ast.AnnAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return all(isinstance(target, ast.Name) and target.id.startswith("__") for target in targets)


def _tabulating(source: Source) -> Iterator[str]:
    """Yield the functions of this module that return plain data by their annotation."""
    for function in source.tree.body:
        if isinstance(function, ast.FunctionDef) and function.returns:
            kind = function.returns.value if isinstance(function.returns, ast.Subscript) else function.returns
            if dotted(kind).split(".")[-1] in TABULAR:
                yield function.name


def _tables(source: Source) -> Iterator[str]:
    """Yield the names of this module's routers and command tables; calls on them declare, they do not run."""
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            names = (target.id for target in statement.targets if isinstance(target, ast.Name))
            yield from names if dotted(statement.value.func).endswith(TABLES) else ()


def _is_to_be_filled(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        kind = dotted(value.func).split(".")[-1]
        return kind in COLLECTIONS and (not value.args or kind == "defaultdict")
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def _builds(value: ast.expr, frozen: frozenset[str]) -> Iterator[str]:
    """Yield the calls in an expression that may build something with state."""
    if isinstance(value, ast.Lambda) or (
        isinstance(value, ast.Subscript) and dotted(value.value).endswith("Annotated")
    ):
        return  # runs later, or only describes a type
    if isinstance(value, ast.Call) and not _is_value(value, frozen):
        yield dotted(value.func) or ast.unparse(value.func)
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            yield from _builds(child, frozen)
        elif isinstance(child, ast.keyword | ast.comprehension):
            yield from _builds(child.value if isinstance(child, ast.keyword) else child.iter, frozen)


def _is_value(call: ast.Call, frozen: frozenset[str]) -> bool:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant):
        return True  # a method of a literal, such as "a b c".split()
    parts = dotted(call.func).split(".")
    return bool({parts[-1], *parts[-2:-1]} & (VALUES | frozen | DECLARATIONS.keys() | COLLECTIONS))


def frozen_classes(sources: Iterable[Source]) -> frozenset[str]:
    """Return the names of the classes whose instances never change, by declaration or by inheritance."""
    classes = [node for source in sources for node in source.walk(ast.ClassDef)]
    frozen = {node.name for node in classes if _is_frozen(node)}
    while more := {node.name for node in classes if node.name not in frozen and frozen & _bases(node)}:
        frozen |= more
    return frozenset(frozen)


def _bases(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's bases; of a generic base such as ``Page[Job]``, the name without its parameter."""
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {dotted(base).split(".")[-1] for base in bases}


def _is_frozen(node: ast.ClassDef) -> bool:
    settings = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    settings += [item.value for item in node.body if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)]
    keywords = [keyword for call in settings for keyword in call.keywords]
    declared = any(word.arg == "frozen" and getattr(word.value, "value", None) is True for word in keywords)
    return declared or bool(_bases(node) & FROZEN_BASES)


def is_settings(source: Source) -> bool:
    """Say whether this file declares the settings."""
    return source.is_in("maestro/settings.py", "maestro/settings/")


def unread_settings(sources: Iterable[Source]) -> Iterator[Finding]:
    """Every setting is read outside the settings, directly or by a property there that is read in turn.

    A setting that no code reads promises what is not kept. The secrets of a platform are read by their type, all at
    once, in ``PlatformSettings.secrets``.
    """
    sources = tuple(sources)
    read = {node.attr for source in sources if not is_settings(source) for node in source.walk(ast.Attribute)}
    declaring = filter(is_settings, sources)
    sections = [(source, node) for source in declaring for node in source.walk(ast.ClassDef) if node.bases]
    derived = [member for _, node in sections for member in node.body if _is_property(member) and member.name in read]
    read |= {
        attribute.attr for member in derived for attribute in ast.walk(member) if isinstance(attribute, ast.Attribute)
    }
    for source, node in sections:
        for name, member in _keys(node):
            if name not in read and not (_has_platform_secrets(node) and "SecretStr" in ast.dump(member)):
                yield source.finding(member, f"{node.name}.{name} is declared and never read")


def _has_platform_secrets(section: ast.ClassDef) -> bool:
    return "PlatformSettings" in map(dotted, section.bases)


def _keys(section: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for member in section.body:
        if _is_property(member):
            yield member.name, member
        elif isinstance(member, ast.AnnAssign) and "ClassVar" not in ast.dump(member.annotation):
            name = dotted(member.target)
            yield from () if name.startswith("_") else [(name, member)]


def _is_property(member: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    decorators = member.decorator_list if isinstance(member, ast.FunctionDef) else []
    return any(dotted(decorator) in ("property", "cached_property") for decorator in decorators)

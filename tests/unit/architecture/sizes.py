"""Rules about sizes and names: what a reader can hold in mind, and find."""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.unit.architecture.source import Finding, FunctionNode, Source

MAX_FILE_LINES = 400
MAX_TEST_FILE_LINES = 500
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 5

# A name that fits everything collects everything.
VAGUE_PLACES = frozenset({"common", "helper", "helpers", "misc", "shared", "stuff", "util", "utils"})
VAGUE_ROLES = frozenset({"handler", "handlers", "manager", "managers", "processor", "processors"})
BANNED_NAMES = VAGUE_PLACES | VAGUE_ROLES


def files_are_short(source: Source) -> Iterator[Finding]:
    """A file has at most 400 lines, a test file 500."""
    limit = MAX_TEST_FILE_LINES if source.is_in("tests/") else MAX_FILE_LINES
    lines = source.text.count("\n")
    if lines > limit:
        yield Finding(source.path, limit, f"{lines} lines, the limit is {limit}")


def functions_are_short(source: Source) -> Iterator[Finding]:
    """A function has at most 40 lines, from ``def`` to its last line."""
    for function in source.functions():
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield source.finding(function, f"{function.name} has {lines} lines, the limit is {MAX_FUNCTION_LINES}")


def functions_have_few_parameters(source: Source) -> Iterator[Finding]:
    """A function has at most 5 parameters, ``self`` and ``cls`` not counted.

    A command of the terminal is exempt: each of its parameters is an option of its own.
    """
    for function in source.functions():
        count = len(_parameters(function))
        if count > MAX_PARAMETERS and not (source.is_in("maestro/cli/") and _is_command(function)):
            yield source.finding(function, f"{function.name} has {count} parameters, the limit is {MAX_PARAMETERS}")


def _parameters(function: FunctionNode) -> list[str]:
    spec = function.args
    variadic = [argument for argument in (spec.vararg, spec.kwarg) if argument]
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *variadic]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def _is_command(function: FunctionNode) -> bool:
    calls = (decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call))
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("command", "operation", "callback")
        for call in calls
    )


def file_names_mean_something(source: Source) -> Iterator[Finding]:
    """No file or folder is called utils, helpers, common, manager or the like, alone or as a part of its name."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        banned = BANNED_NAMES.intersection(re.split(r"_+", part))
        if banned:
            yield Finding(source.path, 1, f"'{part}' says nothing; name the noun or the rule inside")


def modules_open_with_a_sentence(source: Source) -> Iterator[Finding]:
    """A module that holds code opens with one sentence that says what it is for."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield Finding(source.path, 1, "the module has no docstring")

"""The rule about names of steps: they stand in one table."""

import ast
import re
from collections.abc import Iterator

from maestro.domain.jobs.steps import StepKind
from tests.unit.architecture.source import Finding, Source

TABLE = "maestro/domain/jobs/steps.py"
WORDS = frozenset(
    {"close", "compaction", "context", "conversation", "enter", "media", "model", "notice", "script", "show"}
    | {"tags", "tool", "typing", "voice"}
)
"""Names of steps that are words of other things too: they count where the code speaks of a step."""


def steps_are_named_by_the_table(source: Source) -> Iterator[Finding]:
    """No bare name of a step in a comparison, a key or an argument: use ``StepKind`` (maestro/domain/jobs/steps.py)."""
    if source.path == TABLE:
        return
    for node in ast.walk(source.tree):
        for place, speaks in _places(node):
            name = _name(place)
            if name in StepKind.__members__.values() and (speaks or name not in WORDS):
                yield source.finding(place, f"the bare name of the step {name}")


def _places(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the places that count around a node, each with whether the code speaks of a step there."""
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            speaks = "step" in ast.unparse(node)
            for operand in operands:
                inner = operand.elts if isinstance(operand, ast.Tuple | ast.Set | ast.List) else [operand]
                yield from ((one, speaks) for one in inner)
        case ast.Dict():
            yield from ((key, False) for key in node.keys if key is not None)
        case ast.Call():
            speaks = "step" in ast.unparse(node.func).casefold()
            yield from ((one, speaks) for one in node.args)
            yield from ((one.value, one.arg == "step") for one in node.keywords)
        case ast.JoinedStr():
            yield node, True


def _name(node: ast.expr) -> str:
    """Return the text of a constant, and what stands before the numbers of a name that is put together."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        return text.partition("-*")[0] if re.fullmatch(r"[a-z-]+?(-\*)+", text) else ""
    return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

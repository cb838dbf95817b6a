"""The rule about bootstrap: it composes, and nothing else."""

import ast
from collections.abc import Iterator

from tests.unit.architecture.source import Finding, Source, dotted

BOOTSTRAP = "maestro/bootstrap/"
PROCESSES = frozenset({"ABC", "ModelProcess", "Process", "SeparateProcess", "Up"})
"""Bases of the classes that are a process: what they run is composed of parts that live elsewhere."""
TRANSACTIONS = frozenset({"begin", "view"})


def bootstrap_only_composes(source: Source) -> Iterator[Finding]:
    """A module of bootstrap constructs parts and passes them to each other.

    Its functions hold no loop that waits and no transaction, and only the classes of processes have methods.
    """
    if not source.is_in(BOOTSTRAP):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and _behaves(node):
            yield source.finding(node, f"{node.name} has methods: move it to the package of its noun")
        elif isinstance(node, ast.While | ast.AsyncFor):
            yield source.finding(node, "a loop: what runs on belongs to the package of its noun")
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] in TRANSACTIONS:
                    yield source.finding(call, "a transaction: what reads or writes the store belongs elsewhere")


def _behaves(node: ast.ClassDef) -> bool:
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return bool(methods) and not PROCESSES & {dotted(base) for base in node.bases}

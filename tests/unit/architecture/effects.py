"""Rules about effects: who may wait, read the environment, print, import a vendor or catch everything."""

import ast
from collections.abc import Iterator

from tests.unit.architecture.source import Finding, Source, dotted

PLATFORMS = ("discord", "slack", "telegram", "web", "whatsapp")
TRANSACTIONS = ("begin", "view")
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
EVERYTHING = frozenset({"Exception", "BaseException"})
# A workflow is replayed: whatever it does by itself must come out the same every time.
DATA_DOORS = frozenset({"httpx", "os", "socket", "sqlalchemy", "sqlite3", "sqlmodel", "subprocess", "urllib"})
NOT_IN_WORKFLOWS = DATA_DOORS | {"random", "secrets", "threading", "time", "uuid"}


def async_code_leaves_the_store_alone(source: Source) -> Iterator[Finding]:
    """No transaction inside ``async def``, begun or run at once: a transaction there stops the whole event loop."""
    for function in source.walk(ast.AsyncFunctionDef):
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            runs_at_once = dotted(call.func).endswith(("store.read", "store.write"))
            if call.func.attr in TRANSACTIONS or runs_at_once:
                yield source.finding(
                    call, f".{call.func.attr}() inside async def {function.name}: use asyncio.to_thread"
                )


def only_settings_read_the_environment(source: Source) -> Iterator[Finding]:
    """``os.environ`` is read in ``maestro.settings`` alone, so that the settings are all there is to know."""
    if source.is_in("maestro/settings.py", "maestro/settings/"):
        return
    reads = [node for node in source.walk(ast.Attribute) if dotted(node.value) == "os" and node.attr in ENVIRONMENT]
    from_os = [node for node in source.walk(ast.ImportFrom) if node.module == "os"]
    by_name = [node for node in from_os if ENVIRONMENT & {alias.name for alias in node.names}]
    touching: list[ast.Attribute | ast.ImportFrom] = [*reads, *by_name]
    for node in touching:
        yield source.finding(node, "the environment is read in the settings only")


def imports_stand_at_the_top(source: Source) -> Iterator[Finding]:
    """An import inside a function needs ``# noqa: PLC0415 - <reason>``: most of them hide a cycle."""
    for function in source.functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and not source.comments.get(node.lineno):
                yield source.finding(node, f"import inside {function.name} without a reason")


def activities_have_no_try(source: Source) -> Iterator[Finding]:
    """Activities contain no ``try``: one interceptor turns exceptions into typed failures for all of them."""
    if source.is_in("activities/"):
        for node in [*source.walk(ast.Try), *source.walk(ast.TryStar)]:
            yield source.finding(node, "try in an activity: let it raise, temporal/attempts.py knows what to do")


def threaded_activities_are_not_interrupted(source: Source) -> Iterator[Finding]:
    """An activity that is no ``async def`` says ``no_thread_cancel_exception=True``.

    Else the SDK raises ``CancelledError`` in its thread wherever that is, such as in the pool with the connection that
    writes, which is then lost.
    """
    if source.is_in("activities/"):
        for function in source.walk(ast.FunctionDef):
            for decorator in function.decorator_list:
                text = ast.unparse(decorator)
                if text.startswith("activity.defn") and "no_thread_cancel_exception=True" not in text:
                    yield source.finding(function, "the SDK may interrupt this thread anywhere")


def broad_excepts_are_explained(source: Source) -> Iterator[Finding]:
    """Catching everything needs a sentence that says why: on its line, the line before or the line after.

    A handler that ends by raising again swallows nothing and needs none.
    """
    handlers = [node for node in source.walk(ast.ExceptHandler) if _is_broad(node.type) and not _raises_again(node)]
    suppressions = [node for node in source.walk(ast.Call) if dotted(node.func) in ("suppress", "contextlib.suppress")]
    broad = [call for call in suppressions if any(map(_is_broad, call.args))]
    catching: list[ast.ExceptHandler | ast.Call] = [*handlers, *broad]
    for node in catching:
        if not any(source.comments.get(node.lineno + offset) for offset in (-1, 0, 1)):
            yield source.finding(node, "a broad except without a comment that says why")


def _is_broad(caught: ast.expr | None) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(kind is None or dotted(kind) in EVERYTHING for kind in kinds)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def only_commands_print(source: Source) -> Iterator[Finding]:
    """``print`` belongs to ``maestro/cli``; everything else logs."""
    if not source.is_in("maestro/cli/"):
        for call in source.walk(ast.Call):
            if dotted(call.func) == "print":
                yield source.finding(call, "print outside maestro/cli: log it")


def imports(source: Source) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield every imported name, dotted, with its place; those imported by a text at run time too."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in ("import_module", "__import__"):
            words = (word.value for word in node.args if isinstance(word, ast.Constant))
            yield from ((node, word) for word in words if isinstance(word, str))


def litellm_has_one_door(source: Source) -> Iterator[Finding]:
    """``litellm`` is imported inside ``maestro/llm`` only: it costs 190 MB and three seconds."""
    if not source.is_in("maestro/llm/"):
        for node, name in imports(source):
            if name.split(".")[0] == "litellm":
                yield source.finding(node, "litellm outside maestro/llm")


def sql_has_one_dialect(source: Source) -> Iterator[Finding]:
    """Only the modules that prepare and translate statements import dialects of SQL."""
    if source.path in ("maestro/store/engine/statements.py", "maestro/store/engine/postgresql.py"):
        return
    for node in source.walk(ast.ImportFrom):
        names = {alias.name for alias in node.names}
        if (node.module or "").startswith("sqlalchemy.dialects") or (
            node.module == "sqlalchemy" and "dialects" in names
        ):
            yield source.finding(node, "a dialect of SQL: import what differs from maestro.store.engine.statements")


def workflows_do_nothing_themselves(source: Source) -> Iterator[Finding]:
    """A workflow imports nothing that reads a clock, draws a number or touches the world."""
    if source.is_in("workflows/"):
        for node, name in imports(source):
            if name.split(".")[0] in NOT_IN_WORKFLOWS:
                yield source.finding(node, f"{name} in a workflow: let an activity do it")


def connectors_do_not_know_each_other(source: Source) -> Iterator[Finding]:
    """A connector imports no other connector: a platform can be left out, and fails alone."""
    here = source.path.split("/")[1] if source.is_in("connectors/") else ""
    if here in PLATFORMS:
        for node, name in imports(source):
            package, _, rest = name.partition(".")
            if package == "connectors" and rest.split(".")[0] in set(PLATFORMS) - {here}:
                yield source.finding(node, f"{name} in the connector of {here}")

"""The rules of the house, checked over every file, and each rule against a file that breaks it."""

import tomllib
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import packages_distributions

import pytest

from tests.unit.architecture import composition, effects, sizes, state, steps, vocabulary
from tests.unit.architecture.source import PACKAGES, ROOT, Finding, Rule, Source, read

# All files are read and parsed once, in one worker.
pytestmark = pytest.mark.xdist_group("architecture")


@cache
def product() -> tuple[Source, ...]:
    """Read the six packages."""
    return read(*PACKAGES)


@cache
def examples() -> tuple[Source, ...]:
    """Read the packages of others that we show, which live by the rules of ours."""
    return tuple(source for source in read("examples") if "/tests/" not in source.path)


@cache
def everything() -> tuple[Source, ...]:
    """Read the six packages, the examples, the tests, the scripts and the benchmarks."""
    return product() + read("examples", "tests", "scripts", "benchmarks")


def check(rule: Rule, sources: Iterable[Source]) -> None:
    """Fail with every breach and with the rule itself, as its docstring states it."""
    fail_on([finding for source in sources for finding in rule(source)], rule)


def fail_on(findings: list[Finding], rule: Callable[..., object]) -> None:
    """Fail if there are findings; the message is the rule and one line for each."""
    if findings:
        pytest.fail("\n".join([rule.__doc__ or "", *map(str, findings)]), pytrace=False)


def breaches(rule: Rule, text: str, path: str = "maestro/domain/example.py") -> int:
    """Count what a rule finds in a text."""
    return len(list(rule(Source(path, text))))


# Sizes and names


def test_files_are_short() -> None:
    check(sizes.files_are_short, everything())


def test_a_long_file_is_found() -> None:
    assert breaches(sizes.files_are_short, "x = 1\n" * 401) == 1
    assert breaches(sizes.files_are_short, "x = 1\n" * 400) == 0
    assert breaches(sizes.files_are_short, "x = 1\n" * 500, "tests/unit/test_x.py") == 0
    assert breaches(sizes.files_are_short, "x = 1\n" * 501, "tests/unit/test_x.py") == 1


def test_functions_are_short() -> None:
    check(sizes.functions_are_short, product() + examples())


def test_a_long_function_is_found() -> None:
    assert breaches(sizes.functions_are_short, "def f():\n" + "    x = 1\n" * 40) == 1
    assert breaches(sizes.functions_are_short, "def f():\n" + "    x = 1\n" * 39) == 0
    assert breaches(sizes.functions_are_short, "class C:\n async def f(self):\n" + "  x = 1\n" * 40) == 1


def test_functions_have_few_parameters() -> None:
    check(sizes.functions_have_few_parameters, product() + examples())


def test_a_function_with_many_parameters_is_found() -> None:
    rule = sizes.functions_have_few_parameters
    assert breaches(rule, "def f(a, b, c, *, d, e, f): ...") == 1
    assert breaches(rule, "def f(a, b, c, d, *e, **f): ...") == 1
    assert breaches(rule, "class C:\n def f(self, a, b, c, d, e): ...") == 0
    command = "@app.command()\ndef f(a, b, c, d, e, f): ..."
    assert breaches(rule, command, "maestro/cli/processes.py") == 0
    assert breaches(rule, command) == 1


def test_file_names_mean_something() -> None:
    check(sizes.file_names_mean_something, everything())


@pytest.mark.parametrize("path", ["maestro/utils.py", "maestro/llm/job_manager.py", "api/helpers/text.py"])
def test_an_empty_name_is_found(path: str) -> None:
    assert breaches(sizes.file_names_mean_something, "", path) == 1


def test_a_name_that_only_looks_like_a_banned_one_is_fine() -> None:
    assert breaches(sizes.file_names_mean_something, "", "maestro/domain/commonplace.py") == 0


def test_modules_open_with_a_sentence() -> None:
    check(sizes.modules_open_with_a_sentence, everything())


def test_a_module_without_a_sentence_is_found() -> None:
    assert breaches(sizes.modules_open_with_a_sentence, "x = 1") == 1
    assert breaches(sizes.modules_open_with_a_sentence, "") == 0


# Words and folders

# Each of these names is the field's word in both places, and no module meets both.
SHARED_NAMES: dict[str, str] = {}


def test_class_names_are_unique() -> None:
    assert len(SHARED_NAMES) <= 10
    fail_on(list(vocabulary.class_names_are_unique(product(), SHARED_NAMES)), vocabulary.class_names_are_unique)


def test_a_class_name_that_is_there_twice_is_found() -> None:
    sources = [Source("a.py", "class Plan: ..."), Source("b.py", "class Plan: ...\nclass Other: ...")]
    assert len(list(vocabulary.class_names_are_unique(sources, {}))) == 2
    assert not list(vocabulary.class_names_are_unique(sources, {"Plan": "a reason"}))


def test_names_are_of_the_field() -> None:
    check(vocabulary.names_are_of_the_field, product())


@pytest.mark.parametrize(
    "text",
    [
        "class Shelf: ...",
        "class JobSheet: ...",
        "def what_was_said(): ...",
        "async def f():\n def kept(): ...",
        "class _Turn: ...",
    ],
)
def test_a_name_that_is_not_of_the_field_is_found(text: str) -> None:
    assert breaches(vocabulary.names_are_of_the_field, text) == 1


def test_a_module_that_is_not_named_by_the_field_is_found() -> None:
    assert breaches(vocabulary.names_are_of_the_field, "", "maestro/domain/job_papers.py") == 1
    assert (
        breaches(
            vocabulary.names_are_of_the_field,
            "class Leftover: ...\ndef place_of(): ...\ndef places(): ...",
            "api/house_of.py",
        )
        == 1
    )


def test_folders_are_small() -> None:
    fail_on(list(vocabulary.folders_are_small(product())), vocabulary.folders_are_small)


def test_a_crowded_folder_is_found() -> None:
    modules = [Source(f"maestro/store/m{number}.py", "") for number in range(25)]
    package = Source("maestro/store/__init__.py", "")
    assert not list(vocabulary.folders_are_small([*modules, package]))
    assert len(list(vocabulary.folders_are_small([*modules, Source("maestro/store/one.py", "")]))) == 1


def test_views_are_built_from_rows() -> None:
    rule = partial(vocabulary.views_are_built_from_rows, vocabulary.fields_of_rows(product()))
    fail_on([finding for source in product() for finding in rule(source)], vocabulary.views_are_built_from_rows)


def test_a_view_that_repeats_a_row_is_found() -> None:
    row = Source("a.py", "class Row(Model, table=True):\n a: int\n b: int\n c: int\n d: int\n e: int")
    rule = partial(vocabulary.views_are_built_from_rows, vocabulary.fields_of_rows([row]))
    assert breaches(rule, "View(a=row.a, b=row.b, c=row.c, d=row.d, x=1)") == 1
    assert breaches(rule, "View(a=row.a, b=row.b, c=row.c, x=row.d)") == 0
    assert breaches(rule, "Row(a=row.a, b=row.b, c=row.c, d=row.d)") == 0
    assert breaches(rule, "View.model_validate(row)") == 0


# State


def test_modules_hold_no_state() -> None:
    rule = state.modules_hold_no_state
    frozen = state.frozen_classes(product())
    # Alembic runs its env.py; nobody imports it.
    sources = (source for source in product() + examples() if not source.is_in("maestro/store/migrations/env.py"))
    fail_on([finding for source in sources for finding in rule(frozen, source)], rule)


@pytest.mark.parametrize(
    "text",
    [
        "engine = create_engine('sqlite://')",
        "STORE: Store = Store.open(path)",
        "CLIENTS = tuple(Client(url) for url in URLS)",
        "lock = threading.Lock()",
        "_seen = {}",
        "_seen: list[str] = []",
        "_seen = defaultdict(list)",
        "ENGINE = _build()\ndef _build() -> Engine: ...",
        "connect()",
        "if True:\n    connect()",
        "def f():\n    global x\n    x = 1",
    ],
)
def test_module_state_is_found(text: str) -> None:
    assert breaches(partial(state.modules_hold_no_state, frozenset()), text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN = re.compile('a')",
        "log = structlog.get_logger(__name__)",
        "WORDS = frozenset('a b'.split())",
        "Name = Annotated[str, Field(max_length=3)]",
        "TABLE = {'a': timedelta(seconds=1)}",
        "router = APIRouter(prefix='/jobs')\nrouter.include_router(other)",
        "KEY = SearchAttributeKey.for_keyword('agent')",
        "BUILD = lambda: Engine()",
        "KEYS = dict(_walk(Settings))\ndef _walk(section) -> Iterator[tuple[str, Key]]: ...",
        "DEFAULT = Limits(size=3)",
        "if __name__ == '__main__':\n    sys.exit(main())",
        "__all__ = []",
        "def f():\n    engine = create_engine()",
    ],
)
def test_a_constant_is_not_state(text: str) -> None:
    assert breaches(partial(state.modules_hold_no_state, frozenset({"Limits"})), text) == 0


def test_frozen_classes_are_known_by_declaration_and_inheritance() -> None:
    text = (
        "@dataclass(frozen=True)\nclass A: ...\n"
        "class B(BaseModel):\n model_config = ConfigDict(frozen=True)\n"
        "class C(base.B): ...\nclass D(C): ...\nclass E(StrEnum): ...\n"
        "@dataclass\nclass Not: ...\nclass Neither(BaseModel): ...\n"
    )
    assert state.frozen_classes([Source("a.py", text)]) == {"A", "B", "C", "D", "E"}


def test_every_setting_is_read() -> None:
    fail_on(list(state.unread_settings(product())), state.unread_settings)


def test_an_unread_setting_is_found() -> None:
    declared = Source(
        "maestro/settings.py",
        "class Limits(Section):\n"
        " size: int = 3\n speed: int = 4\n seconds: int = 5\n KIND: ClassVar[str] = ''\n"
        " @property\n def pause(self): return timedelta(seconds=self.seconds)\n"
        " @property\n def unused(self): return self.size\n\n"
        "print(limits.speed)",
    )
    reader = Source("maestro/intake.py", "def f(limits):\n    return limits.size, limits.pause")
    assert [finding.message for finding in state.unread_settings([declared, reader])] == [
        "Limits.speed is declared and never read",
        "Limits.unused is declared and never read",
    ]


# Effects


def test_async_code_leaves_the_store_alone() -> None:
    check(effects.async_code_leaves_the_store_alone, product() + examples())


def test_a_transaction_in_async_code_is_found() -> None:
    rule = effects.async_code_leaves_the_store_alone
    assert breaches(rule, "async def f(store):\n    with store.begin() as tx:\n        tx.x()") == 1
    assert breaches(rule, "async def f(self):\n    def g():\n        return self._store.view()\n    return g") == 1
    assert breaches(rule, "async def f(self):\n    self._store.write(lambda tx: tx.x())") == 1
    assert breaches(rule, "async def f(self):\n    await asyncio.to_thread(self._store.write, lambda tx: tx.x())") == 0
    assert breaches(rule, "def f(store):\n    with store.begin() as tx:\n        tx.x()") == 0


def test_only_settings_read_the_environment() -> None:
    # litellm reads its switches from the environment while it is imported, so its one door has to set them there.
    check(
        effects.only_settings_read_the_environment, (s for s in product() if s.path != "maestro/llm/litellm_client.py")
    )


@pytest.mark.parametrize("text", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ"])
def test_reading_the_environment_is_found(text: str) -> None:
    assert breaches(effects.only_settings_read_the_environment, text) == 1
    assert breaches(effects.only_settings_read_the_environment, text, "maestro/settings.py") == 0


def test_imports_stand_at_the_top() -> None:
    check(effects.imports_stand_at_the_top, product() + examples())


def test_an_import_inside_a_function_is_found() -> None:
    rule = effects.imports_stand_at_the_top
    assert breaches(rule, "def f():\n    import json") == 1
    assert breaches(rule, "async def f():\n    from json import loads  # noqa: PLC0415") == 1
    assert breaches(rule, "def f():\n    import litellm  # noqa: PLC0415 - takes three seconds") == 0


def test_activities_have_no_try() -> None:
    check(effects.activities_have_no_try, product())


def test_a_try_in_an_activity_is_found() -> None:
    text = "def f():\n    try:\n        g()\n    finally:\n        h()"
    assert breaches(effects.activities_have_no_try, text, "activities/model_calls.py") == 1
    assert breaches(effects.activities_have_no_try, text, "temporal/attempts.py") == 0


def test_threaded_activities_are_not_interrupted() -> None:
    check(effects.threaded_activities_are_not_interrupted, product())


def test_a_threaded_activity_that_may_be_interrupted_is_found() -> None:
    rule, path = effects.threaded_activities_are_not_interrupted, "activities/model_calls.py"
    assert breaches(rule, "@activity.defn\ndef f(): ...", path) == 1
    assert breaches(rule, "@activity.defn(name='f')\ndef f(): ...", path) == 1
    assert breaches(rule, "@activity.defn(no_thread_cancel_exception=True)\ndef f(): ...", path) == 0
    assert breaches(rule, "@activity.defn\nasync def f(): ...", path) == 0


def test_broad_excepts_are_explained() -> None:
    check(effects.broad_excepts_are_explained, product() + examples())


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept:\n    g()",
        "try:\n    f()\nexcept Exception:  # noqa: BLE001\n    g()",
        "try:\n    f()\nexcept (ValueError, BaseException) as error:\n    g()",
        "with contextlib.suppress(Exception):\n    f()",
    ],
)
def test_a_broad_except_without_a_reason_is_found(text: str) -> None:
    assert breaches(effects.broad_excepts_are_explained, text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept ValueError:\n    g()",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise",
        "try:\n    f()\nexcept Exception:  # noqa: BLE001 - a scanner must never stop a post\n    g()",
        "try:\n    f()\n# Typing is a courtesy: it never fails a message.\nexcept Exception:\n    g()",
    ],
)
def test_a_narrow_or_explained_except_is_fine(text: str) -> None:
    assert breaches(effects.broad_excepts_are_explained, text) == 0


def test_only_commands_print() -> None:
    check(effects.only_commands_print, product() + examples())


def test_a_print_is_found() -> None:
    assert breaches(effects.only_commands_print, "print('x')") == 1
    assert breaches(effects.only_commands_print, "print('x')", "maestro/cli/processes.py") == 0


def test_litellm_has_one_door() -> None:
    check(effects.litellm_has_one_door, product())


@pytest.mark.parametrize(
    "text", ["import litellm", "from litellm.types import Usage", "importlib.import_module('litellm')"]
)
def test_litellm_elsewhere_is_found(text: str) -> None:
    assert breaches(effects.litellm_has_one_door, text) == 1
    assert breaches(effects.litellm_has_one_door, text, "maestro/llm/client.py") == 0


def test_sql_has_one_dialect() -> None:
    check(effects.sql_has_one_dialect, product())


@pytest.mark.parametrize("text", ["from sqlalchemy.dialects.sqlite import insert", "from sqlalchemy import dialects"])
def test_a_dialect_elsewhere_is_found(text: str) -> None:
    assert breaches(effects.sql_has_one_dialect, text, "maestro/store/llm/budgets.py") == 1
    assert breaches(effects.sql_has_one_dialect, text, "maestro/store/engine/statements.py") == 0


def test_workflows_do_nothing_themselves() -> None:
    check(effects.workflows_do_nothing_themselves, product())


@pytest.mark.parametrize("text", ["import random", "from time import monotonic", "import os.path", "import httpx"])
def test_an_effect_in_a_workflow_is_found(text: str) -> None:
    assert breaches(effects.workflows_do_nothing_themselves, text, "workflows/job.py") == 1
    assert breaches(effects.workflows_do_nothing_themselves, text) == 0


def test_connectors_do_not_know_each_other() -> None:
    check(effects.connectors_do_not_know_each_other, product())


@pytest.mark.parametrize("text", ["from connectors.slack.api import f", "from connectors import slack"])
def test_a_connector_that_knows_another_is_found(text: str) -> None:
    rule = effects.connectors_do_not_know_each_other
    assert breaches(rule, text, "connectors/web/frames.py") == 1
    assert breaches(rule, text, "connectors/slack/receive.py") == 0
    assert breaches(rule, text, "connectors/registry.py") == 0


# The project as a whole


# Names of steps


def test_steps_are_named_by_the_table() -> None:
    check(steps.steps_are_named_by_the_table, product())


def test_a_bare_name_of_a_step_is_found() -> None:
    for text in ("f(step='context')", "step == 'route'", "{'take-up': 1}", "step in ('tags', x)", "f(f'tool-{n}-{m}')"):
        assert breaches(steps.steps_are_named_by_the_table, text) == 1, text
    for text in ("f(role='model')", "name == 'show'", "{'tags': 1}", "f(f'voice-{n}.ogg')", "ROUTE = 'route'"):
        assert breaches(steps.steps_are_named_by_the_table, text) == 0, text


def layers_of(text: str) -> set[str]:
    """Return every module that the layers contract names."""
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layers = [layer for contract in contracts if contract["type"] == "layers" for layer in contract["layers"]]
    return {name.strip(" ()") for layer in layers for name in layer.split("|")}


def without_a_place(sources: Iterable[Source], layers: set[str]) -> set[str]:
    """Return the packages, and the direct children of ``maestro``, that no layer names."""
    parts = [source.path.removesuffix(".py").split("/") for source in sources]
    modules = {part[0] if part[0] != "maestro" else ".".join(part[:2]) for part in parts}
    return modules - layers - {"maestro.__init__"}


def test_bootstrap_only_composes() -> None:
    check(composition.bootstrap_only_composes, product())


@pytest.mark.parametrize(
    "text",
    [
        "class Keeper:\n def run(self): ...",
        "@dataclass\nclass Parts:\n a: int\n def b(self): ...",
        "def f():\n while True:\n  look()",
        "async def f():\n async for one in events():\n  look(one)",
        "def f():\n with store.begin() as tx:\n  tx.jobs.wake()",
        "def f():\n with self.store.view():\n  ...",
    ],
)
def test_behaviour_in_bootstrap_is_found(text: str) -> None:
    rule = composition.bootstrap_only_composes
    assert breaches(rule, text, "maestro/bootstrap/example.py") == 1
    assert breaches(rule, text, "maestro/installation/example.py") == 0
    assert breaches(rule, "class Up(Process):\n def work(self): ...", "maestro/bootstrap/up.py") == 0


def test_every_module_has_a_place_in_the_layers() -> None:
    homeless = without_a_place(product(), layers_of((ROOT / "pyproject.toml").read_text()))
    assert not homeless, f"add to the layers in pyproject.toml: {sorted(homeless)}"


def test_a_module_without_a_place_is_found() -> None:
    layers = layers_of(
        '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = ["api | temporal", "(maestro.domain)"]'
    )
    paths = ["api/app.py", "maestro/domain/jobs/job.py", "maestro/stray.py", "maestro/__init__.py", "workflows/job.py"]
    assert without_a_place([Source(path, "") for path in paths], layers) == {"maestro.stray", "workflows"}


def other_owners(owners: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return who else installs something under one of our top-level names, given the owners of every name."""
    others = {name: sorted({*owners.get(name, [])} - {"maestro-agents"}) for name in PACKAGES}
    return {name: found for name, found in others.items() if found}


def test_no_other_distribution_owns_our_names() -> None:
    assert not other_owners({name: list(found) for name, found in packages_distributions().items()})


def test_another_owner_of_our_names_is_found() -> None:
    assert other_owners({"api": ["maestro-agents", "rival"], "httpx": ["httpx"]}) == {"api": ["rival"]}

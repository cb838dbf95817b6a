"""Generates the pages of the reference from the code; ``python -m tests.documentation.reference`` writes them.

Other pages and tests refer to them, and people read them without building the site, so they are files of the
repository; ``tests/documentation/test_reference.py`` compares them with the code.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from sqlalchemy import Column, Table
from sqlmodel import SQLModel

from api.guards import VIEWER
from maestro.cli.main import COMMANDS, load_command
from maestro.metrics.instruments import JobMetrics, MessageMetrics, ModelCallMetrics
from maestro.metrics.process import ProcessMetrics
from tests.documentation.actions_page import actions_page
from tests.documentation.settings_page import settings_page
from tests.support.api_client import app_of
from tests.support.job_rows import JobRows

ROOT = Path(__file__).parents[2]
REGENERATE = "make reference"
NOTE = f"<!-- Written from the code; do not edit. To write it again: {REGENERATE} -->"

COMMON_OPTIONS = ("--config", "--data-dir", "--debug", "--json", "--help")
"""The options that every command takes; the page explains them once."""

COMMANDS_HEAD = f"""\
# Commands

{NOTE}

`maestro COMMAND --help` explains a command in the terminal, and `maestro --install-completion` lets the shell complete
commands, options and names. Every command takes these options, before its name or after it:

| option | meaning |
|---|---|
| `--config FILE` | the configuration file; by default `maestro.json` in the current folder |
| `--data-dir DIR` | the folder for the data of Maestro |
| `--debug` | shows tracebacks, and logs in detail |
| `--json` | writes JSON for programs; not for commands that run until they are stopped |

Exit codes: 0 success, 1 failure with one line that says why, 2 wrong usage. Most commands work on the store, beside a
running Maestro or without one.
"""

REST_HEAD = f"""\
# REST API

{NOTE}

The API is on the port of the dashboard (`webui.port`, 8080). A running Maestro shows the same operations with all their
fields and models at `/docs`, and as OpenAPI 3.1 at `/api/openapi.json`. An error is JSON with a status and a sentence.
Operations under *password* take HTTP Basic (`maestro` or `viewer` and the password) or the cookie of a login; without
`webui.password` they take everything from this machine. *Viewer* says whether the read-only user may call it.
"""

TABLES_HEAD = f"""\
# Tables

{NOTE}

The tables of the store, on SQLite and PostgreSQL alike. Read them as you like; change them through commands and the API
only, because triggers and caches follow every row. A release may add tables and columns without notice
([invariants](../invariants.md#expand-then-contract)). Times are UTC. The words are those of the
[glossary](../glossary.md).
"""

METRICS_HEAD = f"""\
# Metrics

{NOTE}

What Prometheus reads from `/metrics` of each process; [monitor Maestro](../howto/monitor.md) has the scrape
configuration and the alerts. Metrics *of the store* are read from the store at the scrape, so all processes report the
same value: combine them with `max`, never with `sum`. Their counters begin at 0 when a process starts, count what it
then finds in the store, and never decrease. Metrics *of the process* are its own. `process_*` and `python_*` metrics
are there too. No label holds an id, a channel or a text of a user, and a label takes at most 100 values; further ones
are `other`.
"""

FROM_STORE = (lambda registry: JobMetrics(registry, lambda: 0), ModelCallMetrics, MessageMetrics)
"""The groups of metrics that a scrape reads from the store."""

MANY = 5
"""How many options several commands of a group must share to be listed once."""

VALUES = {"int": "N", "int range": "N", "float": "N", "float range": "N"}
"""What stands for the value of an option of a type, if not ``TEXT``."""

SQL_WORDS = {"VARCHAR": "text", "TEXT": "text", "DATETIME": "time", "BLOB": "bytes", "FLOAT": "number"}


def cell(text: str) -> str:
    """Return a text as the cell of a table: on one line, without the marks of reST and references to pages."""
    text = re.sub(r"\s*\((?:see )?docs/[^)]*\)|\s*\[[\d.]+<=?x[^\]]*\]", "", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "/").replace("<", "&lt;").replace("\b", "").strip()


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


# Commands


Option = tuple[str, str]
"""An option or an argument as it is typed, and its meaning."""


def commands_page() -> str:
    """Describe every command with its arguments and options."""
    return COMMANDS_HEAD + "".join(map(_command_section, COMMANDS))


def _command_section(name: str) -> str:
    command = load_command(name)
    leaves = {words: (leaf, _options(words, leaf)) for words, leaf in _leaves(f"maestro {name}", command)}
    about = f"\n## maestro {name}\n\n{_first_paragraph(command.help)}\n"
    if not getattr(command, "commands", {}):
        return about + "".join(_option_table(options) for _, options in leaves.values())
    common = _common([options for _, options in leaves.values()])
    for words, (leaf, options) in leaves.items():
        own = [option for option in options if option not in common]
        takes = f" Takes the [common options](#common-options-of-maestro-{name})." if len(own) < len(options) else ""
        about += f"\n### {words}\n\n{_first_paragraph(leaf.help)}{takes}\n{_option_table(own)}"
    return about + (f"\n### Common options of maestro {name}\n{_option_table(common)}" if common else "")


def _option_table(options: Sequence[Option]) -> str:
    rows = [(f"`{typed}`", meaning) for typed, meaning in options]
    return "\n" + table_of(("option", "meaning"), rows) if rows else ""


def _common(commands: Sequence[Sequence[Option]]) -> Sequence[Option]:
    """Return the options that the same commands have in common, if they are many."""
    together = defaultdict[Sequence[int], list[Option]](list)
    for option in dict.fromkeys(chain.from_iterable(commands)):
        together[tuple(number for number, own in enumerate(commands) if option in own)].append(option)
    many = [options for users, options in together.items() if len(users) > 1 and len(options) >= MANY]
    return max(many, key=len, default=())


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield words, command
    for name, below in inner.items():
        yield from _leaves(f"{words} {name}", below)


def _first_paragraph(text: str | None) -> str:
    return cell((text or "").partition("\n\n")[0])


def _options(words: str, command: Any) -> Sequence[Option]:
    context = command.make_context(words, [], resilient_parsing=True)
    own = (each for each in command.params if not set(each.opts) & set(COMMON_OPTIONS))
    return [_option(*record) for each in own if (record := each.get_help_record(context)) is not None]


def _option(typed: str, meaning: str) -> Option:
    """Return an option of the help without what only a parser needs: types, and the bounds of numbers."""
    words, _, kind = typed.rstrip(">]").partition(" <")
    kind = kind.removeprefix("list[")
    choices = f" One of {', '.join(f'`{choice}`' for choice in kind.split('|'))}." if "|" in kind else ""
    if kind and words.startswith("-"):
        words += " " + ("NAME" if choices else VALUES.get(kind, "TEXT"))
    meaning = re.sub(r"\s*\[required\]", "", meaning)
    meaning = re.sub(r"\s*\[default: (.*?)(?:; [^]]*)?\]", r" Default: \1.", meaning)
    return words, cell(meaning + choices)


# REST


def rest_page() -> str:
    """Describe every operation of the OpenAPI document."""
    groups: dict[str, list[Sequence[str]]] = {}
    for path, methods in _openapi()["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation_row(method, path, operation))
    head = ("operation", "meaning", "parameters", "guard", "viewer")
    return REST_HEAD + "".join(f"\n## {group}\n\n{table_of(head, rows)}" for group, rows in groups.items())


@cache
def _openapi() -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        rows = JobRows.at(Path(folder))
        document: Mapping[str, Any] = app_of(rows).openapi()
        rows.store.close()
    return document


def _operation_row(method: str, path: str, operation: Mapping[str, Any]) -> Sequence[str]:
    names = [f"`{each['name']}`" for each in operation.get("parameters", ()) if each["in"] == "query"]
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    models = [body["schema"]["$ref"].rpartition("/")[2] for body in bodies if "$ref" in body.get("schema", {})]
    guards = sorted({scheme for schemes in operation.get("security", ()) for scheme in schemes})
    takes = ", ".join([*names, *(f"body {model}" for model in models)])
    may = "yes" if method == "get" or operation.get(VIEWER) else "no"
    meaning = cell(operation.get("description") or operation["summary"])
    return (f"`{method.upper()} {path}`", meaning, takes, " or ".join(guards) or "none", may)


# Tables


def tables_page() -> str:
    """Describe every table with its columns."""
    groups: dict[str, list[Sequence[str]]] = {}
    for mapper in sorted(SQLModel._sa_registry.mappers, key=lambda each: str(each.local_table)):
        group = mapper.class_.__module__.split(".")[2].replace("_", " ")
        groups.setdefault(group, []).append(_table_row(mapper.class_.__doc__ or "", mapper.local_table))
    head = ("table", "a row", "columns")
    return TABLES_HEAD + "".join(f"\n## {name}\n\n{table_of(head, rows)}" for name, rows in sorted(groups.items()))


def _table_row(about: str, table: Any) -> Sequence[str]:
    assert isinstance(table, Table)
    return (f"`{table.name}`", cell(about), ", ".join(map(_column, table.columns)))


def _column(column: "Column[Any]") -> str:
    kind = re.sub(r"\(.*\)", "", str(column.type))
    target = "".join(f", a row of `{key.column.table.name}`" for key in column.foreign_keys)
    marks = ", key" * column.primary_key + target
    return f"`{column.name}` ({SQL_WORDS.get(kind, kind.lower())}{marks})"


# Metrics


def metrics_page() -> str:
    """Describe every metric of Maestro's own."""
    stored = CollectorRegistry()
    for group in FROM_STORE:
        group(stored)
    names = {metric._name for metric in _metrics_in(stored)}
    with tempfile.TemporaryDirectory() as folder:
        rows = JobRows.at(Path(folder))
        metrics = _metrics_in(ProcessMetrics(rows.store, "up", max_pending=lambda: 0)._registry)
        rows.store.close()
    head = ("metric", "type", "labels", "of the", "meaning")
    return METRICS_HEAD + "\n" + table_of(head, [_metric_row(metric, names) for metric in metrics])


def _metrics_in(registry: CollectorRegistry) -> Sequence[MetricWrapperBase]:
    # The text of a scrape leaves out the labels of a metric without a sample.
    return [each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase)]


def _metric_row(metric: MetricWrapperBase, stored: set[str]) -> Sequence[str]:
    kind = "gauge" if metric._type == "info" else str(metric._type)
    name = metric._name + {"counter": "_total", "info": "_info"}.get(str(metric._type), "")
    labels = " ".join(f"`{label}`" for label in metric._labelnames)
    return (f"`{name}`", kind, labels, "store" if metric._name in stored else "process", cell(metric._documentation))


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/configuration.md": lambda: settings_page(NOTE),
    "docs/reference/commands.md": commands_page,
    "docs/reference/rest.md": rest_page,
    "docs/reference/tables.md": tables_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/temporal-cloud.md": lambda: actions_page(NOTE),
}
"""The generated pages and their functions."""


def main() -> None:
    """Write all pages."""
    for path, write in PAGES.items():
        (ROOT / path).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""SQL statements that are compiled once and run by the SQLite driver, at a fifth of the cost of SQLAlchemy.

Only this module and ``repository`` depend on the kind of database: the dialect, upserts, a list as one parameter, the
larger of two values. Other repositories import these, so support for a second database would change two modules only.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Dialect, and_, bindparam, func, inspect, or_, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Mapped
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import ReturnsRows
from sqlmodel import SQLModel

__all__ = [
    "BATCH",
    "CHANNEL_KEY",
    "NO_LIMIT",
    "PreparedStatement",
    "equals_parameters",
    "insert",
    "is_in_list",
    "is_one_of",
    "larger_of_two",
    "row_insert",
    "row_select",
    "row_update",
    "split_into_batches",
    "write_json_list",
]

Convert = Callable[[Any], Any]
Row = TypeVar("Row", bound=SQLModel)
Key = TypeVar("Key")

CHANNEL_KEY = ("platform", "account", "channel")
"""The columns that identify a channel."""

BATCH = 500
"""The most values in one batch, because SQLite limits the parameters of a statement."""

NO_LIMIT = -1
"""The value for a ``limit`` parameter that means no limit."""


@dataclass(frozen=True, slots=True)
class _CompiledStatement:
    """The SQL of a statement, the statement's parameters by index, and its columns.

    ``fixed`` has a default value for each parameter. ``open`` are the parameters that each run must give. A convert
    function exists only where a type differs between Python and SQLite.
    """

    sql: str
    fixed: Sequence[Any]
    open: Sequence[tuple[int, str, Convert | None]]
    names: Sequence[str]
    results: Sequence[tuple[int, Convert]]


class PreparedStatement:
    """A statement that is compiled at its first run, with ``bindparam``s for variable values.

    Repositories define prepared statements as class constants. A list cannot be a parameter, because its length would
    change the SQL. Use ``is_one_of`` for constants, and ``is_in_list`` with ``write_json_list`` for other values.
    """

    def __init__(self, statement: ReturnsRows) -> None:
        self._statement = statement

    @cached_property
    def changed_table(self) -> str:
        """The name of the table that the statement changes; empty if it only reads."""
        changed = getattr(self._statement, "table", None)
        return changed.name if changed is not None else ""

    def run_statement(self, driver: sqlite3.Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Run the statement; raises ``KeyError`` for a missing parameter, and the errors of the driver."""
        ready = self._compiled
        arguments = list(ready.fixed)
        for index, name, convert in ready.open:
            arguments[index] = values[name] if convert is None else convert(values[name])
        return driver.execute(ready.sql, arguments)

    def convert_rows(self, cells: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Convert rows of the SQLite driver to rows with Python's types."""
        results = self._compiled.results
        if not results:
            return list(cells)
        converted = []
        for cell in cells:
            row = list(cell)
            for index, convert in results:
                row[index] = convert(row[index])
            converted.append(tuple(row))
        return converted

    def convert_row(self, model: type[Row], row: Sequence[Any], first: int = 0) -> Row:
        """Convert a row to an instance of its table's class; see ``Repository._read_model``.

        The table's columns begin at index ``first`` of the row, and other columns may follow.
        """
        value: Row = model.__new__(model)
        value.__dict__.update(zip(self._compiled.names[first:], row, strict=False))
        return value

    @cached_property
    def _compiled(self) -> _CompiledStatement:
        dialect = sqlite_dialect()
        compiled = self._statement.compile(dialect=dialect)
        if not isinstance(compiled, SQLCompiler):
            raise TypeError("only a statement can be prepared")
        if any(bind.expanding for bind in compiled.binds.values()):
            raise TypeError("a list cannot be a parameter of a prepared statement; use is_one_of or is_in_list")
        binds = [compiled.binds[name] for name in compiled.positiontup or ()]
        converts = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
        pairs = list(zip(binds, converts, strict=True))
        columns = list(self._statement.exported_columns)
        results = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
        return _CompiledStatement(
            sql=compiled.string,
            fixed=[
                None if bind.required else convert(bind.effective_value) if convert else bind.effective_value
                for bind, convert in pairs
            ],
            open=[(index, bind.key, convert) for index, (bind, convert) in enumerate(pairs) if bind.required],
            names=[column.key for column in columns],
            results=[(index, convert) for index, convert in enumerate(results) if convert is not None],
        )


@cache
def sqlite_dialect() -> Dialect:
    return sqlite.dialect(paramstyle="qmark")


def is_one_of(column: ColumnElement[Any] | Mapped[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the SQL condition that a column equals one of these constants."""
    return or_(*(column == value for value in values))


def equals_parameters(table: type[SQLModel], *names: str) -> ColumnElement[bool]:
    """Return the SQL condition that each named column equals the parameter of the same name."""
    return and_(*(inspect(table).columns[name] == bindparam(name) for name in names))


def is_in_list(column: ColumnElement[Any] | Mapped[Any], parameter: str) -> ColumnElement[bool]:
    """Return the SQL condition that a column equals a value of a list parameter (see ``write_json_list``)."""
    return column.in_(select(func.json_each(bindparam(parameter)).table_valued("value").c.value))


def write_json_list(values: Iterable[object]) -> str:
    """Return values as a JSON array, the form of a list parameter of ``is_in_list``."""
    return json.dumps(list(values))


def split_into_batches(values: Iterable[Key]) -> Iterator[tuple[Key, ...]]:
    """Yield the values in batches of at most ``BATCH``."""
    remaining = iter(values)
    while batch := tuple(islice(remaining, BATCH)):
        yield batch


def larger_of_two(first: Any, second: Any) -> ColumnElement[Any]:
    """Return the SQL expression for the larger of two values."""
    return func.max(first, second)


@cache
def row_insert(table: type[SQLModel]) -> PreparedStatement:
    """Return the statement that adds a row to a table; the parameters are named like the columns."""
    return PreparedStatement(insert(table))


@cache
def row_select(table: type[SQLModel], *names: str) -> PreparedStatement:
    """Return the statement that reads rows by the values of columns; the parameters are named like the columns."""
    return PreparedStatement(select(table).where(equals_parameters(table, *names)))


@cache
def row_update(table: type[SQLModel], *names: str) -> PreparedStatement:
    """Return the statement that updates columns of a row; its parameters are ``its_id`` and ``its_<column>``."""
    values: dict[str, Any] = {name: bindparam(f"its_{name}") for name in names}
    return PreparedStatement(update(table).where(inspect(table).c.id == bindparam("its_id")).values(values))

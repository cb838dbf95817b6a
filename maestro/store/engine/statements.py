"""SQL statements that are compiled once and run by the SQLite driver, at a fifth of the cost of SQLAlchemy.

Statements are written for SQLite; ``maestro.store.engine.postgresql`` translates them. Where SQLAlchemy has no common
expression, this module has one: upserts, a list as one parameter, the id of a new row.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import islice
from typing import Any, Protocol, Self, TypeVar, cast

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Dialect,
    Integer,
    String,
    and_,
    bindparam,
    func,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapped
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
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


class Driver(Protocol):
    """The connection of a database driver."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any:
        """Run a statement and return its cursor."""


class DeferringDriver(Driver, Protocol):
    """A connection that can send a statement later, together with the next one."""

    def defer(self, sql: Any, parameters: Any = ..., /) -> Any:
        """Send a statement with the next one that is waited for."""

    def send_deferred(self) -> None:
        """Send the deferred statements now, and wait for them."""

    def forget_deferred(self) -> None:
        """Drop the deferred statements."""


Row = TypeVar("Row", bound=SQLModel)
Key = TypeVar("Key")

CHANNEL_KEY = ("platform", "account", "channel")
"""The columns that identify a channel."""

BATCH = 500
"""The most values in one batch, because SQLite limits the parameters of a statement."""

FLOAT_OID = 701
"""PostgreSQL's number of the type of all numbers that are no integers."""

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
    results: Sequence[tuple[int, Convert]]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the parameters for the driver, in the order of the SQL."""
        arguments = list(self.fixed)
        for index, name, convert in self.open:
            arguments[index] = values[name] if convert is None else convert(values[name])
        return arguments


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

    def run_statement(self, driver: Driver, values: Mapping[str, Any]) -> Any:
        """Run the statement and return the driver's cursor.

        Raises ``KeyError`` for a missing parameter, and the errors of the driver.
        """
        ready = self._compiled(driver)
        return driver.execute(ready.sql, ready.arguments(values))

    def run_without_result(self, driver: Driver, values: Mapping[str, Any]) -> None:
        """Run the statement, of which no result is needed; PostgreSQL gets it together with the next statement."""
        ready = self._compiled(driver)
        if isinstance(driver, sqlite3.Connection):
            driver.execute(ready.sql, ready.arguments(values))
        else:
            cast("DeferringDriver", driver).defer(ready.sql, ready.arguments(values))

    def read_rows(self, driver: Driver, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run the statement and return its rows with Python's types."""
        cells, results = self.run_statement(driver, values), self._compiled(driver).results
        return [_convert_cells(cell, results) for cell in cells] if results else list(cells)

    def read_first_row(self, driver: Driver, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Run the statement and return its first row with Python's types, or None."""
        cell = self.run_statement(driver, values).fetchone()
        return None if cell is None else _convert_cells(cell, self._compiled(driver).results)

    def insert_row(self, driver: Driver, values: Mapping[str, Any]) -> int:
        """Run the statement, which adds a row; return the id of the row, 0 without one."""
        cursor = self.run_statement(driver, values)
        if isinstance(driver, sqlite3.Connection):
            return cursor.lastrowid or 0
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row is not None else 0

    def convert_row(self, model: type[Row], row: Sequence[Any], first: int = 0) -> Row:
        """Convert a row to a value of its table's class; see ``Repository._read_model``.

        The table's columns begin at index ``first`` of the row, and other columns may follow.
        """
        value: Row = model.__new__(model)
        value.__dict__.update(zip(self._names[first:], row, strict=False))
        return value

    @cached_property
    def _names(self) -> Sequence[str]:
        return [column.key for column in self._statement.exported_columns]

    def _compiled(self, driver: Driver) -> "_CompiledStatement":
        return self._for_sqlite if isinstance(driver, sqlite3.Connection) else self._for_postgresql

    @cached_property
    def _for_sqlite(self) -> "_CompiledStatement":
        return _compile(self._statement, sqlite.dialect(paramstyle="qmark"))

    @cached_property
    def _for_postgresql(self) -> "_CompiledStatement":
        module = import_module("maestro.store.engine.postgresql")
        return _compile(module.with_id(self._statement), module.Dialect(paramstyle="format"))


def _compile(statement: ReturnsRows, dialect: Dialect) -> _CompiledStatement:
    compiled = statement.compile(dialect=dialect)
    if not isinstance(compiled, SQLCompiler):
        raise TypeError("only a statement can be prepared")
    if any(bind.expanding for bind in compiled.binds.values()):
        raise TypeError("a list cannot be a parameter of a prepared statement; use is_one_of or is_in_list")
    binds = [compiled.binds[name] for name in compiled.positiontup or ()]
    converts = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
    pairs = list(zip(binds, converts, strict=True))
    types = [column.type for column in statement.exported_columns]
    results = [type_.dialect_impl(dialect).result_processor(dialect, FLOAT_OID) for type_ in types]
    return _CompiledStatement(
        sql=compiled.string,
        fixed=[
            None if bind.required else convert(bind.effective_value) if convert else bind.effective_value
            for bind, convert in pairs
        ],
        open=[(index, bind.key, convert) for index, (bind, convert) in enumerate(pairs) if bind.required],
        results=[(index, convert) for index, convert in enumerate(results) if convert is not None],
    )


def _convert_cells(cell: tuple[Any, ...], results: Sequence[tuple[int, Convert]]) -> tuple[Any, ...]:
    if not results:
        return cell
    row = list(cell)
    for index, convert in results:
        row[index] = convert(row[index])
    return tuple(row)


class InList(FunctionElement[bool]):
    """The condition that a column equals one of the values in a JSON array."""

    type = Boolean()
    name = "is_in_list"
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the condition as it is: ``(...) = 1``, SQLAlchemy's form for SQLite, would not use an index."""
        return self


@compiles(InList)
def _in_list_of_sqlite(element: InList, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({values})))"  # noqa: S608 - both are SQL of the compiler


@compiles(InList, "postgresql")
def _in_list_of_postgresql(element: InList, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    kind = "BIGINT" if isinstance(element.clauses.clauses[0].type, Integer) else "TEXT"
    return f"{column} = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST({values} AS JSONB)))::{kind}[])"


def is_one_of(column: ColumnElement[Any] | Mapped[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the SQL condition that a column equals one of these constants."""
    return or_(*(column == value for value in values))


def equals_parameters(table: type[SQLModel], *names: str) -> ColumnElement[bool]:
    """Return the SQL condition that each named column equals the parameter of the same name."""
    return and_(*(inspect(table).columns[name] == bindparam(name) for name in names))


def is_in_list(column: ColumnElement[Any] | Mapped[Any], parameter: str) -> ColumnElement[bool]:
    """Return the SQL condition that a column equals a value of a list parameter (see ``write_json_list``)."""
    return InList(column, bindparam(parameter, type_=String()))


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

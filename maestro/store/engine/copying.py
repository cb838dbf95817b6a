"""Reads and writes whole tables in a form that both databases share, for backups (ADR 46)."""

import base64
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Boolean, Connection, Date, Float, Inspector, Integer, LargeBinary, inspect
from sqlalchemy.types import TypeEngine

from maestro.domain.columns import RowVersions

ROWS = 200
"""The rows that are read at a time; a row of ``prompt_parts`` may have some hundred kilobytes."""

REBUILT = frozenset({"alembic_version", "editions"})
"""Tables that a backup does not contain: the schema's revision is set by migrations, and row versions must be new."""

_VIRTUAL = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
_COUNTED = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
_TRIGGERED = """
SELECT DISTINCT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace"""
_SEQUENCES = """
SELECT t.relname, a.attname, s.relname FROM pg_class s
JOIN pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
JOIN pg_class t ON t.oid = d.refobjid JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
WHERE s.relkind = 'S' AND s.relnamespace = current_schema()::regnamespace AND d.deptype IN ('a', 'i') ORDER BY 1"""
_REMOVED = {"conversations": "removed_conversations"}
"""The tables that have the ids of rows that were removed, whose ids are not given again."""
_OTHER_PROCESSES = """
SELECT coalesce(host(client_addr), 'this host'), count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'maestro %' AND pid <> pg_backend_pid()
GROUP BY 1 ORDER BY 1"""
_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = current_schema()::regnamespace
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"""


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table and its columns, each with the kind of its values: text, integer, number, boolean, date or bytes."""

    name: str
    columns: Mapping[str, str]


class TableCopier:
    """Copies the rows of all tables out of one database, and into another one, in the transaction of a connection.

    A row is a list of JSON values: bytes are base64 text, dates and times are ISO 8601 text.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._driver: Any = connection.connection.dbapi_connection
        self._sqlite = isinstance(self._driver, sqlite3.Connection)
        if not self._sqlite:
            # Between two statements a large file may be copied, and the server ends transactions that wait for long.
            driver: Any = self._driver
            driver.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def list_tables(self) -> Sequence[TableForm]:
        """Return the tables that a backup contains, each after the tables that its rows refer to."""
        inspector = self._inspector
        virtual = [name for (name,) in self._driver.execute(_VIRTUAL)] if self._sqlite else []
        names = [name for name, _ in inspector.get_sorted_table_and_fkc_names() if name is not None]
        return [
            TableForm(name, {column["name"]: _kind_of(column["type"]) for column in inspector.get_columns(name)})
            for name in names
            # SQLite's full-text index has tables of its own, which are built again from the facts.
            if name not in REBUILT and not any(name == index or name.startswith(f"{index}_") for index in virtual)
        ]

    def has_tables(self) -> bool:
        """Return whether the database has any table."""
        return bool(self._inspector.get_table_names())

    def read_rows(self, table: TableForm) -> Iterator[list[Any]]:
        """Yield all rows of a table, without holding more than a few in memory."""
        reading = f"SELECT {_names(table.columns)} FROM {_name(table.name)}"  # noqa: S608 - names of tables
        converts = [_WRITE.get(kind) for kind in table.columns.values()]
        for batch in self.read_batches(reading):
            for row in batch:
                yield [
                    value if convert is None or value is None else convert(value)
                    for value, convert in zip(row, converts, strict=True)
                ]

    def read_digests(self, columns: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Yield each text that one of these columns contains, once and in order; columns are (table, column) pairs."""
        parts = (f"SELECT {_name(column)} FROM {_name(table)}" for table, column in columns)  # noqa: S608 - see above
        for batch in self.read_batches(f"{' UNION '.join(parts)} ORDER BY 1"):
            yield from (text for (text,) in batch if text)

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self._driver.execute(f"SELECT count(*) FROM {_name(table)}").fetchone()[0])  # noqa: S608 - see above

    def read_counters(self) -> Mapping[str, int]:
        """Return the highest id that each table with a counter of its own has ever assigned."""
        if self._sqlite:
            return dict(self._driver.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return {table: highest for table, _, _, highest in self._read_sequences() if highest}

    def begin_loading(self, tables: Sequence[TableForm]) -> None:
        """Empty the tables and disable their triggers, whose tables are in the backup as well."""
        for table in reversed(tables):
            self._driver.execute(f"DELETE FROM {_name(table.name)}")  # noqa: S608 - see above
        if self._sqlite:
            for name, _ in self._triggers:
                self._driver.execute(f"DROP TRIGGER {_name(name)}")
            return
        for (table,) in self._driver.execute(_TRIGGERED).fetchall():
            self._driver.execute(f"ALTER TABLE {_name(table)} DISABLE TRIGGER USER")

    def add_rows(self, table: TableForm, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table."""
        converts = [_READ.get(kind) for kind in table.columns.values()]
        values = (
            [
                value if convert is None or value is None else convert(value)
                for value, convert in zip(row, converts, strict=True)
            ]
            for row in rows
        )
        into = f"{_name(table.name)} ({_names(table.columns)})"
        if self._sqlite:
            marks = ", ".join("?" * len(table.columns))
            self._driver.executemany(f"INSERT INTO {into} VALUES ({marks})", values)  # noqa: S608 - see above
            return
        with self._driver.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)

    def end_loading(self, counters: Mapping[str, int]) -> None:
        """Enable the triggers, build the full-text index again, and let new rows get ids that no row ever had."""
        self.raise_counters(counters)
        if self._sqlite:
            for (index,) in self._driver.execute(_VIRTUAL).fetchall():
                self._driver.execute(f"INSERT INTO {_name(index)} ({_name(index)}) VALUES ('rebuild')")  # noqa: S608
            for _, trigger in self._triggers:
                self._driver.execute(trigger)
            return
        for (table,) in self._driver.execute(_TRIGGERED).fetchall():
            self._driver.execute(f"ALTER TABLE {_name(table)} ENABLE TRIGGER USER")

    def raise_counters(self, floors: Mapping[str, int]) -> None:
        """Let new rows get ids above those of all rows, and above the floor of their table."""
        if self._sqlite:
            for (table,) in self._driver.execute(_COUNTED).fetchall():
                self._begin_sqlite_ids_after(table, floors.get(table, 0))
            return
        for table, column, sequence, counter in self._read_sequences():
            floor = max(counter, self._read_highest(table, column), floors.get(table, 0))
            if floor:
                self._driver.execute(f"SELECT setval('{sequence}', {floor})")

    def find_late_counters(self) -> Iterator[tuple[str, int, int]]:
        """Yield each table whose counter is lower than the highest id, with both numbers."""
        if self._sqlite:
            return  # SQLite compares its counters with the rows itself
        for table, column, _, counter in self._read_sequences():
            highest = self._read_highest(table, column)
            if highest > counter:
                yield table, highest, counter

    def renew_row_versions(self) -> None:
        """Give all kinds of rows versions that no process has seen."""
        self._driver.execute("DELETE FROM editions")
        for name in RowVersions._fields:
            self._driver.execute(f"INSERT INTO editions VALUES ('{name}', {secrets.randbelow(2**62)})")  # noqa: S608

    def describe_other_processes(self) -> str:
        """Return which processes of Maestro are connected to a PostgreSQL server's database, empty for none."""
        if self._sqlite:
            return ""
        self._driver.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction always sees the same processes
        found = self._driver.execute(_OTHER_PROCESSES).fetchall()
        return ", ".join(f"{count} connection{'s' * (count > 1)} from {host}" for host, count in found)

    def move_tables(self, schema: str) -> None:
        """Move all tables and functions of a PostgreSQL database into a new schema, where nothing uses them."""
        self._driver.execute(f"CREATE SCHEMA {_name(schema)}")
        for table in self._inspector.get_table_names():
            self._driver.execute(f"ALTER TABLE {_name(table)} SET SCHEMA {_name(schema)}")
        for (function,) in self._driver.execute(_FUNCTIONS).fetchall():
            self._driver.execute(f"ALTER FUNCTION {function} SET SCHEMA {_name(schema)}")

    @property
    def _inspector(self) -> Inspector:
        return inspect(self.connection)

    @cached_property
    def _triggers(self) -> Sequence[tuple[str, str]]:
        return list(self._driver.execute(_TRIGGERS).fetchall())

    def read_batches(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows that a query without parameters finds, a few at a time."""
        if self._sqlite:
            cursor = self._driver.execute(sql)
            while batch := cursor.fetchmany(ROWS):
                yield batch
            return
        # The driver would hold all rows of a plain SELECT in memory.
        self._driver.execute(f"DECLARE copied NO SCROLL CURSOR FOR {sql}")
        while batch := self._driver.execute(f"FETCH {ROWS} FROM copied").fetchall():
            yield batch
        self._driver.execute("CLOSE copied")

    def _read_sequences(self) -> Iterator[tuple[str, str, str, int]]:
        """Yield each table with generated numbers, their column and sequence, and the highest number so far."""
        for table, column, sequence in self._driver.execute(_SEQUENCES).fetchall():
            state = f"SELECT last_value - (NOT is_called)::integer FROM {_name(sequence)}"  # noqa: S608 - see above
            yield table, column, sequence, self._driver.execute(state).fetchone()[0]

    def _read_highest(self, table: str, column: str) -> int:
        tables = [table, *filter(None, [_REMOVED.get(table)])]
        reading = "SELECT coalesce(max({0}), 0) FROM {1}"
        return max(
            int(self._driver.execute(reading.format(_name(column), _name(each))).fetchone()[0]) for each in tables
        )

    def _begin_sqlite_ids_after(self, table: str, floor: int) -> None:
        raised = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
        if floor and not self._driver.execute(raised, (floor, table)).rowcount:
            self._driver.execute("INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)", (floor, table))


_KINDS: Sequence[tuple[type[TypeEngine[Any]], str]] = (
    (Boolean, "boolean"),
    (LargeBinary, "bytes"),
    (Date, "date"),
    (Integer, "integer"),
    (Float, "number"),
)
_WRITE: Mapping[str, Any] = {
    "boolean": bool,
    "bytes": lambda value: base64.b64encode(value).decode(),
    "date": str,
    "number": float,
}
"""How a value of each kind becomes a JSON value; other kinds are JSON values already."""
_READ: Mapping[str, Any] = {"bytes": base64.b64decode}
"""How a JSON value becomes a parameter of a statement again."""


def _kind_of(column: TypeEngine[Any]) -> str:
    return next((kind for type_, kind in _KINDS if isinstance(column, type_)), "text")


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))

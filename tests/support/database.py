"""The rows of a store, read and written from outside as operators may, with nothing of the product in between."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.rows import RowMaker

from tests.support import postgresql

PATIENCE = 30.0


class NamedRow(tuple[Any, ...]):
    """A row whose values are found by position and by name, like ``sqlite3.Row``."""

    names: Sequence[str]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)

    def keys(self) -> Sequence[str]:
        return self.names


class WaitConnections(threading.local):
    """The connections that the waits of this thread share, by the file or the database that they lead to."""

    def __init__(self) -> None:
        self.waits = 0
        self.connections: dict[object, Any] = {}


_shared = WaitConnections()


@contextmanager
def asking_again() -> Iterator[None]:
    """Let ``query`` use one connection until the block ends, for a wait that asks the same every moment.

    Opening a connection costs 25 times what such a question does: SQLite reads the schema, PostgreSQL starts a process.
    """
    _shared.waits += 1
    try:
        yield
    finally:
        _shared.waits -= 1
        if not _shared.waits:
            for connection in _shared.connections.values():
                connection.close()
            _shared.connections.clear()


def query(path: Path, sql: str, *values: object) -> list[Any]:
    """Return the rows that a statement finds in the store of this path."""
    if postgresql.wanted():
        return _query_postgresql(path, *_translated(sql, values))
    if _shared.waits and path.exists():
        found = os.stat(path)  # another file at the same path, as after a restore, has a connection of its own
        key = (found.st_dev, found.st_ino)
        if key not in _shared.connections:
            _shared.connections[key] = _sqlite(path)
        rows: list[Any] = _shared.connections[key].execute(sql, values).fetchall()
        return rows
    with closing(_sqlite(path)) as database:
        return database.execute(sql, values).fetchall()


def change(path: Path, *statements: str | tuple[object, ...]) -> None:
    """Run statements in one transaction of the store of this path; a tuple is a statement with its values."""
    pairs = [(one, ()) if isinstance(one, str) else (str(one[0]), one[1:]) for one in statements]
    if postgresql.wanted():
        with _postgresql(path) as connection:
            for sql, values in pairs:
                connection.execute(*_translated(sql, values))
        return
    with closing(sqlite3.connect(path, timeout=PATIENCE)) as database, database:
        for sql, values in pairs:
            database.execute(sql, values)


def table_names(path: Path) -> list[str]:
    """Return the names of all tables."""
    if postgresql.wanted():
        listed = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    else:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return [str(name) for (name,) in query(path, listed)]


def columns(path: Path, table: str) -> list[str]:
    """Return the names of the columns of a table, in their order."""
    if postgresql.wanted():
        listed = "SELECT column_name FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position"
        return [str(name) for (name,) in query(path, listed, table)]
    return [str(row["name"]) for row in query(path, f"PRAGMA table_info({table})")]


def dump(path: Path) -> str:
    """Return all rows of all tables as text."""
    if postgresql.wanted():
        rows = "SELECT coalesce(string_agg(row::text, E'\\n'), '') FROM {} AS row"
        return "\n".join(str(query(path, rows.format(table))[0][0]) for table in table_names(path))
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


def stored_text(path: Path) -> str:
    """Return everything that the store of this path has, with rows that were deleted where they are still in a file."""
    return dump(path) if postgresql.wanted() else path.read_bytes().decode(errors="replace")


def _sqlite(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE)
    database.row_factory = sqlite3.Row
    return database


def _query_postgresql(path: Path, sql: str, values: Sequence[object] | None) -> list[Any]:
    if _shared.waits:
        url = postgresql.database_url(path)
        if url not in _shared.connections:
            _shared.connections[url] = psycopg.connect(url, row_factory=_named_row, autocommit=True)
        try:
            rows: list[Any] = _shared.connections[url].execute(sql, values).fetchall()
        except psycopg.OperationalError:  # some tests cut all connections
            _shared.connections.pop(url).close()
        else:
            return rows
    with _postgresql(path) as connection:
        return connection.execute(sql, values).fetchall()


@contextmanager
def _postgresql(path: Path) -> Iterator[psycopg.Connection[NamedRow]]:
    with psycopg.connect(postgresql.database_url(path), row_factory=_named_row) as connection:
        yield connection


def _named_row(cursor: Cursor[Any]) -> RowMaker[NamedRow]:
    class Row(NamedRow):
        names = tuple(column.name for column in cursor.description or ())

    return Row


def _translated(sql: str, values: Sequence[object]) -> tuple[Any, Sequence[object] | None]:
    return (sql.replace("%", "%%").replace("?", "%s"), values) if values else (sql, None)

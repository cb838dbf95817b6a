"""How the database of a store finds the rows of a statement: what both databases say, in the same terms."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine, event
from sqlmodel import SQLModel

from maestro.store.engine.statements import PreparedStatement
from tests.support import postgresql

_INDEX = re.compile(r"USING (?:COVERING )?INDEX (\w+)")
ANY_VALUE = {"date": "'today'", "bytea": "'\\x'", "tsvector": "''"}
"""Values for types of columns that "0" is none of."""
_SCAN = re.compile(r"SCAN (\w+)(?: USING COVERING INDEX (\w+))?")
_SORT = "TEMP B-TREE FOR ORDER BY"

SMALL = {
    *("accounts", "account_limits", "skills", "pairings"),
    "sessions",  # of the agents' chat
    "replay_batches",
    "editions",  # versions of kinds of rows
    "outbound_lanes",  # a row while an answer is sent
}
"""Tables whose number of rows does not depend on the number of messages."""

Values = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """The plan of a statement; ``lines`` are its steps as the database names them."""

    statement: str
    lines: tuple[str, ...]
    scanned: frozenset[str]
    """The tables whose rows are all read, one after the other or in the order of an index."""
    read_through: frozenset[str]
    """The indexes that are read from the beginning to the end in place of their table."""
    indexes: tuple[str, ...]
    """The indexes that are used."""
    covering: tuple[str, ...]
    """Those of the indexes that have all columns that are read, so that no row of the table is."""
    in_order: tuple[str, ...]
    """Those of the indexes whose rows are not sorted after they were found."""
    sorts: int
    """How many results are sorted after they were found."""

    @property
    def reads_growing_table(self) -> bool:
        """Whether all rows are read of a table that grows with messages, or all of an index."""
        return bool(self.scanned & set(SQLModel.metadata.tables) - SMALL or self.read_through)


def explain(path: Path, statement: str, values: Values | None = None) -> Plan:
    """Return the plan for a statement of the driver, in the store of this path."""
    return (_explain_on_postgresql if postgresql.wanted() else _explain_on_sqlite)(path, statement, values)


def explain_prepared(path: Path, prepared: PreparedStatement, **given: Any) -> Plan:
    """Return the plan for a prepared statement; a parameter that is not given is "1", which is a number too."""
    ready = prepared._for_postgresql if postgresql.wanted() else prepared._for_sqlite
    arguments = list(ready.fixed)
    for place, name, _ in ready.open:
        arguments[place] = given.get(name, "1")
    return explain(path, ready.sql, arguments)


@contextmanager
def queries() -> Iterator[list[tuple[str, Any]]]:
    """Collect the queries that sessions run within the block, with their values."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        if statement.startswith(("SELECT", "WITH")):
            asked.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def plans_of(path: Path, look: Callable[[], object]) -> list[Plan]:
    """Return the plans for the queries that sessions run during a call."""
    with queries() as asked:
        look()
    return [explain(path, statement, values) for statement, values in asked]


def _explain_on_sqlite(path: Path, statement: str, values: Values | None) -> Plan:
    with closing(sqlite3.connect(path)) as database:
        lines = tuple(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values or ()))
    aliases = {alias: table for table, alias in re.findall(r"(?:FROM|JOIN) (\w+) AS (\w+)", statement)}
    scans: list[Any] = [found for line in lines if (found := _SCAN.match(line))]
    used = [(place, found[1]) for place, line in enumerate(lines) if (found := _INDEX.search(line))]
    return Plan(
        statement=statement,
        lines=lines,
        scanned=frozenset(aliases.get(found[1], found[1]) for found in scans if not found[2]),
        read_through=frozenset(found[2] for found in scans if found[2]),
        indexes=tuple(name for _, name in used),
        covering=tuple(name for place, name in used if "COVERING" in lines[place]),
        in_order=tuple(name for place, name in used if _SORT not in "".join(lines[place + 1 : place + 2])),
        sorts=sum(_SORT in line for line in lines),
    )


def _explain_on_postgresql(path: Path, statement: str, values: Values | None) -> Plan:
    """Explain how a large store finds the rows, because a small table is always read from its beginning.

    A whole index that is read counts as its table.
    """
    with psycopg.connect(postgresql.database_url(path), cursor_factory=psycopg.ClientCursor) as connection:
        _pretend_size(connection)
        # Without statistics, each condition finds too many rows, so that joins would read whole tables.
        for way in ("seqscan", "hashjoin", "mergejoin", "memoize"):
            connection.execute(f"SET LOCAL enable_{way} = off")
        (row,) = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
        connection.rollback()
    nodes = list(_nodes(row[0][0]["Plan"]))
    return Plan(
        statement=statement,
        lines=tuple(_told(node) for node in nodes),
        scanned=frozenset(
            node["Relation Name"] for node in nodes if _reads_all(node) and node["Node Type"] != "Index Only Scan"
        ),
        read_through=frozenset(
            node["Index Name"] for node in nodes if _reads_all(node) and node["Node Type"] == "Index Only Scan"
        ),
        indexes=tuple(node["Index Name"] for node in nodes if "Index Name" in node),
        covering=tuple(node["Index Name"] for node in nodes if node["Node Type"] == "Index Only Scan"),
        in_order=tuple(
            below["Index Name"]
            for node in ({"Node Type": "", "Plans": [row[0][0]["Plan"]]}, *nodes)
            for below in node.get("Plans", ())
            if "Index Name" in below and not _sorts(node)
        ),
        sorts=sum(map(_sorts, nodes)),
    )


def _pretend_size(connection: psycopg.Connection[Any]) -> None:
    """Let the planner count a million rows in each table, which needs one; the caller rolls back."""
    connection.execute("SET LOCAL session_replication_role = replica")  # no triggers, no foreign keys
    listed = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
    tables: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in connection.execute(f"{listed} AND is_generated = 'NEVER'").fetchall():
        tables.setdefault(table, []).append((column, kind))
    connection.execute(
        sql.SQL(";").join(
            sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({}) ON CONFLICT DO NOTHING").format(
                sql.Identifier(table),
                sql.SQL(",").join(sql.Identifier(column) for column, _ in columns),
                sql.SQL(",").join(sql.SQL(ANY_VALUE.get(kind, "'0'")) for _, kind in columns),
            )
            for table, columns in tables.items()
        )
    )
    of_tables = "relkind = 'r' AND relnamespace = 'public'::regnamespace"
    connection.execute(f"UPDATE pg_class SET reltuples = 1e6, relpages = 1 WHERE {of_tables}")


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for part in node.get("Plans", ()):
        yield from _nodes(part)


def _reads_all(node: Mapping[str, Any]) -> bool:
    by_index = node["Node Type"] in {"Index Scan", "Index Only Scan"}
    return node["Node Type"] == "Seq Scan" or (by_index and "Index Cond" not in node)


def _sorts(node: Mapping[str, Any]) -> bool:
    """Return whether a node sorts all its rows; an incremental sort puts only those in order that are equal so far."""
    return bool(node["Node Type"] == "Sort")


def _told(node: Mapping[str, Any]) -> str:
    keys = ("Node Type", "Relation Name", "Index Name", "Index Cond", "Filter", "Sort Key")
    return " ".join(f"{node[key]}" for key in keys if key in node)

"""The migrations make the same tables in both databases, and every query of the store fits those of PostgreSQL."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import inspect

from maestro.store.engine import database, schema
from maestro.store.memory.memory import SHADOWS
from tests.support import postgresql as server

pytestmark = pytest.mark.postgresql_only(reason="compares SQLite with PostgreSQL")

NOT_COMPARED = {"ix_memory_facts_words", "ix_memory_facts_surest"}
"""The index of PostgreSQL for full-text search, and one on an expression, of which SQLite tells nothing."""


class Tables:
    """What a database says of its tables."""

    def __init__(self, location: database.Location) -> None:
        with database.administer(location) as connection:
            found: Any = inspect(connection)
            names = set(found.get_table_names()) - set(SHADOWS)
            self.columns = {(name, one["name"]): one for name in names for one in found.get_columns(name)}
            self.keys = {name: found.get_pk_constraint(name)["constrained_columns"] for name in names}
            self.references = {name: _references(found.get_foreign_keys(name)) for name in names}
            self.unique = {name: _unique(found, name) for name in names}
            self.indexes = dict(_indexes(found, names))


def _references(keys: list[Any]) -> set[tuple[object, ...]]:
    return {
        (*one["constrained_columns"], one["referred_table"], *one["referred_columns"], one["options"].get("ondelete"))
        for one in keys
    }


def _unique(found: Any, table: str) -> set[tuple[str, ...]]:
    """Return the columns that are unique together, by a constraint or by an index without a condition."""
    constraints = {tuple(one["column_names"]) for one in found.get_unique_constraints(table)}
    indexes = (one for one in found.get_indexes(table) if one["unique"] and not _condition(one))
    return constraints | {tuple(one["column_names"]) for one in indexes}


def _indexes(found: Any, tables: set[str]) -> Iterator[tuple[str, tuple[object, ...]]]:
    for table in tables:
        for one in found.get_indexes(table):
            if not one.get("duplicates_constraint") and one["name"] not in NOT_COMPARED:
                yield one["name"], (table, *one["column_names"], bool(one["unique"]), _condition(one))


def _condition(index: Any) -> str:
    options = index.get("dialect_options") or {}
    return _plain(options.get("sqlite_where", options.get("postgresql_where", "")))


def _plain(sql: object) -> str:
    """Return an expression without what the databases add: casts, parentheses, other words for the same."""
    text = re.sub(r"::\w+( varying)?(\[\])?| COLLATE \"C\"|[()\"' ]", "", str(sql)).lower()
    text = re.sub(r"=any\(?array\[([^\]]*)\]\)?", r"in\1", text).replace("<>", "!=")
    return {"false": "0", "true": "1"}.get(text) or re.sub(r"\bnot(\w+)$|=false\b", r"\1=0", text)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Tables]:
    """The tables that the migrations make in an empty database: of SQLite, and of PostgreSQL."""
    path = tmp_path_factory.mktemp("schemas") / "maestro.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "administer", database.administer)
        schema.upgrade_database(path)
    return Tables(path), Tables(server.database_url(path))


def test_both_have_the_same_tables_and_columns(both: tuple[Tables, Tables]) -> None:
    in_sqlite, in_postgresql = both
    assert set(in_sqlite.columns) == set(in_postgresql.columns)


def test_the_same_columns_may_be_null_and_have_the_same_defaults(both: tuple[Tables, Tables]) -> None:
    in_sqlite, in_postgresql = both
    for key, column in in_sqlite.columns.items():
        other = in_postgresql.columns[key]
        primary = key[1] in in_sqlite.keys[key[0]]  # SQLite lets a primary key be null in its catalogue
        assert column["nullable"] == other["nullable"] or primary, key
        if not str(other["default"]).startswith("nextval"):
            assert _plain(column["default"]) == _plain(other["default"]), key


def test_the_types_hold_the_same_values(both: tuple[Tables, Tables]) -> None:
    """Integers have 64 bits, and texts and times are texts without a limit."""
    types = {"INTEGER": "BIGINT", "VARCHAR": "TEXT", "DATETIME": "TEXT", "FLOAT": "DOUBLE PRECISION", "BLOB": "BYTEA"}
    in_sqlite, other_columns = both[0], both[1].columns
    for key, column in in_sqlite.columns.items():
        kind, other = (re.sub(r'\(\d+\)| COLLATE "C"', "", str(one["type"])) for one in (column, other_columns[key]))
        assert types.get(kind, kind) == types.get(other, other), key


def test_the_same_rows_are_refused(both: tuple[Tables, Tables]) -> None:
    in_sqlite, in_postgresql = both
    assert in_sqlite.keys == in_postgresql.keys
    assert in_sqlite.references == in_postgresql.references
    assert in_sqlite.unique == in_postgresql.unique


def test_both_have_the_same_indexes(both: tuple[Tables, Tables]) -> None:
    """With the same columns in the same order, and the same condition where only some rows are in it."""
    in_sqlite, in_postgresql = both
    assert in_sqlite.indexes == in_postgresql.indexes
    assert any(condition for *_, condition in in_sqlite.indexes.values())


def test_texts_are_compared_by_code_point(both: tuple[Tables, Tables]) -> None:
    texts = {key: column for key, column in both[1].columns.items() if str(column["type"]).startswith("TEXT")}
    assert texts
    assert {key[0] for key, column in texts.items() if column["type"].collation != "C"} <= {"alembic_version"}

"""What one store of a process has compiled, the next one uses: a test has stores of its own, and asks them the same."""

from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

STATEMENTS = 5_000


def share_compiled_statements() -> None:
    """Let all engines of this process have one cache; SQLAlchemy keys it by the dialect, of which each has its own.

    Compiling is a third of the time of a test that works with a fresh store. Ours are all made with the same options,
    so one dialect says what every other one would.
    """
    cache: LRUCache[Any, Any] = LRUCache(STATEMENTS)
    SQLiteDialect_pysqlite.__eq__ = _same  # type: ignore[method-assign]
    SQLiteDialect_pysqlite.__hash__ = _alike  # type: ignore[method-assign, assignment]

    @event.listens_for(Engine, "engine_connect")
    def share(connection: Any) -> None:
        connection.engine._compiled_cache = cache


def _same(one: object, other: object) -> bool:
    return type(one) is type(other)


def _alike(one: object) -> int:
    return hash(type(one))

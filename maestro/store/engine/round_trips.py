"""A connection to PostgreSQL that waits for the server only where a result is needed."""

from collections.abc import Callable, Sequence
from select import POLLIN, poll
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy.exc import DBAPIError


class DeferredStatement:
    """A statement that is sent together with the next one that is waited for; ``cursor`` has its result after that."""

    __slots__ = ("cursor", "parameters", "sql")

    def __init__(self, sql: Any, parameters: Sequence[Any]) -> None:
        self.sql = sql
        self.parameters = parameters
        self.cursor: psycopg.Cursor[tuple[Any, ...]] | None = None


class StoreCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor whose statement can wait in a pipeline for the statements after it."""

    def queue(self, query: Any, params: Sequence[Any] | None) -> None:
        """Add a statement to the connection's pipeline.

        ``execute`` would wait for the socket and send each statement in a packet of its own, which is a third of the
        driver's CPU time.
        """
        for _ in self._start_query(query):
            raise AssertionError("the beginning of a statement needs no answer in a pipeline")
        for _ in self._maybe_prepare_gen(self._convert_query(query, params)):
            raise AssertionError("a statement is queued in a pipeline without an answer")


class StoreConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose deferred statements are sent, in order, with the next statement in one round trip.

    An error of a deferred statement is raised by the statement that is waited for. ``before`` is called before a
    statement that names one of the ``awaited`` tables: rows of these tables are still to be written.
    """

    def __init__(self, pgconn: Any, row_factory: Any = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self.cursor_factory = StoreCursor
        self._deferred: list[DeferredStatement] = []
        self.awaited: tuple[str, ...] = ()
        self.before: Callable[[], None] | None = None

    def defer(self, sql: Any, parameters: Sequence[Any] = ()) -> DeferredStatement:
        """Send a statement with the next one that is waited for."""
        deferred = DeferredStatement(sql, parameters)
        self._deferred.append(deferred)
        return deferred

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement after the deferred ones, and wait for its result."""
        if self.before is not None and any(name in query for name in self.awaited):
            self.before()
        cursor = super().cursor()
        if not self._deferred:
            return cursor.execute(query, params, **options)
        with self.pipeline():
            self._send()
            cursor.execute(query, params, **options)
        return cursor

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """Return a cursor, whose statements follow the deferred ones."""
        if self.before is not None:
            self.before()
        self.send_deferred()
        return super().cursor(*arguments, **options)

    def send_deferred(self) -> None:
        """Send the deferred statements now, and wait for them."""
        if self._deferred:
            with self.pipeline():
                self._send()

    def holds_only(self, start: DeferredStatement | None) -> bool:
        """Return whether the beginning of a transaction is still deferred, and no statement follows it."""
        return bool(self._deferred) and self._deferred[-1] is start

    def forget_deferred(self) -> None:
        """Drop the deferred statements of a transaction that ends without them."""
        self._deferred.clear()
        self.awaited, self.before = (), None

    def rollback(self) -> None:
        """Roll back; deferred statements are never sent."""
        self.forget_deferred()
        super().rollback()

    @property
    def is_cut(self) -> bool:
        """Whether the server has closed this idle connection, as it does when it ends."""
        readable = poll()
        readable.register(self.pgconn.socket, POLLIN)
        if not readable.poll(0):
            return False
        try:
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def _send(self) -> None:
        deferred, self._deferred = self._deferred, []
        for statement in deferred:
            cursor: Any = super().cursor()
            cursor.queue(statement.sql, statement.parameters or None)
            statement.cursor = cursor


def remove_values(error: Exception) -> BaseException | None:
    """Reduce an error to its first line, because the details quote rows with messages of users; return its cause."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    summary = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    if cause is not None and summary is not None:
        cause.args = (summary,)
        if cause is not error:
            error.args = (f"({type(cause).__name__}) {summary}",)
    return cause

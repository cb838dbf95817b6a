"""PostgreSQL: pooled connections, transactions side by side by their scopes, and commits whose outcome is always known.

See ADR 40 and docs/invariants.md: transactions.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import Any, ClassVar

import psycopg
import structlog
from psycopg import errors
from sqlalchemy import (
    Connection,
    Engine,
    Insert,
    Integer,
    bindparam,
    create_engine,
    event,
    func,
    literal_column,
    make_url,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.operators import custom_op

from maestro.domain.errors import StoreBusy, StoreFull, StoreUnreadable
from maestro.store.engine.database import BUSY_SECONDS, CONTRACT, WriteHistory, name_of
from maestro.store.engine.notifications import ChangeListener
from maestro.store.engine.round_trips import DeferredStatement, StoreConnection, remove_values
from maestro.store.engine.scopes import Scope

CONNECTIONS = 16
"""The most connections of one process, for reading and writing together."""
CONNECT_SECONDS = 5
PAUSED_SECONDS = 10
"""Seconds after which the server ends a transaction of a process that is paused, because its locks stop all others."""
SILENT_SECONDS = 20
"""Seconds after which a server that acknowledges nothing counts as away."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at the store for which no notification asks; a notification can be lost."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
STORE_LOCK = 5_136_001
"""The advisory lock that a transaction with a scope shares, and that one without a scope has alone."""
_ALONE = f"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock({STORE_LOCK})"
_SCOPED = (
    f"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock_shared({STORE_LOCK}), "
    "pg_advisory_xact_lock(hashtextextended(%s, 0))"
)
_VIEW = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

APPLICATION = "maestro contract "
"""How the names of connections begin; the number of the contract follows, by which the process uses the tables."""

FAILURES = (DBAPIError, psycopg.Error, PoolTimeout)
"""The database errors of SQLAlchemy and of the PostgreSQL driver."""
UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
"""The errors of a server that cannot be reached, or that cannot do the work now."""

log = structlog.get_logger(__name__)


class TypeNames(PGTypeCompiler):
    """The names of column types: integers have 64 bits, as in SQLite, and texts have no limit."""

    def visit_INTEGER(self, type_: Any, **kw: Any) -> str:  # noqa: ARG002, N802 - SQLAlchemy's name
        """Return the type of all integers."""
        return "BIGINT"

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: ARG002, N802 - SQLAlchemy's name
        """Return the type of all texts."""
        return "TEXT"


class Sql(PGDialect_psycopg.statement_compiler):  # type: ignore[misc, valid-type]
    """Translates statements with functions and operators of SQLite."""

    def visit_max_func(self, function: Any, **options: Any) -> str:
        """Translate ``max`` of two values; ``max`` of one is the aggregate function of both databases."""
        name = "greatest" if len(function.clauses) > 1 else "max"
        return f"{name}{self.function_argspec(function, **options)}"

    def visit_json_group_array_func(self, function: Any, **options: Any) -> str:
        """Translate the aggregate that makes a JSON array, as text."""
        return f"coalesce(json_agg{self.function_argspec(function, **options)}, '[]')::text"

    def visit_like_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:
        """Translate ``LIKE``, which ignores case in SQLite."""
        return str(self.visit_ilike_op_binary(binary, operator, **options))

    def visit_unary(self, unary: Any, **options: Any) -> str:
        """Leave out the unary plus, which keeps SQLite from using an index."""
        if isinstance(unary.operator, custom_op) and unary.operator.opstring == "+":
            return str(self.process(unary.element, **options))
        return str(super().visit_unary(unary, **options))

    def _on_conflict_target(self, clause: Any, **options: Any) -> str:
        """Translate the target of an upsert, which for SQLite cannot be a constraint."""
        vars(clause).setdefault("constraint_target", None)
        return str(super()._on_conflict_target(clause, **options))

    def limit_clause(self, select: Any, **options: Any) -> str:
        """Translate a limit of -1, which means none in SQLite."""
        text = str(super().limit_clause(select, **options))
        limit = select._limit_clause
        if getattr(limit, "required", False):
            given = self.process(limit, **options)
            text = text.replace(f"LIMIT {given}", f"LIMIT nullif({given}, -1)")
        return text


class Dialect(PGDialect_psycopg):
    """SQLAlchemy's dialect for PostgreSQL, with the translations of ``Sql`` and ``TypeNames``."""

    statement_compiler = Sql
    type_compiler_cls = TypeNames
    supports_statement_cache = True
    # Without a cast to BIGINT, a parameter can also be the position for ``substr``, which is an INTEGER.
    colspecs: ClassVar[Any] = {  # type: ignore[misc]
        **PGDialect_psycopg.colspecs,
        Integer: Integer,
    }


def open_engine(url: str, connections: int = CONNECTIONS, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine whose connections leave the begin of transactions to ``PostgresqlDatabase``."""
    registry.register("maestro.postgresql", __name__, "Dialect")
    engine = create_engine(
        make_url(url).set(drivername="maestro+postgresql"),
        hide_parameters=True,  # Errors must not quote the parameters of statements, which contain messages of users.
        pool_size=connections,
        pool_use_lifo=True,
        max_overflow=0,
        pool_timeout=busy_seconds,
        connect_args={
            "autocommit": True,  # the driver would begin transactions in a round trip of their own
            "connect_timeout": CONNECT_SECONDS,
            "prepare_threshold": 2,
            "application_name": f"{APPLICATION}{CONTRACT}",
            "options": f"-c TimeZone=UTC -c lock_timeout={round(busy_seconds * 1000)}"
            f" -c idle_in_transaction_session_timeout={PAUSED_SECONDS * 1000}",
            **{"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3},
            "tcp_user_timeout": SILENT_SECONDS * 1000,
        },
    )

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> StoreConnection:
        return StoreConnection.connect(*arguments, **options)

    return engine


@contextmanager
def administer(url: str, *, write: bool = False, **_options: bool) -> Iterator[Connection]:
    """Yield a connection in a transaction; raises ``StoreUnreadable`` with the reason and the fix if that fails."""
    database = PostgresqlDatabase(url, connections=1)
    try:
        with database.begin_transaction() if write else database.view() as connection:
            yield connection
    except StoreBusy as error:
        raise StoreUnreadable(
            f"the database {name_of(url)} cannot be opened: {error}. Check store.url, and that the server runs."
        ) from None
    finally:
        database.close()


class PostgresqlDatabase:
    """A database on a PostgreSQL server that several hosts share."""

    has_scopes = True
    reserve = None

    def __init__(self, url: str, busy_seconds: float = BUSY_SECONDS, connections: int = CONNECTIONS) -> None:
        self._name = name_of(url)
        self._url = url
        self._listener: ChangeListener | None = None
        self._busy_seconds = busy_seconds
        self._engine = open_engine(url, connections, busy_seconds)
        self._lock = Lock()
        self._marking: Connection | None = None
        self.history = WriteHistory()

    @contextmanager
    def begin_transaction(self, scope: Scope | None = None) -> Iterator[Connection]:
        """Yield a connection in a transaction that is committed at the end of the block; raises ``StoreBusy``.

        ``BEGIN`` and the locks are sent with the first statement: in ``READ COMMITTED`` each statement sees all commits
        before its own beginning. If the connection is lost during the commit, the server is asked for the outcome until
        it answers, so that a caller that repeats a failed transaction never repeats a committed one.
        """
        try:
            with self._transaction() as connection:
                driver = _driver(connection)
                driver.defer("BEGIN")
                start = driver.defer(_SCOPED, [f"{scope.kind}:{scope.name}"]) if scope else driver.defer(_ALONE)
                yield connection
                self._commit(connection, start)
        except StoreBusy as failure:
            with self._lock:
                failures = self.history.failures + 1
                self.history = replace(self.history, failed_at=time.time(), problem=str(failure), failures=failures)
            raise
        with self._lock:
            self.history = replace(self.history, succeeded_at=time.time())

    @contextmanager
    def view(self, *, settled: bool = False) -> Iterator[Connection]:
        """Yield a connection in a read-only transaction on one snapshot; raises ``StoreBusy``.

        With ``settled``, the snapshot is taken while no writing transaction is open.
        """
        with self._transaction() as connection:
            driver, start = _driver(connection), None
            if settled:
                driver.execute(f"SELECT pg_advisory_lock({STORE_LOCK})")
                driver.execute(f"{_VIEW}; SELECT pg_advisory_unlock({STORE_LOCK})")
            else:
                start = driver.defer(_VIEW)
            yield connection
            if driver.holds_only(start):
                driver.forget_deferred()
            driver.send_deferred()  # Only writes are deferred, and the server refuses them here.

    def read_mark(self) -> str:
        """Return the server's snapshot as text, which changes when a commit becomes visible.

        The position of the write-ahead log would change earlier, so a reader could miss the commit.
        """
        with self._failures(), self._lock:
            if self._marking is None:
                self._marking = self._engine.connect()
            try:
                return str(_driver(self._marking).execute("SELECT pg_current_snapshot()::text").fetchone()[0])
            except psycopg.Error:
                self._marking.invalidate()
                self._marking.close()
                self._marking = None
                raise

    def listen(self, heard: Callable[[], None]) -> float:
        """Call ``heard`` for each notification of the server, and return how often to look for lost ones."""
        if self._listener is None:
            self._listener = ChangeListener(self._url, heard)
        return LOOK_SECONDS

    def test_write(self) -> None:
        """Test writing: a transaction number is assigned and committed."""
        with self.begin_transaction() as connection:
            _driver(connection).send_deferred()

    def return_space(self) -> bool:
        """Return false: autovacuum frees the space of deleted rows."""
        return False

    def close(self) -> None:
        """Close all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with self._lock:
            if self._marking is not None:
                self._marking.close()
                self._marking = None
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield a connection, and roll back if a transaction is still open at the end of the block."""
        with self._failures(), self._connected() as connection, connection.begin():
            try:
                yield connection
            except FAILURES:
                if _is_lost(connection):
                    connection.invalidate()
                raise

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield a connection of the pool, replacing connections that the server closed."""
        connection = self._engine.connect()
        try:
            if _driver(connection).is_cut:
                connection.invalidate()
                connection.close()
                self._engine.dispose()  # after a restart of the server all connections of the pool are lost
                connection = self._engine.connect()
            yield connection
        finally:
            connection.close()

    def _commit(self, connection: Connection, start: DeferredStatement) -> None:
        """Commit; the number of the transaction is known before, so that its outcome can be asked for."""
        driver = _driver(connection)
        if driver.holds_only(start):
            driver.forget_deferred()  # a transaction without a statement needs no server
            return
        if start.cursor is None:
            driver.send_deferred()
        assert start.cursor is not None
        ((transaction_id, *_),) = start.cursor.fetchall()
        try:
            ended = driver.execute("COMMIT").statusmessage
        except UNAVAILABLE:
            if not _is_lost(connection) or not self._was_committed(transaction_id):
                raise
            connection.invalidate()
            return
        if ended != "COMMIT":  # The server rolls back, without an error, when a statement failed before.
            raise StoreBusy("the store did not commit, because a statement of the transaction had failed")

    def _was_committed(self, transaction_id: str) -> bool:
        """Ask the server for the outcome of a transaction until it answers; raises its errors of other kinds."""
        pause = FIRST_PAUSE
        while True:
            with suppress(*UNAVAILABLE, DBAPIError), self._engine.connect() as connection:
                (status,) = _driver(connection).execute("SELECT pg_xact_status(%s::xid8)", (transaction_id,)).fetchone()
                if status != "in progress":
                    return bool(status == "committed")
            log.warning("store.commit_unknown", pause_seconds=pause)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise errors of the driver as errors of the store, without the SQL statement."""
        try:
            yield
        except FAILURES as error:
            cause = remove_values(error)
            if isinstance(cause, errors.DiskFull):
                raise StoreFull(f"the store did not answer: {cause}. Free some space on its disk.") from None
            if isinstance(cause, UNAVAILABLE):
                raise StoreBusy(
                    f"the store did not answer: {str(cause).strip()}. Check the database server {self._name}, and "
                    "which other programs use it."
                ) from None
            raise


open_database = PostgresqlDatabase


def with_id(statement: Any) -> Any:
    """Return an ``INSERT`` of a row so that a null id means the next one, and the row's id is returned.

    Other statements are returned unchanged, and so are those that add rows without a number as id.
    """
    identity = statement.table._autoincrement_column if isinstance(statement, Insert) else None
    if identity is None:
        return statement
    if statement._values is None and not statement._multi_values and statement.select is None:
        table = statement.table
        following = func.nextval(
            func.pg_get_serial_sequence(literal_column(f"'{table.name}'"), literal_column(f"'{identity.name}'"))
        )
        given = {column.key: bindparam(column.key, type_=column.type) for column in table.c}
        statement = statement.values({**given, identity.key: func.coalesce(given[identity.key], following)})
    return statement if statement._returning else statement.returning(identity)


def has_earlier_processes(connection: Connection, contract: int) -> bool:
    """Return whether a process with an earlier contract is connected; see ``maestro.store.engine.database``.

    The names of connections say so, because they end with a killed process.
    """
    row = _driver(connection).execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name ~ %s AND substr(application_name, %s)::bigint < %s",
        (f"^{APPLICATION}[0-9]+$", len(APPLICATION) + 1, contract),
    )
    return bool(row.fetchone()[0])


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _is_lost(connection: Connection) -> bool:
    return connection.invalidated or bool(_driver(connection).closed)

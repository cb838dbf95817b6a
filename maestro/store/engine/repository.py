"""The base class of all repositories (classes of queries), the connection of a transaction, and helpers for rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, CursorResult, Executable, func, inspect, select, update
from sqlmodel import Session, SQLModel
from sqlmodel.sql.expression import SelectOfScalar

from maestro.domain.cluster import Lease
from maestro.domain.columns import RowVersions
from maestro.domain.errors import NotFound
from maestro.store.engine.scopes import Scope, ScopedWrites, WaitingDriver
from maestro.store.engine.statements import DeferringDriver, Driver, PreparedStatement, row_insert, row_select

Row = TypeVar("Row", bound=SQLModel)
Query = TypeVar("Query", bound=Callable[..., Any])
Found = TypeVar("Found")
Kind = TypeVar("Kind")

Fences: TypeAlias = Mapping[tuple[str, str], Lease]
"""The leases of the connectors that this process runs, by platform and account."""

STAMPED = frozenset(RowVersions._fields)
"""The tables whose rows are cached across transactions, valid for one version of the rows."""


_SQLITE_HIGHEST = "SELECT seq FROM sqlite_sequence WHERE name = ?"
_POSTGRESQL_HIGHEST = "SELECT pg_sequence_last_value(pg_get_serial_sequence(%s, 'id')::regclass)"


class Link:
    """The connection of one transaction, with an ORM session that is created when it is first used."""

    def __init__(
        self,
        connection: Connection,
        caches: dict[str, Any] | None = None,
        fences: Fences = MappingProxyType({}),
        scope: Scope | None = None,
        process: str = "",
    ) -> None:
        """``caches`` holds query results across transactions, by the name of the query.

        ``scope`` limits the rows that the transaction may change, because others write beside it.
        ``process`` is the name of the process, which new jobs and attempts at steps record.
        """
        self.connection = connection
        self.fences = fences
        self.caches = caches if caches is not None else {}
        self.process = process
        self.reads_cached = True
        """Whether this transaction has certainly changed no row of a cached table."""
        self.sqlite = connection.dialect.name == "sqlite"
        self.driver: Driver = cast("Driver", connection.connection.dbapi_connection)
        self.scoped = ScopedWrites(scope, cast("WaitingDriver", self.driver)) if scope is not None else None
        self.when_committed: list[Callable[[], None]] = []
        self._unwritten: dict[tuple[str, str], tuple[dict[str, Any], Callable[[dict[str, Any]], None]]] = {}
        self.known: dict[str, dict[object, Any]] = {}
        """Values read in this transaction, by repository, until that repository changes a row."""

    def write_later(
        self, name: str, key: str, values: Mapping[str, Any], write: Callable[[dict[str, Any]], None]
    ) -> None:
        """Collect values to write before the commit; values of the same repository and key share one ``write``."""
        pending, _ = self._unwritten.get((name, key), ({}, write))
        self._unwritten[(name, key)] = ({**pending, **values}, write)

    def write_collected(self, *names: str) -> None:
        """Write the values that ``write_later`` collected for these repositories (none named: for all)."""
        for key in [key for key in self._unwritten if not names or key[0] in names]:
            values, write = self._unwritten.pop(key)
            write(values)

    def require_alone(self) -> None:
        """Raise ``ScopeTooNarrow`` if other transactions may write beside this one."""
        if self.scoped is not None:
            self.scoped.refuse("other rows than its own")

    def write_shared(self, table: str, write: Callable[[], object], key: tuple[Any, ...] = ()) -> None:
        """Call ``write``, which changes rows of several scopes; with a scope, only before the commit."""
        if self.scoped is None:
            write()
        else:
            self.scoped.write_last(table, write, key)

    def call_after_commit(self) -> None:
        """Make the calls that were registered to follow the commit."""
        for call in self.when_committed:
            call()

    @cached_property
    def session(self) -> Session:
        """The ORM session of this transaction; using it stops reads from caches, because objects may be changed."""
        self.reads_cached = False
        session = Session(self.connection, expire_on_commit=False, autoflush=False)
        if self.scoped is not None:
            self.scoped.check_session(session)
        return session

    def flush_writes(self) -> None:
        """Write the collected values, and all new or changed objects of the session."""
        self.write_collected()
        self.flush_objects()
        if self.scoped is not None:
            self.scoped.flush()

    def flush_objects(self) -> None:
        if "session" in self.__dict__ and (self.session.new or self.session.dirty or self.session.deleted):
            self.write_collected()
            self.known.clear()
            self.session.flush()

    @contextmanager
    def open_savepoint(self) -> Iterator[None]:
        """Roll back the changes of the block if it raises."""
        self.flush_writes()
        calls = len(self.when_committed)
        try:
            with self._open_savepoint():
                try:
                    yield
                    self.flush_writes()
                    self._send_deferred()  # An error must come while the savepoint can still be rolled back.
                except BaseException:
                    self._forget_deferred()
                    raise
        except BaseException:  # This includes cancellations; every exception is raised again.
            self.known.clear()
            self._unwritten.clear()
            del self.when_committed[calls:]
            raise

    def _send_deferred(self) -> None:
        if not self.sqlite:
            cast("DeferringDriver", self.driver).send_deferred()

    def _forget_deferred(self) -> None:
        """Drop what was to be written later in a savepoint, which is rolled back."""
        if self.scoped is not None:
            self.scoped.forget_last()
        if not self.sqlite:
            cast("DeferringDriver", self.driver).forget_deferred()

    @contextmanager
    def _open_savepoint(self) -> Iterator[None]:
        """Open a savepoint; if the block raises, close a session that was created inside the block."""
        if "session" in self.__dict__:
            self.session.flush()
            with self.session.begin_nested():
                # This call begins the savepoint, so that the savepoint includes later statements on the driver.
                self.session.connection()
                yield
                self.session.flush()
            return
        with self.connection.begin_nested():
            try:
                yield
                if "session" in self.__dict__:
                    # The session has a nested savepoint of its own: its commit ends only that nested savepoint.
                    self.session.commit()
            except BaseException:  # This includes cancellations; every exception is raised again.
                self.close()
                self.__dict__.pop("session", None)
                raise

    def close(self) -> None:
        if "session" in self.__dict__:
            self.session.close()


def read_once(method: Query) -> Query:
    """Decorate a query to cache its results within a transaction until the query's repository changes a row."""

    @wraps(method)
    def query_once(self: "Repository", *arguments: Any) -> Any:
        key = (method.__name__, arguments)
        if key not in self._cached_values():
            result = method(self, *arguments)
            self._cached_values()[key] = result
        return self._cached_values()[key]

    return cast("Query", query_once)


def with_values(row: Row, **values: object) -> Row:
    """Return a copy of a read-only row, with new values in some columns."""
    copy: Row = type(row).__new__(type(row))
    copy.__dict__.update(row.__dict__, **values)
    return copy


def require_found(found: Found | None, missing: str) -> Found:
    """Return ``found``; raise ``NotFound`` with the message ``missing`` if ``found`` is None."""
    if found is None:
        raise NotFound(missing)
    return found


class LazyRepository(Generic[Kind]):
    """A descriptor that creates a repository at its first use, faster than a ``cached_property``, which has a lock."""

    def __init__(self, kind: Callable[[Link, datetime], Kind]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, holder: Any, owner: type[Any]) -> Kind:
        # An entry in the instance's ``__dict__`` makes Python skip ``__get__`` at the next access.
        made: Kind = self._kind(holder._link, holder._now)
        holder.__dict__[self._name] = made
        return made


class Repository:
    """A base class for the queries about one kind of row, within one transaction.

    Queries that every message needs are ``PreparedStatement`` constants of the class and run on the driver's connection
    (ADR 7). The session writes new or changed objects only when it is flushed, and a statement sees only rows that are
    written. An object keeps the values it was loaded with. To see a row after a statement changed it, read it as a
    read-only row.
    """

    _noun = "Repository"
    """The name under which a transaction caches query results of this repository."""
    _also_changes: Sequence[str] = ()
    """The names of other repositories whose rows this repository's statements change."""

    def __init_subclass__(cls) -> None:
        if "_noun" not in cls.__dict__:
            cls._noun = cls.__name__

    def __init__(self, link: Link, now: datetime) -> None:
        self._link = link
        self._now = now

    @property
    def _session(self) -> Session:
        return self._link.session

    def _find_all(self, query: SelectOfScalar[Found]) -> Sequence[Found]:
        """Return all results of a query; rows are objects of the session."""
        return self._session.exec(query).all()

    def _find_first(self, query: SelectOfScalar[Found]) -> Found | None:
        """Return the first result of a query or None; a row is an object of the session."""
        return self._session.exec(query).first()

    def _has_any(self, query: SelectOfScalar[Any]) -> bool:
        return self._session.exec(query.limit(1)).first() is not None

    def _cached_values(self) -> dict[object, Any]:
        """Return the results of this repository's queries that are cached in this transaction."""
        return self._link.known.setdefault(self._noun, {})

    def _invalidate_cache(self, prepared: PreparedStatement | None = None) -> None:
        """Drop this repository's cached results, because its rows change.

        ``prepared`` is the statement that changes the rows, None for any other kind of change.
        """
        if self._link.scoped is not None and prepared is not None:
            self._link.scoped.require(prepared.changed_table)
        if prepared is None or prepared.changed_table in STAMPED:
            self._link.reads_cached = False
        names = (self._noun, *self._also_changes)
        self._link.write_collected(*names)
        for name in names:
            self._link.known.pop(name, None)

    def _read_rows(self, prepared: PreparedStatement, **values: object) -> list[tuple[Any, ...]]:
        """Return the rows that a prepared statement reads, in the order of the statement."""
        return prepared.read_rows(self._link.driver, values)

    def _read_row(self, prepared: PreparedStatement, **values: object) -> tuple[Any, ...] | None:
        """Return the first row that a prepared statement reads, or None."""
        return prepared.read_first_row(self._link.driver, values)

    def _has_row(self, prepared: PreparedStatement, **values: object) -> bool:
        return prepared.run_statement(self._link.driver, values).fetchone() is not None

    def _read_value(self, prepared: PreparedStatement, **values: object) -> Any:
        """Return the first column of the first row that a prepared statement reads; None without a row."""
        row = self._read_row(prepared, **values)
        return row[0] if row is not None else None

    def _run_change(self, prepared: PreparedStatement, **values: object) -> int:
        """Run a prepared statement that changes rows; return how many rows it changed."""
        self._invalidate_cache(prepared)
        changed: int = prepared.run_statement(self._link.driver, values).rowcount
        return changed

    def _write(self, prepared: PreparedStatement, **values: object) -> None:
        """Run a prepared statement that changes rows, and of which no result is needed."""
        self._invalidate_cache(prepared)
        prepared.run_without_result(self._link.driver, values)

    def _write_shared(self, prepared: PreparedStatement, key: tuple[Any, ...] = (), /, **values: object) -> None:
        """Run a prepared statement that changes a row of several scopes; see ``ScopedWrites``."""
        self._link.write_shared(prepared.changed_table, lambda: self._write(prepared, **values), key)

    def _run_returning(self, prepared: PreparedStatement, **values: object) -> list[tuple[Any, ...]]:
        """Run a prepared statement that changes rows; return its ``returning`` columns for each changed row."""
        self._invalidate_cache(prepared)
        return prepared.read_rows(self._link.driver, values)

    def _insert_row(self, prepared: PreparedStatement, **values: object) -> int:
        """Run a prepared statement that adds a row; return the row's id."""
        self._invalidate_cache(prepared)
        return prepared.insert_row(self._link.driver, values)

    def _add_row(self, row: Row) -> Row:
        """Write a new row without the ORM session and return it; a row without an id gets an id.

        The session does not know the row, so a later change of a column needs its own statement.
        """
        row_id = self._insert_row(row_insert(type(row)), **vars(row))
        if getattr(row, "id", row_id) is None:
            row.__dict__["id"] = row_id
        return row

    def _read_model(self, prepared: PreparedStatement, model: type[Row], **values: object) -> Row | None:
        """Return the first row of a ``select`` of a whole table as a read-only row, or None.

        A read-only row is not part of the session and costs a tenth of an object. Setting a column raises, and so does
        adding the row to the session.
        """
        row = self._read_row(prepared, **values)
        return prepared.convert_row(model, row) if row is not None else None

    def _read_models(self, prepared: PreparedStatement, model: type[Row], **values: object) -> list[Row]:
        """Return all rows of a ``select`` of a whole table as read-only rows; see ``_read_model``."""
        return [prepared.convert_row(model, row) for row in self._read_rows(prepared, **values)]

    def _read_model_by(self, model: type[Row], **key: object) -> Row | None:
        """Return the first row with these column values as a read-only row, or None; see ``_read_model``."""
        return self._read_model(row_select(model, *key), model, **key)

    def _count_rows(self, *conditions: Any) -> int:
        return self._session.scalars(select(func.count()).where(*conditions)).one()

    def _update_row(self, model: type[SQLModel], row_id: int | str | None, **values: object) -> None:
        self._run_statement(update(model).where(inspect(model).columns["id"] == row_id).values(**values))

    def _save_objects(self, row: Row, *others: SQLModel) -> Row:
        """Write these objects, which are new or were changed, and return the first object."""
        self._session.add_all((row, *others))
        self._session.flush()
        return row

    def _delete_object(self, row: SQLModel) -> None:
        self._session.delete(row)
        self._session.flush()

    def _read_highest_id(self, table: type[SQLModel]) -> int:
        """Return the highest id ever assigned or reserved in a table that does not reuse ids."""
        sql = _SQLITE_HIGHEST if self._link.sqlite else _POSTGRESQL_HIGHEST
        row = self._link.driver.execute(sql, (table.__tablename__,)).fetchone()
        return int(row[0] or 0) if row else 0

    def _begin_ids_after(self, table: type[SQLModel], floor: int) -> None:
        """Give new rows of a table that does not reuse ids only ids above ``floor``; never lower the next id."""
        name, driver = table.__tablename__, self._link.driver
        if self._read_highest_id(table) >= floor:
            return
        if not self._link.sqlite:
            driver.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", (name, floor))
        elif not driver.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (floor, name)).rowcount:
            # Before the first row of a table, SQLite has no counter for its ids.
            driver.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, floor))

    def _run_statement(self, statement: Executable, **values: object) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement that is not prepared, with values for the statement's parameters.

        Changes of rows and reads of columns use this method. It costs half as much as the session.
        """
        if self._link.scoped is not None:
            self._link.scoped.check_statement(statement)
        self._invalidate_cache()
        return self._link.connection.execute(statement, values)

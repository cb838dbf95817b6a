"""Scopes of writing transactions: what each may change, and the invariant that its lock protects.

PostgreSQL runs transactions of different scopes side by side, and a transaction without a scope alone. SQLite has one
writer and ignores scopes. See ADR 50 and docs/invariants.md: transactions.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState
from sqlmodel import Session

from maestro.domain.errors import ScopeTooNarrow

Result = TypeVar("Result")


class Scope(NamedTuple):
    """The part of the store that a writing transaction may change; scopes of the same kind and name exclude each other.

    ``job``: the row of one job and the rows that belong to it. One attempt at a step writes at a time, so numbers that
    follow the highest one (attempts of steps and calls) are used once, and a read state of the job is its last.

    ``lane``: the new messages of one channel and thread. Their ids and positions are assigned and committed in the same
    order, so the jobs of a lane begin in the order in which their messages arrived.

    ``claims``: the claims of all dispatchers. The limits of running jobs are compared with counts to which no other
    dispatcher adds meanwhile.
    """

    kind: str
    name: str = ""


JOB, LANE = "job", "lane"
CLAIMS = Scope("claims")

TABLES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        JOB: frozenset(
            {
                *("queue", "job_steps", "conversations", "messages", "messages_archive", "prompts", "prompt_parts"),
                *("llm_calls", "reservations", "deliveries", "outbound_lanes", "drafts", "job_files", "chat_reminders"),
            }
        ),
        LANE: frozenset({"inbox", "queue"}),
        CLAIMS.kind: frozenset({"queue"}),
    }
)
"""The tables that a transaction may change, by the kind of its scope; of ``queue`` only the rows of the scope."""

SHARED = (
    *("memory_facts", "usage_log", "spending", "accounts", "account_limits", "chat_cursor"),
    *("ignored_lines", "connectors"),
)
"""The tables whose rows several scopes change. A scoped transaction changes them last, in this order, so that two
transactions never wait for each other and the rows are locked only for the moment of the commit."""


class WaitingDriver(Protocol):
    """A connection that calls ``before`` before a statement that names one of the ``awaited`` tables."""

    awaited: tuple[str, ...]
    before: Callable[[], None] | None


class ScopedWrites:
    """The writes of a transaction with a scope: refuses those of other tables, and delays those of shared rows."""

    def __init__(self, scope: Scope, driver: WaitingDriver) -> None:
        self.scope = scope
        self.amounts: dict[tuple[Any, ...], tuple[float, float]] = {}
        """Amounts to add to spending, by the row's key."""
        self._driver = driver
        self._last: list[tuple[int, tuple[Any, ...], Callable[[], object]]] = []
        self._tables = TABLES[scope.kind]

    def require(self, table: str) -> None:
        """Raise ``ScopeTooNarrow`` unless the scope includes changes of a table."""
        if table not in self._tables:
            self.refuse(table)

    def refuse(self, what: str) -> None:
        """Raise ``ScopeTooNarrow`` for a change of ``what``."""
        raise ScopeTooNarrow(f"a transaction of the scope {self.scope.kind} may not change {what}")

    def check_statement(self, statement: Any) -> None:
        """Raise ``ScopeTooNarrow`` for a statement that changes a table outside of the scope."""
        table = getattr(statement, "table", None)
        if table is not None:
            self._require_unless_jobs(table.name)

    def check_session(self, session: Session) -> None:
        """Let an ORM session raise ``ScopeTooNarrow`` for changes outside of the scope."""
        event.listen(session, "before_flush", self._check_objects)
        event.listen(session, "do_orm_execute", self._check_orm_statement)

    def write_last(self, table: str, write: Callable[[], object], key: tuple[Any, ...]) -> None:
        """Call ``write`` before the commit, in the order of ``SHARED`` and, within a table, of ``key``."""
        self._last.append((SHARED.index(table), key, write))
        self._driver.awaited, self._driver.before = (*self._driver.awaited, table), self.flush

    def flush(self) -> None:
        """Make the calls of ``write_last`` now."""
        if self._last:
            self._driver.awaited, self._driver.before = (), None
            calls, self._last = sorted(self._last, key=lambda call: call[:2]), []
            for _, _, write in calls:
                self._write_shared(write)

    def forget_last(self) -> None:
        """Drop the calls of ``write_last``."""
        self._last.clear()
        self.amounts.clear()

    def write_now(self, write: Callable[[], Result]) -> Result:
        """Make the delayed calls, and then ``write``, whose shared rows are the last ones of the transaction."""
        self.flush()
        return self._write_shared(write)

    def _write_shared(self, write: Callable[[], Result]) -> Result:
        own, self._tables = self._tables, self._tables | frozenset(SHARED)
        try:
            return write()
        finally:
            self._tables = own

    def _check_objects(self, session: Session, *_: object) -> None:
        for row in (*session.new, *session.dirty, *session.deleted):
            self._require_unless_jobs(str(row.__tablename__))

    def _require_unless_jobs(self, table: str) -> None:
        """Only prepared statements change rows of jobs: they change one row, whose job they can compare."""
        if table == "queue":
            self.refuse("other rows than its own")
        self.require(table)

    def _check_orm_statement(self, state: ORMExecuteState) -> None:
        if not state.is_select:
            self.check_statement(state.statement)

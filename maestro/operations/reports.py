"""The operations on the audit log, on usage and its cost, on step latencies, and on budgets."""

from collections.abc import Callable, Iterator, Sequence

from maestro.domain.jobs.filters import PageCursor
from maestro.domain.llm.budgets import BudgetPage
from maestro.domain.llm.usage import UsageRequest
from maestro.domain.llm.usage_views import (
    MOST_LINES,
    LatencyPage,
    LatencyQuery,
    UsagePage,
    UsageQuery,
    UsageTable,
    latency_csv,
    usage_csv,
)
from maestro.domain.people.views import COLUMNS, MOST, AuditFilter, AuditPage, AuditQuery, audit_page, audit_rows
from maestro.domain.settings.llm import BudgetSettings
from maestro.domain.texts import csv_lines
from maestro.operations.inputs import StoreOperations
from maestro.store.store import Store

MOST_EXPORTED = 100_000
"""The most entries of the audit log in one CSV file."""


class AuditOperations(StoreOperations):
    """The operations on the audit log."""

    def list(self, query: AuditQuery) -> AuditPage:
        """List the actions of operators, viewers, agents and Maestro itself, newest first."""
        after = PageCursor.parse_row_position(query.cursor) if query.cursor is not None else None
        with self._store.view() as tx:
            return audit_page(tx.system.audit.list_entry_page(query, after, query.limit + 1), query.limit)

    def export(self, audit_filter: AuditFilter) -> Iterator[str]:
        """Return the matching audit entries, newest first, at most 100,000, as the lines of a CSV file."""
        return csv_lines(self._csv_rows(audit_filter))

    def _csv_rows(self, audit_filter: AuditFilter) -> Iterator[Sequence[str]]:
        """Yield the header and the rows; each page is read by itself, so that a slow client holds no connection."""
        yield COLUMNS
        mark = None
        for _ in range(MOST_EXPORTED // MOST):
            with self._store.view() as tx:
                entries = tx.system.audit.list_entry_page(audit_filter, mark, MOST)
            yield from audit_rows(entries)
            if len(entries) < MOST:
                return
            mark = entries[-1].at, entries[-1].id or 0


class UsageOperations:
    """The operations on usage, step latencies and budgets; ``budgets`` returns the current budget settings."""

    def __init__(self, store: Store, budgets: Callable[[], BudgetSettings]) -> None:
        self._store = store
        self._budgets = budgets

    def show(self, query: UsageQuery) -> UsagePage:
        """Sum usage by day (UTC), agent, client, account, model, purpose, platform, conversation or job."""
        with self._store.view() as tx:
            return tx.llm.usage.build_usage_page(query, tx.llm.budgets.today)

    def export(self, table: UsageTable) -> Iterator[str]:
        """Return sums of usage, at most 100,000, as the lines of a CSV file."""
        with self._store.view() as tx:
            request = UsageRequest(table.by, table.period(tx.llm.budgets.today), table)
            sums = tx.llm.usage.list_sums(request, MOST_LINES)
        return usage_csv(table.by, sums)

    def latency(self, query: LatencyQuery) -> LatencyPage:
        """Return how long each step took in a sample of at most 1,000 completed jobs: the newest jobs of each day."""
        with self._store.view() as tx:
            return tx.system.latency.build_latency_page(query, query.period(tx.llm.budgets.today))

    def export_latency(self, query: LatencyQuery) -> Iterator[str]:
        """Return step latencies as the lines of a CSV file: first over all days together, then for each day."""
        return latency_csv(self.latency(query))

    def budgets(self) -> BudgetPage:
        """Return every budget that has a limit, with the amounts used and reserved today."""
        with self._store.view() as tx:
            return tx.llm.budgets.list_used(self._budgets())

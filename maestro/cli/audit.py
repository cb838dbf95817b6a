"""``maestro audit``: the changes by operators, with their authors, times and origins."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from maestro.cli.framework.inputs import FilterOptions, Limit, TextCursor, decoded
from maestro.cli.framework.operations import Opened, OperationCommands
from maestro.cli.framework.output import Columns, Result, listing
from maestro.domain.people.audit import LIMIT, AuditFilter, audit_page, read_mark

COLUMNS = Columns(
    "at who=actor did=action to=subject detail from=origin", {"at": lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}"}
)


def _utc(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20 or 2026-11-20T08:30") from None


FILTERS = FilterOptions(AuditFilter, spelling={"q": "--search"}, read_time=_utc)

app = OperationCommands(None, lambda at: at)


@app.operation("audit")
def show_audit(
    at: Opened, filters: Annotated[AuditFilter, FILTERS], limit: Limit = LIMIT, cursor: TextCursor = None
) -> Result:
    """Show who did what, the newest first; a time is written as 2026-11-20 or 2026-11-20T08:30.

    It works whether Maestro runs or not.
    """
    with at.store.view() as tx:
        page = audit_page(tx.system.audit.page(filters, decoded(read_mark, cursor), limit + 1), limit)
    return page, listing(page, COLUMNS, "Nothing of this kind was done.")

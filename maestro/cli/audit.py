"""``maestro audit``: the changes by operators, with their authors, times and origins."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from maestro.cli.framework.inputs import QueryOptions
from maestro.cli.framework.operations import OperationCommands
from maestro.cli.framework.output import Columns, Result, listing
from maestro.domain.people.audit import AuditQuery
from maestro.operations.reports import AuditOperations

COLUMNS = Columns(
    "at who=actor did=action to=subject detail from=origin", {"at": lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}"}
)


def _utc(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20 or 2026-11-20T08:30") from None


QUERY = QueryOptions(AuditQuery, spelling={"q": "--search"}, read_time=_utc)

app = OperationCommands(None, lambda at: AuditOperations(at.store))


@app.operation("audit")
def show_audit(audit: AuditOperations, query: Annotated[AuditQuery, QUERY]) -> Result:
    """Show the audit log, the newest entry first; a time is written as 2026-11-20 or 2026-11-20T08:30.

    It works whether Maestro runs or not.
    """
    page = audit.list(query)
    return page, listing(page, COLUMNS, "Nothing of this kind was done.")

"""``maestro audit``: who did what to what, and from where."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from maestro.cli.checked import made
from maestro.cli.commands import Commands
from maestro.cli.opened import opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import TextCursor, table_page
from maestro.domain.people.audit import LIMIT, MOST, AuditPage, AuditQuery, AuditView, audit_page

NOTHING = "Nothing of this kind was done."
HERE = "-"
"""Where an action came from that was typed into a terminal of this machine, or that nobody asked for."""
COLUMNS = ("at", "who", "did", "to", "detail", "from")

TIME = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

app = Commands()


@app.command("audit")
def show_audit(
    given: Given,
    actor: Annotated[str | None, typer.Option(help="Only what this one did: operator, viewer, unknown ...")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as login.failed or job.resume.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only what was done to this, such as the id of a job.")] = None,
    q: Annotated[str | None, typer.Option("--search", help="Only what has this in any of its texts.")] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=TIME, metavar="TIME", help="From this time on, UTC.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(formats=TIME, metavar="TIME", help="Before this time, UTC.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many at most.")] = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """Show who did what, the newest first; a time is written as 2026-11-20 or 2026-11-20T08:30.

    It works whether Maestro runs or not.
    """
    texts = {"actor": actor, "action": action, "subject": subject, "q": q}
    query = made(AuditQuery, **texts, since=_utc(since), until=_utc(until), limit=limit, cursor=cursor)
    with opened(given) as at, at.store.view() as tx:
        page = audit_page(tx.system.audit.page(query, query.after, query.limit + 1), query.limit)
    write(page, _listing(page), given.as_json)


def _listing(page: AuditPage) -> Iterator[str]:
    yield from table_page(COLUMNS, list(map(_line, page.items)), NOTHING, page.next)


def _line(entry: AuditView) -> tuple[str, ...]:
    at = f"{entry.at:%Y-%m-%d %H:%M:%S}"
    return at, entry.actor, entry.action, entry.subject or HERE, entry.detail or HERE, entry.origin or HERE


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None else None

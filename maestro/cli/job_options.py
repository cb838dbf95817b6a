"""The options by which commands choose jobs: one meaning for lists, counts, groups of failures and batches."""

from dataclasses import asdict, dataclass
from datetime import datetime, time, timedelta
from typing import Annotated

import typer

from maestro.cli.checked import made
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobKind, JobStatus


def _moment(text: str) -> datetime:
    """Read a moment; one without an offset is of this machine's zone, and one without a day is the last such time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return _last(text)


def _last(text: str) -> datetime:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00, or 09:00 for the last one") from None
    now = datetime.now().astimezone()
    today = datetime.combine(now, clock).astimezone()
    return today if today <= now else today - timedelta(days=1)


SEVERAL = "Only these; may be given several times."


@dataclass(frozen=True)
class Which:
    """Which jobs are meant; without any option, all of them."""

    status: Annotated[list[JobStatus] | None, typer.Option(help=SEVERAL)] = None
    kind: Annotated[list[JobKind] | None, typer.Option(help=SEVERAL)] = None
    agent: Annotated[str | None, typer.Option(metavar="SLUG", help="Only those of this agent.")] = None
    platform: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this platform.")] = None
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this account there.")] = None
    channel: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this channel.")] = None
    priority: Annotated[int | None, typer.Option(metavar="N", help="Only those of this priority, 1 to 10.")] = None
    client: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that this client pays for.")] = None
    conversation: Annotated[int | None, typer.Option(metavar="ID", help="Only those of this conversation.")] = None
    schedule: Annotated[
        str | None, typer.Option(metavar="REF", help="Only the runs of this heartbeat or cron, such as cron-3.")
    ] = None
    webhook: Annotated[str | None, typer.Option(metavar="PATH", help="Only what this webhook was sent.")] = None
    error: Annotated[str | None, typer.Option(metavar="CLASS", help="Only those that ended with this error.")] = None
    step: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that failed at this step.")] = None
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those with this reason; * stands for anything.")
    ] = None
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only those that this batch began.")] = None
    since: Annotated[
        datetime | None, typer.Option(metavar="TIME", parser=_moment, help="Only those created then or later.")
    ] = None
    until: Annotated[
        datetime | None, typer.Option(metavar="TIME", parser=_moment, help="Only those created before.")
    ] = None
    at: Annotated[
        datetime | None, typer.Option(metavar="TIME", parser=_moment, help="Only those created or open around then.")
    ] = None
    q: Annotated[str | None, typer.Option("--q", metavar="TEXT", help="Only those that contain this.")] = None

    @property
    def filter(self) -> JobFilter:
        """Return the filter; raises ``typer.BadParameter`` for a value that is none."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return made(JobFilter, **given)

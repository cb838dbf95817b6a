"""The options by which commands choose jobs: one meaning for lists, counts, groups of failures and batches."""

from datetime import datetime, time, timedelta
from typing import Annotated

import typer

from maestro.cli.framework.inputs import QueryOptions
from maestro.domain.jobs.filters import JobFilter


def read_time(text: str) -> datetime:
    """Read a moment; one without an offset is of this machine's zone, and one without a day is the last such time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return _last_time(text)


def _last_time(text: str) -> datetime:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00, or 09:00 for the last one") from None
    now = datetime.now().astimezone()
    today = datetime.combine(now, clock).astimezone()
    return today if today <= now else today - timedelta(days=1)


ChosenJobs = Annotated[JobFilter, QueryOptions(JobFilter, read_time=read_time)]
"""The jobs that are meant; without any option, all of them."""

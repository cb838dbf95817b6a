"""Many jobs at once, in words for a terminal."""

from collections.abc import Iterator
from datetime import datetime

from maestro.cli.job_texts import age, cost, moment
from maestro.cli.pages import more
from maestro.cli.table import lines, plain
from maestro.domain.jobs.batch_views import BatchItemPage, BatchPage, BatchView, StatusCounts
from maestro.domain.jobs.batches import BatchAction
from maestro.domain.jobs.failures import ErrorGroupPage
from maestro.domain.jobs.forecast import Forecast

NO_FAILURES = "There are no such failures."
NO_BATCHES = "There are no batches yet."
NO_JOBS = "There are no such jobs in this batch."

ERROR_COLUMNS = ("jobs", "error", "step", "newest", "agents", "example", "reason")
BATCH_COLUMNS = ("id", "does", "age", "jobs", "waiting", "begun", "refused", "skipped", "completed", "failed", "open")
ITEM_COLUMNS = ("place", "job", "state", "began", "status", "why not")

DOES = {BatchAction.RESUME: "resumed", BatchAction.RESTART: "restarted", BatchAction.CANCEL: "cancelled"}


def forecast(found: Forecast) -> Iterator[str]:
    """Say what a batch would do."""
    yield f"{found.matching:,} jobs match; {found.possible:,} of them would be {DOES[found.action]}."
    if found.action is not BatchAction.CANCEL:
        yield f"They pay for about {found.model_calls:,} model calls: {_price(found)}."
    for step in found.steps:
        yield f"  {step.count:,} from {step.step}"
    for group in found.refused:
        yield f"  {group.count:,} not: {plain(group.reason)} (such as {group.example})"


def counts(found: StatusCounts) -> Iterator[str]:
    """Show how many jobs there are."""
    numbers = found.model_dump(by_alias=False)
    yield from lines(("status", "jobs"), [(name, f"{count:,}") for name, count in numbers.items()])


def errors(page: ErrorGroupPage, now: datetime) -> Iterator[str]:
    """Show kinds of failures."""
    if not page.items:
        yield NO_FAILURES
        return
    rows = [
        (
            f"{group.count:,}",
            group.error or "-",
            group.step or "-",
            age(now - group.newest),
            ", ".join(group.agents) or "-",
            group.example,
            group.reason,
        )
        for group in page.items
    ]
    yield from lines(ERROR_COLUMNS, rows)


def listing(page: BatchPage, now: datetime) -> Iterator[str]:
    """Show a page of batches."""
    if not page.items:
        yield NO_BATCHES
        return
    yield from lines(BATCH_COLUMNS, [_row(one, now) for one in page.items])
    yield from more(page.next)


def batch(one: BatchView) -> Iterator[str]:
    """Show how far a batch is."""
    yield f"{one.id}  {one.action}{', stopped' if one.stopped else ''}"
    yield f"  {one.total:,} jobs: {one.waiting:,} waiting, {one.begun:,} begun, {one.refused:,} refused, " + (
        f"{one.skipped:,} skipped"
    )
    yield (
        f"  of those begun: {one.completed:,} completed, {one.failed:,} failed, {one.open:,} open, "
        f"{one.otherwise:,} ended otherwise"
    )
    if one.estimated_end is not None:
        yield f"  may end at {moment(one.estimated_end)}"


def items(page: BatchItemPage) -> Iterator[str]:
    """Show what came of each job."""
    if not page.items:
        yield NO_JOBS
        return
    rows = [
        (str(item.place), item.job_id, item.state, item.began or "-", item.status or "-", item.problem)
        for item in page.items
    ]
    yield from lines(ITEM_COLUMNS, rows)
    yield from more(str(page.next) if page.next is not None else None)


def _row(one: BatchView, now: datetime) -> tuple[str, ...]:
    numbers = (one.total, one.waiting, one.begun, one.refused, one.skipped, one.completed, one.failed, one.open)
    return one.id, one.action, age(now - one.created_at), *(f"{number:,}" for number in numbers)


def _price(found: Forecast) -> str:
    if found.unknown_cost == found.model_calls and found.model_calls:
        return "nobody knows what they cost"
    unknown = f", and {found.unknown_cost:,} of which nobody knows the price" if found.unknown_cost else ""
    return f"about {cost(found.cost_usd)}{unknown}"

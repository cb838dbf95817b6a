"""``maestro jobs replay-all`` and ``cancel-all``: many jobs at once, told before anything is done."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from maestro.cli.framework.inputs import QueryOptions, made
from maestro.cli.framework.operations import ACTOR, OperationCommands, opened
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Result, aligned, listing, write
from maestro.cli.jobs.options import ChosenJobs
from maestro.cli.jobs.texts import BATCH_COLUMNS, ERROR_COLUMNS, ITEM_COLUMNS, batch_forecast, batch_progress
from maestro.domain.jobs.batches import BatchAction, BatchRequest
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobEdits
from maestro.operations.batches import BatchOperations, BatchQuery, ItemQuery

BatchId = Annotated[str, "ID: The id of the batch, as `maestro jobs batches` lists it."]


class BatchMode(StrEnum):
    """How many jobs are replayed."""

    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True)
class BatchConfirmation:
    """The options that confirm an action on many jobs."""

    all_matching: Annotated[bool, "--all-matching: All jobs there are, where no other option says which."] = False
    dry_run: Annotated[bool, "--dry-run: Only tell what it would do."] = False
    yes: Annotated[bool, "--yes: Do not ask whether it is meant."] = False
    expected: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Do nothing when it is not this number of jobs.")
    ] = None

    def check(self, chosen: JobFilter) -> None:
        """Raise ``typer.BadParameter`` when every job is meant, and no option says so."""
        if chosen == JobFilter() and not self.all_matching:
            raise typer.BadParameter("say which jobs, for example with --status failed, or --all-matching for all")


@dataclass(frozen=True)
class BatchEdits:
    """The options that change each job that is restarted."""

    with_agent: Annotated[str | None, "SLUG: Restart them with this agent instead of their own."] = None
    with_model: Annotated[str | None, "NAME: Restart them with this model instead of their agent's."] = None
    with_prompt: Annotated[str | None, "TEXT: Restart them with this text instead of their message."] = None

    def field(self) -> Mapping[str, Any]:
        """Return the edits as a field, without any if there are none."""
        edits = made(JobEdits, agent=self.with_agent, model=self.with_model, prompt=self.with_prompt)
        return {"edits": edits} if edits.any else {}


app = OperationCommands(None, lambda at: BatchOperations(at.store))


@app.command("replay-all")
def replay_all(
    given: Given,
    chosen: ChosenJobs,
    confirmation: BatchConfirmation,
    edits: BatchEdits,
    mode: Annotated[
        BatchMode, "resume: go on at the failed step and keep every result; restart: from the top."
    ] = BatchMode.RESUME,
) -> None:
    """Replay every job that is meant, after telling what that does and pays for."""
    _begin_batch(given, chosen, confirmation, action=BatchAction(mode), **edits.field())


@app.command("cancel-all")
def cancel_all(given: Given, chosen: ChosenJobs, confirmation: BatchConfirmation) -> None:
    """Stop every open job that is meant, for good, after telling how many those are."""
    _begin_batch(given, chosen, confirmation, action=BatchAction.CANCEL)


@app.operation("counts")
def count_jobs(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Count jobs by status; --status itself does not matter."""
    found = batches.counts(chosen)
    numbers = found.model_dump(by_alias=False)
    return found, aligned([("STATUS", "JOBS"), *((name, f"{count:,}") for name, count in numbers.items())])


@app.operation("errors")
def group_errors(batches: BatchOperations, chosen: ChosenJobs) -> Result:
    """Group failed jobs by what went wrong, the newest kind first."""
    groups = batches.errors(chosen)
    return groups, listing(groups, ERROR_COLUMNS, "There are no such failures.")


@app.operation("batches")
def show_batches(
    batches: BatchOperations,
    query: Annotated[BatchQuery, QueryOptions(BatchQuery)],
    batch_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show how far this one is.")] = None,
) -> Result:
    """List batches, newest first, or show how far one is."""
    if batch_id:
        batch = batches.show(batch_id)
        return batch, batch_progress(batch)
    page = batches.list(query)
    return page, listing(page, BATCH_COLUMNS, "There are no batches yet.")


@app.operation("batch-jobs")
def list_batch_jobs(
    batches: BatchOperations, batch_id: BatchId, query: Annotated[ItemQuery, QueryOptions(ItemQuery)]
) -> Result:
    """List what came of each job of a batch, in their order."""
    page = batches.items(batch_id, query)
    return page, listing(page, ITEM_COLUMNS, "There are no such jobs in this batch.")


@app.operation("stop-batch")
def stop_batch(batches: BatchOperations, batch_id: BatchId) -> Result:
    """Let no more jobs of a batch begin; those that were begun go on."""
    batch = batches.stop(batch_id, ACTOR)
    return batch, batch_progress(batch)


def _begin_batch(given: Given, chosen: JobFilter, confirmation: BatchConfirmation, **wish_fields: Any) -> None:
    """Tell what would be done and, where it is confirmed, have it done."""
    with opened(given) as at:
        confirmation.check(chosen)
        batches, wish = BatchOperations(at.store), made(BatchRequest, filter=chosen, **wish_fields)
        if not confirmation.yes:
            forecast = batches.forecast(wish)
            write(forecast, batch_forecast(forecast), given.as_json and confirmation.dry_run)
            wish = wish.model_copy(update={"expected": forecast.matching})
        if confirmation.expected is not None:
            wish = wish.model_copy(update={"expected": confirmation.expected})
        if confirmation.dry_run:
            return
        if not confirmation.yes:
            typer.confirm("Is that meant?", abort=True, err=True)
        batch = batches.begin(wish, ACTOR)
    write(batch, batch_progress(batch), given.as_json)

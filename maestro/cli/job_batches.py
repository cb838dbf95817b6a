"""``maestro jobs replay-all`` and the other commands for many jobs at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from maestro.cli import batch_texts
from maestro.cli.checked import made
from maestro.cli.commands import Commands
from maestro.cli.job_options import Which
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, TextCursor
from maestro.domain.columns import LARGEST
from maestro.domain.jobs.batch_views import BatchWish
from maestro.domain.jobs.batches import BatchAction, ItemState
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Edits
from maestro.operations.batches import LIMIT, BatchOperations

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The id of the batch, as `maestro jobs batches` lists it.")]

app = Commands()


class Again(StrEnum):
    """How many jobs are replayed."""

    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True)
class Caution:
    """How sure somebody is who asks for something to be done with many jobs."""

    all_matching: Annotated[
        bool, typer.Option("--all-matching", help="All jobs there are, where no other option says which.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")] = False
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False
    expected: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Do nothing when it is not this number of jobs.")
    ] = None

    def check(self, wanted: JobFilter) -> None:
        """Raise ``typer.BadParameter`` when every job there is would be meant, and nobody said so."""
        if wanted == JobFilter() and not self.all_matching:
            raise typer.BadParameter("say which jobs, for example with --status failed, or --all-matching for all")


@dataclass(frozen=True)
class Changes:
    """What is changed in each job that is restarted."""

    with_agent: Annotated[
        str | None, typer.Option(metavar="SLUG", help="Restart them with this agent instead of their own.")
    ] = None
    with_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Restart them with this model instead of their agent's.")
    ] = None
    with_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Restart them with this text instead of their message.")
    ] = None

    def edits(self) -> Mapping[str, Any]:
        """Return the edits as a field, without any if there are none."""
        edits = made(Edits, agent=self.with_agent, model=self.with_model, prompt=self.with_prompt)
        return {"edits": edits} if edits.any else {}


@app.command("replay-all")
def replay_all(
    given: Given,
    which: Which,
    caution: Caution,
    changes: Changes,
    mode: Annotated[
        Again, typer.Option(help="resume: go on at the failed step and keep every result; restart: from the top.")
    ] = Again.RESUME,
) -> None:
    """Replay every job that is meant, after telling what that does and pays for."""
    _batch(given, which, caution, action=BatchAction(mode), **changes.edits())


@app.command("cancel-all")
def cancel_all(given: Given, which: Which, caution: Caution) -> None:
    """Stop every open job that is meant, for good, after telling how many those are."""
    _batch(given, which, caution, action=BatchAction.CANCEL)


@app.command()
def counts(given: Given, which: Which) -> None:
    """Count jobs by status; --status itself does not matter."""
    with opened(given) as at:
        found = BatchOperations(at.store).counts(which.filter)
    write(found, batch_texts.counts(found), given.as_json)


@app.command()
def errors(given: Given, which: Which) -> None:
    """Group failed jobs by what went wrong, the newest kind first."""
    with opened(given) as at:
        groups = BatchOperations(at.store).errors(which.filter)
    write(groups, batch_texts.errors(groups, datetime.now(UTC)), given.as_json)


@app.command()
def batches(
    given: Given,
    batch_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show how far this one is.")] = None,
    limit: Limit = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """List batches, newest first, or show how far one is."""
    with opened(given) as at:
        if batch_id:
            shown = BatchOperations(at.store).show(batch_id)
            write(shown, batch_texts.batch(shown), given.as_json)
        else:
            page = BatchOperations(at.store).page(limit, cursor)
            write(page, batch_texts.listing(page, datetime.now(UTC)), given.as_json)


@app.command("batch-jobs")
def batch_jobs(
    given: Given,
    batch_id: BatchId,
    state: Annotated[list[ItemState] | None, typer.Option(help="Only these; may be given several times.")] = None,
    limit: Limit = LIMIT,
    cursor: Annotated[int, typer.Option(min=0, max=LARGEST, help="Go on where an earlier list said `next`.")] = 0,
) -> None:
    """List what came of each job of a batch, in their order."""
    with opened(given) as at:
        page = BatchOperations(at.store).item_page(batch_id, state or (), limit, cursor)
    write(page, batch_texts.items(page), given.as_json)


@app.command("stop-batch")
def stop_batch(given: Given, batch_id: BatchId) -> None:
    """Let no more jobs of a batch begin; those that were begun go on."""
    with opened(given) as at:
        stopped = BatchOperations(at.store).stop(batch_id, ACTOR)
    write(stopped, batch_texts.batch(stopped), given.as_json)


def _batch(given: Given, which: Which, caution: Caution, **wanted: Any) -> None:
    """Tell what would be done and, where it is meant, have it done."""
    with opened(given) as at:
        caution.check(which.filter)
        operations, wish = BatchOperations(at.store), made(BatchWish, filter=which.filter, **wanted)
        if not caution.yes:
            found = operations.forecast(wish)
            write(found, batch_texts.forecast(found), given.as_json and caution.dry_run)
            wish = wish.model_copy(update={"expected": found.matching})
        if caution.expected is not None:
            wish = wish.model_copy(update={"expected": caution.expected})
        if caution.dry_run:
            return
        if not caution.yes:
            typer.confirm("Is that meant?", abort=True, err=True)
        batch = operations.begin(wish, ACTOR)
    write(batch, batch_texts.batch(batch), given.as_json)

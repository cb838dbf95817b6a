"""``maestro clients``: for whom agents work, and who pays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from maestro.cli.field_options import FieldOptions
from maestro.cli.operation_commands import OperationCommands
from maestro.cli.pages import table_page
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.clients.views import ClientPage, ClientView
from maestro.operations.clients import ClientOperations

NOTHING = "There are no clients."
COLUMNS = ("name", "slug", "plan", "weight", "a day", "spent today", "from")

HELP = """List, add, change and remove clients.

Agents and channels may name a client, who then pays for what is answered there. Clients stand in clients of the
configuration, or are made here; this works whether Maestro runs or not.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name or the slug of the client.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice, unique.")]


@dataclass(frozen=True)
class ClientOptions(FieldOptions):
    """The options that describe a client; None where not given."""

    slug: Annotated[str | None, typer.Option(help="A second, shorter name, unique; '' for none.")] = None
    plan: Annotated[str | None, typer.Option(help="How it is billed, a word for your books.")] = None
    daily_budget_usd: Annotated[
        float | None, typer.Option("--daily-budget", help="US dollars for it a day; 0: no limit.")
    ] = None
    weight: Annotated[float | None, typer.Option(help="Its share of what many wait for, against 1 of the others.")] = (
        None
    )


@dataclass(frozen=True)
class ClientEdits(ClientOptions):
    """The options that change a client."""

    no_budget: Annotated[
        bool, typer.Option("--no-daily-budget", help="Let budgets.clientDayUsd hold for it again.")
    ] = False

    def fields(self) -> dict[str, object]:
        """Return the fields that are to be changed."""
        fields = super().fields()
        return {**fields, "daily_budget_usd": None} if fields.pop("no_budget") else fields


def _listing(page: ClientPage) -> Iterator[str]:
    yield from table_page(COLUMNS, list(map(_row, page.items)), NOTHING)


def _row(client: ClientView) -> tuple[str, ...]:
    budget = "-" if client.daily_budget_usd is None else f"{client.daily_budget_usd:.2f}"
    origin = "configuration" if client.configured else "made here"
    return client.name, client.slug or "-", client.plan, f"{client.weight:g}", budget, f"{client.spent_usd:.2f}", origin


app = OperationCommands(HELP, lambda at: ClientOperations(at.store), field="name", ref=Name, new_ref=NewName)
app.list("List the clients by name, with what was spent for them today.", ClientOperations.list, _listing, paged=False)
app.add(
    "Add a client, whom agents and channels may name.",
    ClientOperations.add,
    NewClient,
    ClientOptions,
    " can be named by agents and channels",
)
app.edit("Change a client that was made here or on the API.", ClientOperations.change, ClientChange, ClientEdits)
app.remove("Remove a client of whom nothing speaks.", ClientOperations.remove, ClientOperations.show)

"""``maestro clients``: for whom agents work, and who pays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.table import lines
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.clients.views import ClientPage, ClientView, client_page
from maestro.domain.reading import read
from maestro.domain.values import Value

MOST = 10_000
NOTHING = "There are no clients."
COLUMNS = ("name", "slug", "plan", "weight", "a day", "spent today", "from")

HELP = """List, add, change and remove clients.

Agents and channels may name a client, who then pays for what is answered there. Clients stand in clients of the
configuration, or are made here; this works whether Maestro runs or not.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name or the slug of the client.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice, unique.")]
app = Commands(HELP)


@dataclass(frozen=True)
class ClientOptions:
    """The options that describe a client; None where not given."""

    slug: Annotated[str | None, typer.Option(help="A second, shorter name, unique; '' for none.")] = None
    plan: Annotated[str | None, typer.Option(help="How it is billed, a word for your books.")] = None
    daily_budget_usd: Annotated[
        float | None, typer.Option("--daily-budget", help="US dollars for it a day; 0: no limit.")
    ] = None
    weight: Annotated[float | None, typer.Option(help="Its share of what many wait for, against 1 of the others.")] = (
        None
    )

    def fields(self) -> dict[str, object]:
        """Return the fields that were given."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Removed(Value):
    """The client that is gone."""

    name: str


@app.command("list")
def list_clients(given: Given) -> None:
    """List the clients by name, with what was spent for them today."""
    with opened(given) as at, at.store.view() as tx:
        page = client_page(tx.budgets.clients(), tx.budgets.client_levels(), None, MOST)
    write(page, _listing(page), given.as_json)


@app.command()
def add(given: Given, name: NewName, options: ClientOptions) -> None:
    """Add a client, whom agents and channels may name."""
    with opened(given) as at:
        new = read(NewClient, {"name": name, **options.fields()})
        with at.store.begin() as tx:
            client = tx.budgets.client_view(tx.clients.create(new, ACTOR))
    write(client, [f"{client.name} can be named by agents and channels"], given.as_json)


@app.command()
def edit(
    given: Given,
    name: Name,
    options: ClientOptions,
    no_budget: Annotated[
        bool, typer.Option("--no-daily-budget", help="Let budgets.clientDayUsd hold for it again.")
    ] = False,
) -> None:
    """Change a client that was made here or on the API."""
    fields = options.fields()
    if no_budget:
        fields["daily_budget_usd"] = None
    with opened(given) as at:
        change = read(ClientChange, fields)
        with at.store.begin() as tx:
            client = tx.budgets.client_view(tx.clients.change(tx.clients.get(name), change, ACTOR))
    write(client, [f"{client.name} is changed"], given.as_json)


@app.command()
def remove(given: Given, name: Name) -> None:
    """Remove a client of whom nothing speaks."""
    with opened(given) as at, at.store.begin() as tx:
        client = tx.clients.get(name)
        gone = Removed(name=client.name)
        tx.clients.remove(client, ACTOR)
    write(gone, [f"{gone.name} is gone"], given.as_json)


def _listing(page: ClientPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    yield from lines(COLUMNS, [_row(client) for client in page.items])


def _row(client: ClientView) -> tuple[str, ...]:
    budget = "-" if client.daily_budget_usd is None else f"{client.daily_budget_usd:.2f}"
    origin = "configuration" if client.configured else "made here"
    return client.name, client.slug or "-", client.plan, f"{client.weight:g}", budget, f"{client.spent_usd:.2f}", origin

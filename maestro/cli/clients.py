"""``maestro clients``: for whom agents work, and who pays."""

from collections.abc import Iterator
from typing import Annotated

import typer

from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.cli.table import lines
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.clients.views import ClientPage, ClientView, client_page
from maestro.domain.reading import read
from maestro.domain.values import Value

MOST = 10_000
NOTHING = "There are no clients."
COLUMNS = ("name", "slug", "plan", "a day", "spent today", "from")

HELP = """List, add, change and remove clients.

Agents and channels may name a client, who then pays for what is answered there. Clients stand in clients of the
configuration, or are made here; this works whether Maestro runs or not.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name or the slug of the client.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice, unique.")]
Slug = Annotated[str | None, typer.Option(help="A second, shorter name, unique; '' for none.")]
Plan = Annotated[str | None, typer.Option(help="How it is billed, a word for your books.")]
Budget = Annotated[float | None, typer.Option("--daily-budget", help="US dollars for it a day; 0: no limit.")]

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


class Removed(Value):
    """The client that is gone."""

    name: str


@app.command("list")
def list_clients(
    ctx: typer.Context,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """List the clients by name, with what was spent for them today."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.view() as tx:
        page = client_page(tx.budgets.clients(), tx.budgets.client_levels(), None, MOST)
    write(page, _listing(page), as_json)


@app.command()
def add(
    ctx: typer.Context,
    name: NewName,
    slug: Slug = None,
    plan: Plan = None,
    daily_budget_usd: Budget = None,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Add a client, whom agents and channels may name."""
    fields = _given(slug=slug, plan=plan, daily_budget_usd=daily_budget_usd)
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at:
        new = read(NewClient, {"name": name, **fields})
        with at.store.begin() as tx:
            client = tx.budgets.client_view(tx.clients.create(new, ACTOR))
    write(client, [f"{client.name} can be named by agents and channels"], as_json)


@app.command()
def edit(
    ctx: typer.Context,
    name: Name,
    slug: Slug = None,
    plan: Plan = None,
    daily_budget_usd: Budget = None,
    no_budget: Annotated[
        bool, typer.Option("--no-daily-budget", help="Let budgets.clientDayUsd hold for it again.")
    ] = False,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Change a client that was made here or on the API."""
    fields = _given(slug=slug, plan=plan, daily_budget_usd=daily_budget_usd)
    if no_budget:
        fields["daily_budget_usd"] = None
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at:
        change = read(ClientChange, fields)
        with at.store.begin() as tx:
            client = tx.budgets.client_view(tx.clients.change(tx.clients.get(name), change, ACTOR))
    write(client, [f"{client.name} is changed"], as_json)


@app.command()
def remove(
    ctx: typer.Context,
    name: Name,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Remove a client of whom nothing speaks."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.begin() as tx:
        client = tx.clients.get(name)
        gone = Removed(name=client.name)
        tx.clients.remove(client, ACTOR)
    write(gone, [f"{gone.name} is gone"], as_json)


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _listing(page: ClientPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    yield from lines(COLUMNS, [_row(client) for client in page.items])


def _row(client: ClientView) -> tuple[str, ...]:
    budget = "-" if client.daily_budget_usd is None else f"{client.daily_budget_usd:.2f}"
    origin = "configuration" if client.configured else "made here"
    return client.name, client.slug or "-", client.plan, budget, f"{client.spent_usd:.2f}", origin

"""``maestro agents``: who answers, in which channels, and how they came to be as they are."""

from typing import Annotated

import typer

from maestro.cli import agent_bindings, agent_edits, agent_tokens, agent_versions
from maestro.cli.agent_options import Slug
from maestro.cli.agent_texts import listing, portrait
from maestro.cli.opened import opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.domain.agents.views import agent_page

LIMIT = 100
MOST = 10_000

HELP = """List, show, make, change and archive agents, and bind channels to them.

An agent answers in the channels that are bound to it, and wherever somebody mentions it as @slug. Agents stand in
agents of the configuration or are made here; either can be changed here, and each edit is a version to which you can go
back. All of this works whether Maestro runs or not, from the next message on.
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("list")
def list_agents(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many at most.")] = LIMIT,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier list said `next`.")] = None,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """List the agents by slug."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.view() as tx:
        page = agent_page(tx.agents.all(), cursor, limit)
    write(page, listing(page), as_json)


@app.command()
def show(
    ctx: typer.Context,
    slug: Slug,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Show an agent: all that can be edited of it, and its channels."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.view() as tx:
        agent = tx.agents.detail(tx.agents.named(slug))
    write(agent, portrait(agent), as_json)


app.add_typer(agent_edits.app)
app.add_typer(agent_versions.app)
app.add_typer(agent_bindings.app)
app.add_typer(agent_tokens.app)

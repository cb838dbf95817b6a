"""``maestro agents``: who answers, in which channels, and how they came to be as they are."""

from maestro.cli import agent_bindings, agent_edits, agent_tokens, agent_versions
from maestro.cli.agent_options import Slug
from maestro.cli.agent_texts import listing, portrait
from maestro.cli.commands import Commands
from maestro.cli.opened import opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, TextCursor
from maestro.domain.agents.views import agent_page

LIMIT = 100

HELP = """List, show, make, change and archive agents, and bind channels to them.

An agent answers in the channels that are bound to it, and wherever somebody mentions it as @slug. Agents stand in
agents of the configuration or are made here; either can be changed here, and each edit is a version to which you can go
back. All of this works whether Maestro runs or not, from the next message on.
"""

app = Commands(HELP)


@app.command("list")
def list_agents(
    given: Given,
    limit: Limit = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """List the agents by slug."""
    with opened(given) as at, at.store.view() as tx:
        page = agent_page(tx.agents.all(), cursor, limit)
    write(page, listing(page), given.as_json)


@app.command()
def show(given: Given, slug: Slug) -> None:
    """Show an agent: all that can be edited of it, and its channels."""
    with opened(given) as at, at.store.view() as tx:
        agent = tx.agents.detail(tx.agents.named(slug))
    write(agent, portrait(agent), given.as_json)


app.add_typer(agent_edits.app)
app.add_typer(agent_versions.app)
app.add_typer(agent_bindings.app)
app.add_typer(agent_tokens.app)

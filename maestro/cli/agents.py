"""``maestro agents``: who answers, and in which channels."""

from collections.abc import Iterator
from typing import Annotated

import typer

from maestro.cli.opened import opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.cli.table import lines, plain
from maestro.domain.agent_views import AgentDetail, AgentPage, agent_detail, agent_page

LIMIT = 100
MOST = 10_000
NOTHING = "There are no agents."
COLUMNS = ("slug", "name", "role", "status", "model", "description")
CHANNEL_COLUMNS = ("platform", "account", "channel", "permission", "conversations")

HELP = """List and show agents.

An agent answers in the channels that are bound to it, and wherever somebody mentions it as @slug. Both commands work
whether Maestro runs or not.
"""

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The slug of the agent, as `maestro agents list` shows it.")]

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
    write(page, _listing(page), as_json)


@app.command()
def show(
    ctx: typer.Context,
    slug: Slug,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Show an agent: its instructions to the model and its channels."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.view() as tx:
        agent = agent_detail(*tx.browse.agent(slug))
    write(agent, _portrait(agent), as_json)


def _listing(page: AgentPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    rows = [
        (agent.slug, agent.name, agent.role, agent.status, agent.model or "-", agent.description)
        for agent in page.items
    ]
    yield from lines(COLUMNS, rows)
    if page.next is not None:
        yield f"There are more: add --cursor {page.next}, or a larger --limit."


def _portrait(agent: AgentDetail) -> Iterator[str]:
    yield f"{agent.slug}  {agent.status}"
    facts = (
        ("name", agent.name),
        ("role", agent.role),
        ("model", agent.model or "that of the account"),
        ("description", agent.description),
    )
    yield from (f"  {name:<13} {plain(value)}" for name, value in facts if value)
    if agent.channels:
        yield from ("", "Channels")
        rows = [
            (at.platform, at.account, at.channel, at.permission, "one per user" if at.key_by_user else "one")
            for at in agent.channels
        ]
        yield from (f"  {line}" for line in lines(CHANNEL_COLUMNS, rows))
    if agent.system_prompt:
        yield from ("", "Instructions")
        yield from (f"  {plain(line)}" for line in agent.system_prompt.splitlines())

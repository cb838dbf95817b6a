"""``maestro agents token``: by which an agent outside is known to the server of MCP."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from maestro.cli.agent_options import Slug
from maestro.cli.checked import fits, row_number
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.cli.table import lines
from maestro.domain.agents.tokens import TokenPage, TokenView, token_page
from maestro.domain.columns import LARGEST
from maestro.domain.words import DisplayName

LIMIT = 100
MOST = 10_000
COLUMNS = ("number", "name", "ends in", "made", "last used", "revoked")

HELP = """Make, list and revoke the tokens of an agent.

A program that is no part of Maestro takes part as an agent when it shows a token of that agent to the MCP server, /mcp
at the address of the dashboard. docs/howto/connect-an-agent-over-mcp.md shows how.
"""

Number = Annotated[str, typer.Argument(metavar="NUMBER", help="Its number, as `maestro agents token list` shows it.")]

group = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
app = typer.Typer()
app.add_typer(group, name="token")


@group.command("new")
def make_token(
    ctx: typer.Context,
    slug: Slug,
    name: Annotated[str, typer.Option(help="Where it will be used, so that you know it again.")] = "",
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Make a token; it is shown only now."""
    name = fits(DisplayName, name)
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.begin() as tx:
        made = tx.agent_tokens.make(tx.agents.named(slug), name, ACTOR)
    write(made, [made.token, "Keep it where nobody else reads it: it is not shown again."], as_json)


@group.command("list")
def list_tokens(
    ctx: typer.Context,
    slug: Slug,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many at most.")] = LIMIT,
    cursor: Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Go on where a list said `next`.")] = None,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """List the tokens of an agent, newest first, those that were revoked too."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.view() as tx:
        page = token_page(tx.agent_tokens.of(tx.agents.named(slug), cursor, limit + 1), limit)
    write(page, _listing(page, slug), as_json)


@group.command("revoke")
def revoke_token(
    ctx: typer.Context,
    slug: Slug,
    number: Number,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Revoke a token: from its next request on it opens nothing."""
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at, at.store.begin() as tx:
        token_id = row_number(number, "a token", "NUMBER")
        revoked = TokenView.model_validate(tx.agent_tokens.revoke(tx.agents.named(slug), token_id, ACTOR))
    write(revoked, [f"token {revoked.id} of {slug} opens nothing any more"], as_json)


def _listing(page: TokenPage, slug: str) -> Iterator[str]:
    if not page.items:
        yield f"{slug} has no tokens."
        return
    yield from lines(COLUMNS, [_row(token) for token in page.items])
    if page.next is not None:
        yield f"There are more: add --cursor {page.next}, or a larger --limit."


def _row(token: TokenView) -> tuple[str, ...]:
    moments = map(_moment, (token.created_at, token.last_used_at, token.revoked_at))
    return (str(token.id), token.name or "-", token.ending, *moments)


def _moment(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else "-"

"""``maestro agents token``: by which an agent outside is known to the server of MCP."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from maestro.cli.agent_options import Slug
from maestro.cli.checked import fits, row_number
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, RowCursor, more
from maestro.cli.table import lines
from maestro.domain.agents.tokens import TokenPage, TokenView, token_page
from maestro.domain.words import DisplayName

LIMIT = 100
COLUMNS = ("number", "name", "ends in", "made", "last used", "revoked")

HELP = """Make, list and revoke the tokens of an agent.

A program that is no part of Maestro takes part as an agent when it shows a token of that agent to the MCP server, /mcp
at the address of the dashboard. docs/howto/connect-an-agent-over-mcp.md shows how.
"""

Number = Annotated[str, typer.Argument(metavar="NUMBER", help="Its number, as `maestro agents token list` shows it.")]

group = Commands(HELP)
app = Commands()
app.add_typer(group, name="token")


@group.command("new")
def make_token(
    given: Given,
    slug: Slug,
    name: Annotated[str, typer.Option(help="Where it will be used, so that you know it again.")] = "",
) -> None:
    """Make a token; it is shown only now."""
    name = fits(DisplayName, name)
    with opened(given) as at, at.store.begin() as tx:
        made = tx.agents.tokens.make(tx.agents.named(slug), name, ACTOR)
    write(made, [made.token, "Keep it where nobody else reads it: it is not shown again."], given.as_json)


@group.command("list")
def list_tokens(
    given: Given,
    slug: Slug,
    limit: Limit = LIMIT,
    cursor: RowCursor = None,
) -> None:
    """List the tokens of an agent, newest first, those that were revoked too."""
    with opened(given) as at, at.store.view() as tx:
        page = token_page(tx.agents.tokens.of(tx.agents.named(slug), cursor, limit + 1), limit)
    write(page, _listing(page, slug), given.as_json)


@group.command("revoke")
def revoke_token(
    given: Given,
    slug: Slug,
    number: Number,
) -> None:
    """Revoke a token: from its next request on it opens nothing."""
    with opened(given) as at, at.store.begin() as tx:
        token_id = row_number(number, "token", "NUMBER")
        revoked = TokenView.model_validate(tx.agents.tokens.revoke(tx.agents.named(slug), token_id, ACTOR))
    write(revoked, [f"token {revoked.id} of {slug} opens nothing any more"], given.as_json)


def _listing(page: TokenPage, slug: str) -> Iterator[str]:
    if not page.items:
        yield f"{slug} has no tokens."
        return
    yield from lines(COLUMNS, [_row(token) for token in page.items])
    yield from more(page.next)


def _row(token: TokenView) -> tuple[str, ...]:
    moments = map(_moment, (token.created_at, token.last_used_at, token.revoked_at))
    return (str(token.id), token.name or "-", token.ending, *moments)


def _moment(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else "-"

"""``maestro agents versions``, ``diff`` and ``rollback``: what became of an agent with each edit, and the way back."""

from typing import Annotated

import typer

from maestro.cli.agent_edits import said
from maestro.cli.agent_options import Force, Reason, Slug
from maestro.cli.agent_texts import differences, history
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit
from maestro.domain.agents.views import version_detail, version_page
from maestro.domain.columns import LARGEST
from maestro.domain.errors import Conflict

LIMIT = 20

app = Commands()


@app.command()
def versions(
    given: Given,
    slug: Slug,
    limit: Limit = LIMIT,
    cursor: Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Go on where a list said `next`.")] = None,
) -> None:
    """List the edits of an agent, newest first: who, when and what."""
    with opened(given) as at, at.store.view() as tx:
        page = version_page(tx.agents.versions.of(tx.agents.named(slug), cursor, limit + 1), limit)
    write(page, history(page), given.as_json)


@app.command("diff")
def show_diff(
    given: Given,
    slug: Slug,
    version: Annotated[int | None, typer.Option(help="The version to look at; without it, the newest.")] = None,
    against: Annotated[
        int | None, typer.Option(help="The version to compare with; without it, the one before.")
    ] = None,
) -> None:
    """Show what an edit changed."""
    with opened(given) as at, at.store.view() as tx:
        agent = tx.agents.named(slug)
        found = version_detail(*tx.agents.versions.pair(agent, agent.version if version is None else version, against))
    write(found, differences(found), given.as_json)


@app.command()
def rollback(
    given: Given,
    slug: Slug,
    to: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Which version; without it, the one before.")
    ] = None,
    reason: Reason = "",
    force: Force = False,
) -> None:
    """Make an agent what it was: a new version that is as an old one."""
    with opened(given) as at, at.store.begin() as tx:
        agent = tx.agents.named(slug)
        before = agent.version
        number = to or before - 1
        if number < 1:
            raise Conflict(f"agent {slug} has only one version; there is nothing to go back to")
        detail = tx.agents.detail(tx.agents.roll_back(agent, number, ACTOR, reason, force=force))
    write(detail, [said(detail, before)], given.as_json)

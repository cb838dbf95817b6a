"""``maestro agents create``, ``edit`` and the commands that change what an agent's status is."""

from typing import Annotated

import typer

from maestro.cli.agent_options import AgentOptions, Force, NewSlug, Reason, Reset, Slug, fields_reset
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent
from maestro.domain.agents.views import AgentDetail
from maestro.domain.reading import read
from maestro.domain.values import Value

Purge = Annotated[
    bool, typer.Option("--purge", help="Remove it for good; only an agent of which nothing speaks can be.")
]

app = Commands()


class Gone(Value):
    """The agent that was removed for good."""

    slug: str


@app.command()
def create(given: Given, slug: NewSlug, options: AgentOptions, reason: Reason = "") -> None:
    """Make an agent."""
    with opened(given) as at:
        new = read(NewAgent, {"slug": slug, **options.fields()})
        with at.store.begin() as tx:
            agent = tx.agents.detail(tx.agents.create(new, ACTOR, reason))
    news = f"{agent.slug} answers where somebody mentions @{agent.slug}, or where you bind a channel to it"
    write(agent, [news], given.as_json)


@app.command()
def edit(
    given: Given,
    slug: Slug,
    options: AgentOptions,
    reset: Reset = None,
    reason: Reason = "",
    force: Force = False,
) -> None:
    """Change an agent, from the next message on; what is not given stays."""
    _change(given, slug, {**fields_reset(reset), **options.fields(), "force": force}, reason)


@app.command()
def archive(given: Given, slug: Slug, purge: Purge = False, reason: Reason = "", force: Force = False) -> None:
    """Let an agent answer no more, and free its channels; its conversations and its memory stay."""
    if not purge:
        _change(given, slug, {"status": AgentStatus.ARCHIVED, "force": force}, reason)
        return
    with opened(given) as at, at.store.begin() as tx:
        tx.agents.purge(tx.agents.named(slug), ACTOR, force=force)
    write(Gone(slug=slug), [f"{slug} is gone for good"], given.as_json)


@app.command()
def restore(given: Given, slug: Slug, reason: Reason = "") -> None:
    """Let an archived agent answer again; the channels it had have to be bound anew."""
    _change(given, slug, {"status": AgentStatus.ACTIVE}, reason)


@app.command()
def pause(given: Given, slug: Slug, reason: Reason = "") -> None:
    """Let an agent answer no more until it is resumed; its channels stay its own."""
    _change(given, slug, {"status": AgentStatus.PAUSED}, reason)


@app.command()
def resume(given: Given, slug: Slug, reason: Reason = "") -> None:
    """Let a paused agent answer again."""
    _change(given, slug, {"status": AgentStatus.ACTIVE}, reason)


def _change(given: Given, slug: str, fields: dict[str, object], reason: str) -> None:
    with opened(given) as at:
        change = read(AgentChange, fields)
        with at.store.begin() as tx:
            agent = tx.agents.named(slug)
            before = agent.version
            detail = tx.agents.detail(tx.agents.change(agent, change, ACTOR, reason))
    write(detail, [said(detail, before)], given.as_json)


def said(agent: AgentDetail, before: int) -> str:
    """Say what a change has led to."""
    if agent.version == before:
        return f"{agent.slug} is that already; it stays at version {before}"
    return f"{agent.slug} is at version {agent.version} now, and {agent.status}"

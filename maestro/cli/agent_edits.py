"""``maestro agents create``, ``edit`` and the commands that change what an agent's status is."""

from typing import Annotated

import typer

from maestro.cli.agent_options import (
    AllowUsers,
    Budget,
    Client,
    Description,
    Fallbacks,
    Force,
    Model,
    Name,
    NewSlug,
    PromptFile,
    Quirks,
    Reason,
    Reset,
    Role,
    Scope,
    Skills,
    Slug,
    Tools,
    Voice,
    fields_given,
    fields_reset,
)
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Config, DataDir, Debug, Given, Json
from maestro.cli.output import write
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent
from maestro.domain.agents.views import AgentDetail
from maestro.domain.reading import read
from maestro.domain.values import Value

Purge = Annotated[
    bool, typer.Option("--purge", help="Remove it for good; only an agent of which nothing speaks can be.")
]

app = typer.Typer()


class Gone(Value):
    """The agent that was removed for good."""

    slug: str


@app.command()
def create(
    ctx: typer.Context,
    slug: NewSlug,
    name: Name = None,
    role: Role = None,
    description: Description = None,
    voice: Voice = None,
    quirks: Quirks = None,
    prompt_file: PromptFile = None,
    model: Model = None,
    fallbacks: Fallbacks = None,
    tools: Tools = None,
    skills: Skills = None,
    allow_users: AllowUsers = None,
    memory_scope: Scope = None,
    client: Client = None,
    daily_budget_usd: Budget = None,
    reason: Reason = "",
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Make an agent."""
    persona = {"name": name, "role": role, "description": description, "voice": voice, "quirks": quirks}
    models = {"model": model, "fallbacks": fallbacks, "client": client, "daily_budget_usd": daily_budget_usd}
    allowed = {"tools": tools, "skills": skills, "allow_users": allow_users, "memory_scope": memory_scope}
    given = Given.of(ctx, config, data_dir, debug)
    with opened(given) as at:
        new = read(NewAgent, {"slug": slug, **fields_given({**persona, **models, **allowed}, prompt_file)})
        with at.store.begin() as tx:
            agent = tx.agents.detail(tx.agents.create(new, ACTOR, reason))
    write(
        agent,
        [f"{agent.slug} answers where somebody mentions @{agent.slug}, or where you bind a channel to it"],
        as_json,
    )


@app.command()
def edit(
    ctx: typer.Context,
    slug: Slug,
    name: Name = None,
    role: Role = None,
    description: Description = None,
    voice: Voice = None,
    quirks: Quirks = None,
    prompt_file: PromptFile = None,
    model: Model = None,
    fallbacks: Fallbacks = None,
    tools: Tools = None,
    skills: Skills = None,
    allow_users: AllowUsers = None,
    memory_scope: Scope = None,
    client: Client = None,
    daily_budget_usd: Budget = None,
    reset: Reset = None,
    reason: Reason = "",
    force: Force = False,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Change an agent, from the next message on; what is not given stays."""
    persona = {"name": name, "role": role, "description": description, "voice": voice, "quirks": quirks}
    models = {"model": model, "fallbacks": fallbacks, "client": client, "daily_budget_usd": daily_budget_usd}
    allowed = {"tools": tools, "skills": skills, "allow_users": allow_users, "memory_scope": memory_scope}
    back = fields_reset(reset)
    given = Given.of(ctx, config, data_dir, debug)
    fields = {**back, **fields_given({**persona, **models, **allowed}, prompt_file), "force": force}
    _change(given, slug, fields, reason, as_json)


@app.command()
def archive(
    ctx: typer.Context,
    slug: Slug,
    purge: Purge = False,
    reason: Reason = "",
    force: Force = False,
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Let an agent answer no more, and free its channels; its conversations and its memory stay."""
    given = Given.of(ctx, config, data_dir, debug)
    if not purge:
        _change(given, slug, {"status": AgentStatus.ARCHIVED, "force": force}, reason, as_json)
        return
    with opened(given) as at, at.store.begin() as tx:
        tx.agents.purge(tx.agents.named(slug), ACTOR, force=force)
    write(Gone(slug=slug), [f"{slug} is gone for good"], as_json)


@app.command()
def restore(
    ctx: typer.Context,
    slug: Slug,
    reason: Reason = "",
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Let an archived agent answer again; the channels it had have to be bound anew."""
    given = Given.of(ctx, config, data_dir, debug)
    _change(given, slug, {"status": AgentStatus.ACTIVE}, reason, as_json)


@app.command()
def pause(
    ctx: typer.Context,
    slug: Slug,
    reason: Reason = "",
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Let an agent answer no more until it is resumed; its channels stay its own."""
    given = Given.of(ctx, config, data_dir, debug)
    _change(given, slug, {"status": AgentStatus.PAUSED}, reason, as_json)


@app.command()
def resume(
    ctx: typer.Context,
    slug: Slug,
    reason: Reason = "",
    as_json: Json = False,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Let a paused agent answer again."""
    given = Given.of(ctx, config, data_dir, debug)
    _change(given, slug, {"status": AgentStatus.ACTIVE}, reason, as_json)


def _change(given: Given, slug: str, fields: dict[str, object], reason: str, as_json: bool) -> None:
    with opened(given) as at:
        change = read(AgentChange, fields)
        with at.store.begin() as tx:
            agent = tx.agents.named(slug)
            before = agent.version
            detail = tx.agents.detail(tx.agents.change(agent, change, ACTOR, reason))
    write(detail, [said(detail, before)], as_json)


def said(agent: AgentDetail, before: int) -> str:
    """Say what a change has led to."""
    if agent.version == before:
        return f"{agent.slug} is that already; it stays at version {before}"
    return f"{agent.slug} is at version {agent.version} now, and {agent.status}"

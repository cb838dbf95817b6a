"""List, show, make, change and archive agents, and bind channels to them.

An agent answers in the channels that are bound to it, and where a user mentions it as @slug. Agents come from the
configuration (agents) or from `create`. Both kinds can be edited here, and each edit is a version to which you can go
back. Changes count from the next message on, whether Maestro runs or not.
"""

import difflib
import json
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import JsonValue

from maestro.cli.framework.commands import Fields, InputOptions, Limit, RowCursor, build_input, row_number
from maestro.cli.framework.operations import ACTOR, PAGES, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, list_lines, local_time_text, plain_line
from maestro.domain.agents.agent import AgentStatus, NewToken
from maestro.domain.agents.edits import AgentChange, AgentFields, BoundChannel, NewAgent, Rollback
from maestro.domain.agents.views import AgentDetail, VersionDetail
from maestro.domain.messages import DEFAULT_ACCOUNT, Address
from maestro.domain.values import read
from maestro.operations.agents import AgentOperations, BindingOperations, TokenOperations
from maestro.operations.inputs import LIMIT

TOKENS_HELP = """Make, list and revoke the tokens of an agent.

Another program acts as an agent when it sends a token of that agent to Maestro's MCP server, at /mcp under the
address of the dashboard. docs/howto/connect-an-agent-over-mcp.md shows how to connect the program.
"""


def _list_text(words: tuple[str, ...] | None) -> str:
    return "" if words is None else ", ".join(words) or "none"


COLUMNS = Columns("slug name role status version edited=updated_at model description")
PORTRAIT = Portrait(
    lambda agent: f"{agent.slug}  {agent.status}, version {agent.version} of {local_time_text(agent.updated_at)}",
    hide="id slug status version updated_at configured created_at",
    lines_of={
        "model": lambda agent: agent.model or "that of the account",
        "tools": lambda agent: _list_text(agent.tools),
        "skills": lambda agent: _list_text(agent.skills),
        "allow users": lambda agent: _list_text(agent.allow_users),
        "daily budget usd": lambda agent: "no limit" if agent.daily_budget_usd == 0 else agent.daily_budget_usd,
    },
    text="system_prompt",
)
VERSION_COLUMNS = Columns(
    "version when=at by=actor changed reason",
    {"changed": lambda version: version.changed if version.version > 1 else "made"},
)
TOKEN_COLUMNS = Columns("number=id name ends_in=ending made=created_at last_used=last_used_at revoked=revoked_at")
OPTIONS = InputOptions(
    AgentFields,
    leave_out=["status"],
    spelling={
        **{name: f"--{name.replace('_', '-')} LIST" for name in ("tools", "skills", "fallbacks", "allow_users")},
        "quirks": "--quirk",
        "daily_budget_usd": "--daily-budget",
        "system_prompt": "",
    },
    prompt="system_prompt",
)

Slug = Annotated[str, "SLUG: The slug of the agent, as `maestro agents list` shows it."]
NewSlug = Annotated[str, "SLUG: The short name of the agent; users mention it as @SLUG."]
Reset = Annotated[
    list[str] | None, "FIELD: Reset a field to the default of all agents, such as tools or allowUsers; may be repeated."
]
Reason = Annotated[str, "The reason for the change, for the agent's history."]
Force = Annotated[bool, "--force: Do it even if no agent then answers direct messages."]
PlatformName = Annotated[str, "PLATFORM: The platform, such as web or discord."]
Channel = Annotated[str, "CHANNEL: The platform's id of the channel."]
AccountOption = Annotated[str, "The account (bot) of Maestro on that platform."]

app = OperationCommands(__doc__, lambda at: AgentOperations(at.store), Slug, "slug")
app.list("List the agents by slug.", COLUMNS, "There are no agents.", PAGES)
app.show("Show an agent: all its fields, and its channels.", PORTRAIT)


@app.operation()
def create(agents: AgentOperations, slug: NewSlug, options: Annotated[Fields, OPTIONS], reason: Reason = "") -> Result:
    """Create an agent."""
    agent = agents.add(read(NewAgent, {"slug": slug, **options}), ACTOR, reason)
    return agent, f"{agent.slug} answers where a user mentions @{agent.slug}, and in channels that you bind to it"


@app.operation()
def edit(
    agents: AgentOperations,
    slug: Slug,
    options: Annotated[Fields, OPTIONS],
    reset: Reset = None,
    reason: Reason = "",
    force: Force = False,
) -> Result:
    """Change an agent, from the next message on; options that are not given change nothing."""
    return _change_agent(agents, slug, {**_default_fields(reset or []), **options, "force": force}, reason)


@app.operation()
def archive(
    agents: AgentOperations,
    slug: Slug,
    purge: Annotated[bool, "--purge: Delete it for good, unless jobs, memory or conversations refer to it."] = False,
    reason: Reason = "",
    force: Force = False,
) -> Result:
    """Archive an agent: it answers no more, and its channels are unbound; its conversations and memory stay."""
    if not purge:
        return _change_agent(agents, slug, {"status": AgentStatus.ARCHIVED, "force": force}, reason)
    agents.remove(slug, ACTOR, purge=True, force=force)
    return {"slug": slug}, f"{slug} is gone for good"


@app.operation()
def restore(agents: AgentOperations, slug: Slug, reason: Reason = "") -> Result:
    """Restore an archived agent; its former channels have to be bound again."""
    return _change_agent(agents, slug, {"status": AgentStatus.ACTIVE}, reason)


@app.operation()
def pause(agents: AgentOperations, slug: Slug, reason: Reason = "") -> Result:
    """Pause an agent: it answers no more until it is resumed, and keeps its channels."""
    return _change_agent(agents, slug, {"status": AgentStatus.PAUSED}, reason)


@app.operation()
def resume(agents: AgentOperations, slug: Slug, reason: Reason = "") -> Result:
    """Let a paused agent answer again."""
    return _change_agent(agents, slug, {"status": AgentStatus.ACTIVE}, reason)


@app.operation("versions")
def list_versions(agents: AgentOperations, slug: Slug, limit: Limit = 20, cursor: RowCursor = None) -> Result:
    """List the edits of an agent, newest first: author, time and changed fields."""
    page = agents.versions(slug, limit, str(cursor) if cursor else None)
    return page, list_lines(page, VERSION_COLUMNS, "There are no earlier versions.")


@app.operation("diff")
def show_diff(
    agents: AgentOperations,
    slug: Slug,
    version: Annotated[int | None, "The version to show; by default the newest."] = None,
    against: Annotated[int | None, "The version to compare with; by default the one before."] = None,
) -> Result:
    """Show the differences between a version and the version before, or the one of --against."""
    detail = agents.version(slug, agents.show(slug).version if version is None else version, against)
    return detail, _difference_lines(detail)


@app.operation()
def rollback(
    agents: AgentOperations,
    slug: Slug,
    to: Annotated[int | None, "VERSION: The version to return to; by default the one before."] = None,
    reason: Reason = "",
    force: Force = False,
) -> Result:
    """Roll an agent back: create a new version with the content of an earlier one."""
    before = agents.show(slug).version
    if to is None:
        agent = agents.undo(slug, ACTOR, reason, force=force)
    else:
        agent = agents.roll_back(slug, read(Rollback, {"version": to, "reason": reason, "force": force}), ACTOR)
    return agent, _change_text(agent, before)


bindings = OperationCommands(None, lambda at: BindingOperations(at.store))


@bindings.operation()
def bind(
    operations: BindingOperations,
    slug: Slug,
    platform: PlatformName,
    channel: Channel,
    options: Annotated[Fields, InputOptions(BoundChannel, leave_out=["agent", "platform", "channel", "account"])],
    account: AccountOption = DEFAULT_ACCOUNT,
) -> Result:
    """Bind a channel to an agent, from the next message on."""
    fields = {"agent": slug, "platform": platform, "account": account, "channel": channel, **options}
    binding = operations.add(read(BoundChannel, fields), ACTOR)
    return binding, f"{slug} answers in {platform}/{channel} from the next message on"


@bindings.operation()
def unbind(
    operations: BindingOperations, platform: PlatformName, channel: Channel, account: AccountOption = DEFAULT_ACCOUNT
) -> Result:
    """Unbind a channel from its agent."""
    address = {"platform": platform, "account": account, "channel": channel}
    operations.free(Address(**address), ACTOR)
    return address, f"{platform}/{channel} is bound to no agent now"


tokens = OperationCommands(TOKENS_HELP, lambda at: TokenOperations(at.store))
app.add_typer(bindings)
app.add_typer(tokens, name="token")


@tokens.operation("new")
def make_token(
    operations: TokenOperations,
    slug: Slug,
    name: Annotated[str, "Where the token will be used, so that you recognize it."] = "",
) -> Result:
    """Create a token with which a program acts as the agent; the token is shown only once."""
    token = operations.add(slug, build_input(NewToken, name=name), ACTOR)
    return token, [token.token, "Keep the token secret: it is not shown again."]


@tokens.operation("list")
def list_tokens(operations: TokenOperations, slug: Slug, limit: Limit = LIMIT, cursor: RowCursor = None) -> Result:
    """List the tokens of an agent, including revoked tokens, newest first."""
    page = operations.list(slug, limit, cursor)
    return page, list_lines(page, TOKEN_COLUMNS, f"{slug} has no tokens.")


@tokens.operation("revoke")
def revoke_token(
    operations: TokenOperations,
    slug: Slug,
    number: Annotated[
        int, "NUMBER: The number of the token, as `maestro agents token list` shows it.", row_number("token", "NUMBER")
    ],
) -> Result:
    """Revoke a token; Maestro refuses every later request with it."""
    revoked = operations.revoke(slug, number, ACTOR)
    return revoked, f"token {revoked.id} of {slug} is revoked"


def _change_agent(agents: AgentOperations, slug: str, fields: Fields, reason: str) -> Result:
    change, before = read(AgentChange, fields), agents.show(slug).version
    agent = agents.change(slug, change, ACTOR, reason)
    return agent, _change_text(agent, before)


def _change_text(agent: AgentDetail, before: int) -> str:
    if agent.version == before:
        return f"{agent.slug} has these values already; it stays at version {before}"
    return f"{agent.slug} is at version {agent.version} now, and {agent.status}"


def _default_fields(names: list[str]) -> Fields:
    """Return the default values of these fields of an agent; raises ``BadParameter`` for an unknown field."""
    known = {
        spelling: (name, field.get_default())
        for name, field in AgentFields.model_fields.items()
        if name not in ("status", "role", "system_prompt")
        for spelling in (name, field.alias, name.replace("_", "-"))
    }
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no field {name!r} to reset; --help lists all", param_hint="--reset")
    return dict(known[name] for name in names)


def _difference_lines(version: VersionDetail) -> Iterator[str]:
    """Yield the lines that show each changed field; texts of several lines are compared line by line."""
    compared = f"against version {version.against}" if version.against is not None else "the first"
    yield f"version {version.version} of {local_time_text(version.at)} by {plain_line(version.actor)}, {compared}"
    if not version.changes:
        yield "nothing is different"
    for change in version.changes:
        before, after = ([] if version.against is None else _value_lines(change.before)), _value_lines(change.after)
        if max(len(before), len(after)) <= 1:
            yield f"  {change.field}: {' -> '.join(' '.join(lines) for lines in (before, after) if lines)}"
            continue
        yield f"  {change.field}:"
        difference = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
        yield from (f"    {line}" for line in difference if not line.startswith("@@"))


def _value_lines(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [plain_line(line) for line in value.splitlines()] or ['""']
    return [plain_line(json.dumps(value, ensure_ascii=False))]

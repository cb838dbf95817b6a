"""Agents, their versions and their channels as text for a terminal."""

import difflib
import json
from collections.abc import Iterator

from pydantic import JsonValue

from maestro.cli.pages import more
from maestro.cli.table import lines, plain
from maestro.domain.agents.versions import FieldChange
from maestro.domain.agents.views import AgentDetail, AgentPage, Binding, VersionDetail, VersionPage

NOTHING = "There are no agents."
COLUMNS = ("slug", "name", "role", "status", "version", "edited", "model", "description")
CHANNEL_COLUMNS = ("platform", "account", "channel", "permission", "conversations", "from")
VERSION_COLUMNS = ("version", "when", "by", "changed", "reason")
MOMENT = "%Y-%m-%d %H:%M:%S"


def listing(page: AgentPage) -> Iterator[str]:
    """Write the agents as a table."""
    if not page.items:
        yield NOTHING
        return
    rows = [
        (
            agent.slug,
            agent.name,
            agent.role,
            agent.status,
            str(agent.version),
            agent.updated_at.astimezone().strftime(MOMENT),
            agent.model or "-",
            agent.description,
        )
        for agent in page.items
    ]
    yield from lines(COLUMNS, rows)
    yield from more(page.next)


def portrait(agent: AgentDetail) -> Iterator[str]:
    """Write everything about an agent."""
    edited = agent.updated_at.astimezone().strftime(MOMENT)
    yield f"{agent.slug}  {agent.status}, version {agent.version} of {edited}"
    yield from (f"  {name:<13} {plain(value)}" for name, value in _facts(agent) if value)
    if agent.channels:
        yield from ("", "Channels")
        yield from (f"  {line}" for line in lines(CHANNEL_COLUMNS, [_channel(at) for at in agent.channels]))
    if agent.system_prompt:
        yield from ("", "Instructions")
        yield from (f"  {plain(line)}" for line in agent.system_prompt.splitlines())


def history(page: VersionPage) -> Iterator[str]:
    """Write the versions of an agent as a table."""
    rows = [
        (
            str(one.version),
            one.at.astimezone().strftime(MOMENT),
            one.actor,
            ", ".join(one.changed) if one.version > 1 else "made",
            one.reason,
        )
        for one in page.items
    ]
    yield from lines(VERSION_COLUMNS, rows)
    yield from more(page.next)


def differences(version: VersionDetail) -> Iterator[str]:
    """Write what is different in a version, longer texts line by line."""
    beside = f"against version {version.against}" if version.against is not None else "the first"
    yield f"version {version.version} of {version.at.astimezone().strftime(MOMENT)} by {plain(version.actor)}, {beside}"
    if not version.changes:
        yield "nothing is different"
    for change in version.changes:
        yield from _change(change, first=version.against is None)


def _change(change: FieldChange, *, first: bool) -> Iterator[str]:
    before, after = ([] if first else _text(change.before)), _text(change.after)
    if max(len(before), len(after)) <= 1:
        yield f"  {change.field}: {' '.join([*before, '->'] if before else [])} {' '.join(after)}".replace(":  ", ": ")
        return
    yield f"  {change.field}:"
    compared = difflib.unified_diff(before, after, lineterm="", n=1)
    yield from (f"    {line}" for line in list(compared)[2:] if not line.startswith("@@"))


def _text(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [plain(line) for line in value.splitlines()] or ['""']
    return [plain(json.dumps(value, ensure_ascii=False))]


def _facts(agent: AgentDetail) -> tuple[tuple[str, str], ...]:
    budget = agent.daily_budget_usd
    return (
        ("name", agent.name),
        ("role", agent.role),
        ("model", agent.model or "that of the account"),
        ("fallbacks", ", ".join(agent.fallbacks)),
        ("description", agent.description),
        ("voice", agent.voice),
        ("quirks", "; ".join(agent.quirks)),
        ("tools", _words(agent.tools)),
        ("skills", _words(agent.skills)),
        ("for", _words(agent.allow_users)),
        ("remembers", f"by {agent.memory_scope}" if agent.memory_scope else ""),
        ("client", agent.client),
        ("daily budget", "" if budget is None else f"{budget:g} US dollars" if budget else "none"),
    )


def _words(words: tuple[str, ...] | None) -> str:
    """Write a list; empty for what everybody has."""
    return "" if words is None else ", ".join(words) or "none"


def _channel(at: Binding) -> tuple[str, ...]:
    conversations = "one per user" if at.key_by_user else "one"
    origin = "configuration" if at.configured else "made here"
    return at.platform, at.account, at.channel, at.permission, conversations, origin

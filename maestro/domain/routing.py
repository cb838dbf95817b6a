"""Who answers a message, or why nobody does (specification 003, step 2; decisions 2 and 3)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from maestro.domain.agents import CONDUCTOR, Agent, AgentChannel, Permission
from maestro.domain.messages import IncomingMessage

DASHBOARD_PREFIX = "dashboard-agent-"


@dataclass(frozen=True)
class Route:
    """An agent, or nobody; ``reason`` says by which rule."""

    agent: Agent | None
    reason: str


def route(message: IncomingMessage, binding: AgentChannel | None, agents: Sequence[Agent], fallback: str = "") -> Route:
    """Pick the agent that should answer; ``agents`` are the active ones, oldest first.

    First match wins: the channel's own agent; a mention ``@slug`` or ``@name`` as a whole token; a dashboard
    channel of one agent; a direct message, which goes to the conductor; the ``fallback`` agent, if its slug is given.
    """
    by_id = {agent.id: agent for agent in agents}
    if binding is not None and binding.agent_id in by_id:
        return Route(by_id[binding.agent_id], "the channel is bound to the agent")
    mentioned = next((agent for agent in agents if _mentions(message.content, agent)), None)
    if mentioned is not None:
        return Route(mentioned, "the message mentions the agent")
    dashboard = _dashboard_agent(message, by_id)
    if dashboard is not None:
        return Route(dashboard, "the channel is the agent's own on the dashboard")
    conductor = next((agent for agent in agents if agent.role == CONDUCTOR), None)
    if message.is_direct and conductor is not None:
        return Route(conductor, "a direct message goes to the conductor")
    last = next((agent for agent in agents if fallback and agent.slug == fallback), None)
    if last is not None:
        return Route(last, "no rule names an agent, so the fallback agent answers")
    if message.is_direct:
        return Route(None, "there is no active conductor")
    return Route(None, "no agent is bound to the channel and none is mentioned")


def may_talk(message: IncomingMessage, binding: AgentChannel | None) -> str | None:
    """Return why this person may not talk to the agent here, or None; owners always may (decision 3)."""
    if message.is_owner or binding is None or binding.permission is Permission.FULL:
        return None
    return f"the channel's permission is {binding.permission}"


def _mentions(content: str, agent: Agent) -> bool:
    names = "|".join(re.escape(name) for name in (agent.slug, agent.name) if name)
    return re.search(rf"(?<!\w)@(?:{names})(?!\w)", content, re.IGNORECASE) is not None


def _dashboard_agent(message: IncomingMessage, by_id: dict[int | None, Agent]) -> Agent | None:
    channel = message.address.channel
    number = channel.removeprefix(DASHBOARD_PREFIX)
    if message.address.platform != "web" or number == channel or not number.isdecimal():
        return None
    return by_id.get(int(number))

"""Who may talk to which agent (decision 3)."""

from dataclasses import dataclass
from enum import StrEnum

from maestro.domain.agents import Agent, AgentChannel, Permission
from maestro.domain.owners import PersonId


class DmPolicy(StrEnum):
    """Who is answered in direct messages besides the people we know: everybody, who was paired, nobody."""

    OPEN = "open"
    PAIRING = "pairing"
    ALLOWLIST = "allowlist"


@dataclass(frozen=True)
class Person:
    """Who wants something; ``known`` says that an operator let them in."""

    id: PersonId
    is_owner: bool = False
    known: bool = False


def refusal(person: Person, agent: Agent, binding: AgentChannel | None = None) -> str | None:
    """Return why this person may not talk to this agent, or None.

    Owners always may. Then the permission of the channel counts, which only a full one grants; then the agent's list,
    if it has one; else everybody may. A delegation asks this of its target, without a ``binding``.
    """
    if person.is_owner:
        return None
    if binding is not None and binding.permission is not Permission.FULL:
        return f"the channel's permission is {binding.permission}"
    if agent.allow_users is not None and not on_list(person, agent):
        return f"the person is not on the list of {agent.slug} (allowUsers)"
    return None


def stranger(person: Person, agent: Agent | None, binding: AgentChannel | None) -> bool:
    """Say whether a direct message comes from somebody whom we do not know, so that ``DmPolicy`` decides.

    Known are owners, who was let in by an operator, who is on the agent's list, and everybody in a channel that is
    bound with full permission.
    """
    bound = binding is not None and binding.permission is Permission.FULL
    return not (person.is_owner or person.known or bound or (agent is not None and on_list(person, agent)))


def on_list(person: Person, agent: Agent) -> bool:
    """Say whether the agent's list names this person."""
    return str(person.id) in (agent.allow_users or "").split()

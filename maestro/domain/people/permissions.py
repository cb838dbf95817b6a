"""Who may talk to which agent (docs/decisions.md: access)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import PersonId


class DmPolicy(StrEnum):
    """Who is answered in direct messages besides the people we know: everybody, who was paired, nobody."""

    OPEN = "open"
    PAIRING = "pairing"
    ALLOWLIST = "allowlist"


TURNED_AWAY = {
    DmPolicy.PAIRING: "the person is not known: an operator has to let them in first (dmPolicy pairing)",
    DmPolicy.ALLOWLIST: "direct messages of people who are not known are not answered (dmPolicy allowlist)",
}
"""Why a stranger is not answered."""


@dataclass(frozen=True)
class AccessRules:
    """What the configuration says: the owners, as ``platform:userId``, and the policy of each platform.

    Where it says nothing of a platform, people have to be paired.
    """

    owners: frozenset[str] = frozenset()
    dm_policies: Mapping[str, DmPolicy] = field(default_factory=dict)

    def policy(self, platform: str) -> DmPolicy:
        """Return who is answered in direct messages of this platform."""
        return self.dm_policies.get(platform, DmPolicy.PAIRING)


@dataclass(frozen=True)
class Person:
    """Who wants something; ``known`` says that an operator let them in."""

    id: PersonId
    is_owner: bool = False
    known: bool = False

    @classmethod
    def who_sent(cls, row: InboxRow) -> "Person":
        """Return whose message this is; whether they are known is not looked up."""
        return cls(PersonId(row.platform, row.user_id), row.is_owner)


def refusal(person: Person, agent: Agent | None, binding: AgentChannel | None = None) -> str | None:
    """Return why this person may not talk to this agent, or None.

    Owners always may. Then the permission of the channel counts, which only a full one grants; then the agent's list,
    if it has one; else everybody may. A delegation asks this of its target, without a ``binding``. Where no agent
    answers, ``binding`` alone says whether control words are obeyed.
    """
    if person.is_owner:
        return None
    if binding is not None and binding.permission is not Permission.FULL:
        return f"the channel's permission is {binding.permission}"
    if agent is not None and agent.allow_users is not None and not on_list(person, agent):
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

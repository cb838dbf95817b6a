"""Access rules: which user may talk to which agent (docs/decisions.md: access)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import PersonId


class DmPolicy(StrEnum):
    """The policy for direct messages of unknown users: answer all, only after pairing, or none."""

    OPEN = "open"
    PAIRING = "pairing"
    ALLOWLIST = "allowlist"


UNKNOWN_USER_REASONS = {
    DmPolicy.PAIRING: "the user is not known: an operator has to approve the user first (dmPolicy pairing)",
    DmPolicy.ALLOWLIST: "direct messages of unknown users are not answered (dmPolicy allowlist)",
}
"""Why a direct message of an unknown user is not answered, by policy."""


@dataclass(frozen=True)
class AccessRules:
    """The access settings: the owners, as ``platform:userId``, and the policy for direct messages of each platform.

    A platform without a policy requires pairing.
    """

    owners: frozenset[str] = frozenset()
    dm_policies: Mapping[str, DmPolicy] = field(default_factory=dict)

    def policy(self, platform: str) -> DmPolicy:
        """Return the policy for direct messages on this platform."""
        return self.dm_policies.get(platform, DmPolicy.PAIRING)


@dataclass(frozen=True)
class Person:
    """The user that sends a message or a request; ``known`` means that an operator approved the user."""

    id: PersonId
    is_owner: bool = False
    known: bool = False

    @classmethod
    def sender_of(cls, row: InboxRow) -> "Person":
        """Return the sender of a message; ``known`` is not looked up."""
        return cls(PersonId(row.platform, row.user_id), row.is_owner)


def access_refusal(person: Person, agent: Agent | None, binding: AgentChannel | None = None) -> str | None:
    """Return why a user may not talk to an agent, None if access is allowed.

    Owners always have access. For other users, a given ``binding`` must have full permission, and a user list of the
    agent must name the user. A delegation is checked without a ``binding``. Where no agent answers, only the
    ``binding`` decides whether control words are obeyed.
    """
    if person.is_owner:
        return None
    if binding is not None and binding.permission is not Permission.FULL:
        return f"the channel's permission is {binding.permission}"
    if agent is not None and agent.allow_users is not None and not is_on_allow_list(person, agent):
        return f"the user is not on the list of {agent.slug} (allowUsers)"
    return None


def is_unknown(person: Person, agent: Agent | None, binding: AgentChannel | None) -> bool:
    """Return whether the user is unknown, so that ``DmPolicy`` decides about the user's direct messages.

    Known are owners, approved users, users on the agent's list, and all users in a channel that is bound with full
    permission.
    """
    bound = binding is not None and binding.permission is Permission.FULL
    return not (person.is_owner or person.known or bound or (agent is not None and is_on_allow_list(person, agent)))


def is_on_allow_list(person: Person, agent: Agent) -> bool:
    """Return whether the agent's list names this user."""
    return str(person.id) in (agent.allow_users or "").split()

"""Agents and the channels bound to them."""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus
from maestro.domain.errors import NotFound
from maestro.domain.messages import Address
from maestro.store.editions import kept_while
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Agents(Repository):
    """All agents."""

    _OF_CHANNEL = select(AgentChannel).where(
        AgentChannel.platform == bindparam("platform"),
        AgentChannel.account == bindparam("account"),
        AgentChannel.channel == bindparam("channel"),
    )
    _BINDING = Prepared(_OF_CHANNEL)
    _BY_ID = Prepared(select(Agent).where(col(Agent.id) == bindparam("agent_id")))

    def all(self) -> Sequence[Agent]:
        """Return every agent by slug."""
        return self._session.exec(select(Agent).order_by(Agent.slug)).all()

    def slugs(self) -> Sequence[str]:
        """Return the slug of every agent, in their order, without reading the rest."""
        return self._session.exec(select(Agent.slug).order_by(Agent.slug)).all()

    def active(self) -> Sequence[Agent]:
        """Return the agents that may answer, oldest first."""
        return self._session.exec(select(Agent).where(Agent.status == AgentStatus.ACTIVE).order_by(col(Agent.id))).all()

    def get(self, agent_id: int | None) -> Agent:
        """Return an agent that must exist."""
        agent = self._session.get(Agent, agent_id)
        if agent is None:
            raise NotFound(f"agent {agent_id} does not exist")
        return agent

    @kept_while("agents")
    def read(self, agent_id: int | None) -> Agent:
        """Return an agent that must exist as a value: cheaper than ``get``, and cannot be changed."""
        agent = self._read(self._BY_ID, Agent, agent_id=agent_id)
        if agent is None:
            raise NotFound(f"agent {agent_id} does not exist")
        return agent

    def by_slug(self, slug: str) -> Agent | None:
        """Return the agent of this name, if there is one."""
        return self._session.exec(select(Agent).where(Agent.slug == slug)).first()

    def put(self, agent: Agent) -> Agent:
        """Add or change an agent."""
        agent.updated_at = self._now
        self._session.add(agent)
        self._session.flush()
        return agent

    def binding(self, address: Address) -> AgentChannel | None:
        """Return how the channel is bound, if it is."""
        return self._session.exec(self._OF_CHANNEL, params=_channel(address)).first()

    def read_binding(self, address: Address) -> AgentChannel | None:
        """Return how the channel is bound, if it is, as a value: cheaper than ``binding``, and cannot be changed."""
        return self._binding(address.platform, address.account, address.channel)

    @kept_while("agent_channels")
    def _binding(self, platform: str, account: str, channel: str) -> AgentChannel | None:
        return self._read(self._BINDING, AgentChannel, platform=platform, account=account, channel=channel)

    def bindings(self) -> Sequence[AgentChannel]:
        """Return every binding."""
        return self._session.exec(select(AgentChannel)).all()

    def unbind(self, binding: AgentChannel) -> None:
        """Free the channel."""
        self._session.delete(binding)
        self._session.flush()

    def bind(self, binding: AgentChannel) -> None:
        """Add or change a binding."""
        self._session.add(binding)
        self._session.flush()


def _channel(address: Address) -> dict[str, str]:
    return {"platform": address.platform, "account": address.account, "channel": address.channel}

"""What routing decides by, and no more of it than one message needs: a busy server asks for every line."""

from collections.abc import Sequence

from sqlalchemy import bindparam, or_
from sqlmodel import col, select

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus, BotInstance
from maestro.domain.agents.mentions import marked
from maestro.domain.agents.routing import Candidate, RoutingRules, Snapshot, dashboard_agent
from maestro.domain.messages import Address, IncomingMessage
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Routes(Repository):
    """Reads the snapshots of ``domain.routing``."""

    # An index holds all that is read here: an agent's row may be long.
    _ANY = (
        select(Agent.id, Agent.slug, Agent.name, Agent.role)
        .where(col(Agent.status) == AgentStatus.ACTIVE)
        .order_by(col(Agent.id))
    )
    _ACTIVE = Prepared(_ANY)
    _THESE = Prepared(_ANY.where(or_(col(Agent.id) == bindparam("first"), col(Agent.id) == bindparam("second"))))
    _UNMENTIONED = Prepared(
        _ANY.where(
            or_(
                col(Agent.role) == CONDUCTOR,
                col(Agent.slug) == bindparam("fallback"),
                col(Agent.id) == bindparam("dashboard"),
            )
        )
    )
    _ACCOUNT_AGENT = Prepared(
        select(BotInstance.agent_id).where(
            col(BotInstance.platform) == bindparam("platform"), col(BotInstance.account) == bindparam("account")
        )
    )

    def snapshot(self, message: IncomingMessage, binding: AgentChannel | None, rules: RoutingRules) -> Snapshot:
        """Return what decides who answers this message; ``binding`` is that of its channel."""
        own = self.account_agent(message.address)
        bound = binding.agent_id if binding is not None else None
        agents = self._agents(self._THESE, first=own, second=bound) if own or bound else ()
        if not agents and marked(message.content):
            agents = self._agents(self._ACTIVE)
        elif not agents:
            dashboard = dashboard_agent(message.address)
            agents = self._agents(self._UNMENTIONED, fallback=rules.fallback, dashboard=dashboard)
        return Snapshot(agents, own, bound, rules)

    def account_agent(self, address: Address) -> int | None:
        """Return the id of the agent that answers what comes in by this account of ours, if one does."""
        found: int | None = self._value(self._ACCOUNT_AGENT, platform=address.platform, account=address.account)
        return found

    def _agents(self, statement: Prepared, **values: object) -> Sequence[Candidate]:
        return [Candidate(*row) for row in self._rows(statement, **values)]

"""What routing decides by, and no more of it than one message needs: a busy server asks for every line."""

from collections.abc import Sequence

from sqlalchemy import bindparam, or_
from sqlmodel import col, select

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus
from maestro.domain.agents.mentions import marked
from maestro.domain.agents.routing import Candidate, RoutingRules, Snapshot, dashboard_agent
from maestro.domain.bots.bot import BotInstance
from maestro.domain.conversations.conversation import Conversation, conversation_key
from maestro.domain.jobs.job import Job
from maestro.domain.jobs.lanes import lane_of
from maestro.domain.messages import Address, Addressing, IncomingMessage
from maestro.store.claims import HOLDS_A_PLACE
from maestro.store.prepared import Prepared, one_of
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

    _TALKED = Prepared(select(Conversation.id).where(col(Conversation.key) == bindparam("its_key")).limit(1))
    _ABOUT_TO = Prepared(
        select(Job.id).where(Job.lane == bindparam("its_lane"), one_of(col(Job.status), HOLDS_A_PLACE)).limit(1)
    )

    def snapshot(self, message: IncomingMessage, binding: AgentChannel | None, rules: RoutingRules) -> Snapshot:
        """Return what decides who answers this message; ``binding`` is that of its channel."""
        own = self.account_agent(message.address)
        bound = binding.agent_id if binding is not None else None
        group = own and not message.is_direct
        tied = (own or bound) and not (group and marked(message.content))  # in a group, the first mention is meant
        agents = self._agents(self._THESE, first=own, second=bound) if tied else ()
        if not agents and marked(message.content):
            agents = self._agents(self._ACTIVE)
        elif not agents:
            dashboard = dashboard_agent(message.address)
            agents = self._agents(self._UNMENTIONED, fallback=rules.fallback, dashboard=dashboard)
        takes_part = bool(group) and self._takes_part(own or 0, message, binding)
        return Snapshot(agents, own, bound, takes_part, rules)

    def _takes_part(self, agent: int, message: IncomingMessage, binding: AgentChannel | None) -> bool:
        """Say whether an agent talks in a thread already, or is about to."""
        if not message.address.thread or message.addressing is not Addressing.NOBODY:
            return False
        alone = message.user_id if binding is not None and binding.key_by_user else None
        key = conversation_key(agent, message.address, alone)
        if self._row(self._TALKED, its_key=key) is not None:
            return True
        return binding is None and self._row(self._ABOUT_TO, its_lane=lane_of(message.address, None)) is not None

    def account_agent(self, address: Address) -> int | None:
        """Return the id of the agent that answers what comes in by this account of ours, if one does."""
        found: int | None = self._value(self._ACCOUNT_AGENT, platform=address.platform, account=address.account)
        return found

    def _agents(self, statement: Prepared, **values: object) -> Sequence[Candidate]:
        return [Candidate(*row) for row in self._rows(statement, **values)]

"""What routing decides by, and no more of it than one message needs: a busy server asks for every line."""

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, or_
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus
from maestro.domain.agents.routing import Candidate, RoutingRules, Snapshot, dashboard_agent, marked
from maestro.domain.bots.bot import BotInstance
from maestro.domain.conversations.conversation import Conversation, conversation_key
from maestro.domain.jobs.job import Job
from maestro.domain.messages import Addressing, IncomingMessage, lane_of
from maestro.store.claims import HOLDS_A_PLACE
from maestro.store.editions import kept_while
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository


class Routes(Repository):
    """Reads the snapshots of ``domain.routing``."""

    # An index holds all that is read here: an agent's row may be long.
    _CANDIDATE = (col(Agent.id), col(Agent.slug), col(Agent.name), col(Agent.role))
    _OF_ACCOUNT = select(BotInstance.agent_id).where(
        col(BotInstance.platform) == bindparam("platform"), col(BotInstance.account) == bindparam("account")
    )
    _OWN = select(_OF_ACCOUNT.scalar_subquery().label("agent_id")).subquery()
    _IS_ACTIVE = col(Agent.status) == AgentStatus.ACTIVE
    _ACTIVE = Prepared(
        columns(_OWN.c.agent_id, *_CANDIDATE).select_from(_OWN.outerjoin(Agent, _IS_ACTIVE)).order_by(col(Agent.id))
    )
    _UNMENTIONED = Prepared(
        columns(_OWN.c.agent_id, *_CANDIDATE)
        .select_from(
            _OWN.outerjoin(
                Agent,
                and_(
                    _IS_ACTIVE,
                    or_(
                        col(Agent.role) == CONDUCTOR,
                        col(Agent.slug) == bindparam("fallback"),
                        col(Agent.id) == bindparam("dashboard"),
                        col(Agent.id) == bindparam("bound"),
                        col(Agent.id) == _OWN.c.agent_id,
                    ),
                ),
            )
        )
        .order_by(col(Agent.id))
    )

    _TALKED = Prepared(select(Conversation.id).where(col(Conversation.key) == bindparam("its_key")).limit(1))
    _ABOUT_TO = Prepared(
        select(Job.id).where(Job.lane == bindparam("its_lane"), one_of(col(Job.status), HOLDS_A_PLACE)).limit(1)
    )

    def snapshot(self, message: IncomingMessage, binding: AgentChannel | None, rules: RoutingRules) -> Snapshot:
        """Return what decides who answers this message; ``binding`` is that of its channel."""
        bound = binding.agent_id if binding is not None else None
        is_marked = marked(message.content)
        address = message.address
        others = () if is_marked else (rules.fallback, dashboard_agent(address), bound)
        own, agents = self._agents_of(address.platform, address.account, *others)
        group = own and not message.is_direct
        tied = (own or bound) and not (group and is_marked)  # in a group, the first mention is meant
        these = [agent for agent in agents if agent.id in (own, bound)]
        if tied and these:
            agents = these
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

    @kept_while("agents", "bot_instances")
    def _agents_of(
        self, platform: str, account: str, *others: int | str | None
    ) -> tuple[int | None, Sequence[Candidate]]:
        """Return the id of the agent of an account, and who may be meant.

        The ``others`` are the fallback, the agent whose dashboard this is, and the one the channel is bound to; where
        they are left out any active agent may be meant.
        """
        place = {"platform": platform, "account": account}
        if not others:
            rows = self._rows(self._ACTIVE, **place)
        else:
            fallback, dashboard, bound = others
            rows = self._rows(self._UNMENTIONED, **place, fallback=fallback, dashboard=dashboard, bound=bound)
        return rows[0][0], [Candidate(*agent) for _, *agent in rows if agent[0] is not None]

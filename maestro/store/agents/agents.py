"""Queries for agents, the channels bound to agents, the rows for routing decisions, and the cursors of channels."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, bindparam, delete, func, or_, text
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus
from maestro.domain.agents.routing import RoutableAgent, RoutingSnapshot, dashboard_agent, may_mention
from maestro.domain.connectors import BotInstance, ChannelCursor, DisabledChannel, MovedChannel
from maestro.domain.context.layers import AgentDirectory, AgentListing, Colleague
from maestro.domain.conversations.conversation import Conversation, conversation_key
from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import Job
from maestro.domain.messages import Address, Addressing, InboxRow, IncomingMessage, lane_key
from maestro.domain.settings.jobs import RoutingSettings
from maestro.store.cache import cached_by_version
from maestro.store.engine.repository import Repository, require_found
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, equals_parameters, insert, is_one_of
from maestro.store.jobs.claims import HOLDS_LANE

MOST_KNOWN = 10_000
"""The most channels and threads of an account that a catch-up after an outage reads, the last active ones first."""


class Agents(Repository):
    """Queries for agents, and for the bindings that connect channels to agents."""

    def list_agents(self) -> Sequence[Agent]:
        """Return all agents, sorted by slug."""
        return self._find_all(select(Agent).order_by(Agent.slug))

    def list_agent_slugs(self) -> Sequence[str]:
        """Return the slugs of all agents, sorted; this reads no other column of the agents."""
        return self._find_all(select(Agent.slug).order_by(Agent.slug))

    def list_active_agents(self) -> Sequence[Agent]:
        """Return the agents with the status active, oldest first."""
        return self._find_all(select(Agent).where(Agent.status == AgentStatus.ACTIVE).order_by(col(Agent.id)))

    def get(self, agent_id: int | None) -> Agent:
        """Return the agent with this id; raises ``NotFound``."""
        return require_found(self._session.get(Agent, agent_id), f"agent {agent_id} does not exist")

    @cached_by_version("agents")
    def read(self, agent_id: int | None) -> Agent:
        """Return the agent with this id as a read-only row, which costs less than ``get``; raises ``NotFound``."""
        return require_found(self._read_model_by(Agent, id=agent_id), f"agent {agent_id} does not exist")

    def find_agent_by_slug(self, slug: str) -> Agent | None:
        """Return the agent with this slug, or None if no agent has it."""
        return self._find_first(select(Agent).where(Agent.slug == slug))

    def save_agent(self, agent: Agent) -> Agent:
        """Insert a new agent or update a changed one."""
        agent.updated_at = self._now
        return self._save_objects(agent)

    def find_binding(self, address: Address) -> AgentChannel | None:
        """Return the binding (channel to agent) of a channel, or None if the channel has no binding."""
        of_channel = select(AgentChannel).where(equals_parameters(AgentChannel, *CHANNEL_KEY))
        return self._session.exec(of_channel, params=address.model_dump()).first()

    def read_binding(self, address: Address) -> AgentChannel | None:
        """Return a channel's binding as a read-only row, which costs less than ``find_binding``; None without one."""
        return self._read_binding_values(address.platform, address.account, address.channel)

    @cached_by_version("agent_channels")
    def _read_binding_values(self, platform: str, account: str, channel: str) -> AgentChannel | None:
        return self._read_model_by(AgentChannel, platform=platform, account=account, channel=channel)

    def list_bindings(self) -> Sequence[AgentChannel]:
        """Return the bindings of all channels."""
        return self._find_all(select(AgentChannel))

    def unbind_channel_of(self, binding: AgentChannel) -> None:
        self._delete_object(binding)

    def save_binding(self, binding: AgentChannel) -> None:
        self._save_objects(binding)

    def get_agent_by_slug(self, slug: str) -> Agent:
        """Return the agent with this slug; raises ``NotFound``."""
        return require_found(self.find_agent_by_slug(slug), f"there is no agent {slug!r}")

    def get_unarchived_agent(self, slug: str) -> Agent:
        """Return the agent with this slug; raises ``NotFound``, or ``Conflict`` if the agent is archived."""
        agent = self.get_agent_by_slug(slug)
        require_unarchived(agent)
        return agent


def require_unarchived(agent: Agent) -> None:
    """Raise ``Conflict`` if an agent is archived."""
    if agent.status is AgentStatus.ARCHIVED:
        raise Conflict(f"agent {agent.slug} is archived; restore it first")


class Colleagues(Repository):
    """Queries for the agents to which other agents can delegate tasks."""

    _ACTIVE = PreparedStatement(
        columns(*(getattr(Agent, name) for name in ("id", "slug", "name", "description", "allow_users")))
        # SQLite uses the partial index of active agents only if the status is a literal in the SQL, not a parameter.
        .where(text("agents.status = 'active'"))
        .order_by(col(Agent.slug))
    )

    @cached_by_version("agents")
    def active_agents(self) -> AgentDirectory:
        """Return a directory of the active agents."""
        return AgentDirectory(
            [
                AgentListing(agent_id, Colleague(*names), frozenset(users.split()) if users is not None else None)
                for agent_id, *names, users in self._read_rows(self._ACTIVE)
            ]
        )


class RoutingSnapshots(Repository):
    """Queries for the rows from which ``domain.routing`` decides which agent answers a message."""

    # An index contains these columns, so that SQLite does not read the long rows of agents.
    _CANDIDATE = (col(Agent.id), col(Agent.slug), col(Agent.name), col(Agent.role))
    _OF_ACCOUNT = select(BotInstance.agent_id).where(
        col(BotInstance.platform) == bindparam("platform"), col(BotInstance.account) == bindparam("account")
    )
    _OWN = select(_OF_ACCOUNT.scalar_subquery().label("agent_id")).subquery()
    _IS_ACTIVE = col(Agent.status) == AgentStatus.ACTIVE
    _ACTIVE = PreparedStatement(
        columns(_OWN.c.agent_id, *_CANDIDATE).select_from(_OWN.outerjoin(Agent, _IS_ACTIVE)).order_by(col(Agent.id))
    )
    _UNMENTIONED = PreparedStatement(
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

    _TALKED = PreparedStatement(select(Conversation.id).where(col(Conversation.key) == bindparam("its_key")).limit(1))
    _ABOUT_TO = PreparedStatement(
        select(Job.id).where(Job.lane == bindparam("its_lane"), is_one_of(col(Job.status), HOLDS_LANE)).limit(1)
    )

    def read_snapshot(
        self, message: IncomingMessage, binding: AgentChannel | None, rules: RoutingSettings
    ) -> RoutingSnapshot:
        """Return the rows that decide which agent answers a message; ``binding`` is the binding of its channel."""
        bound = binding.agent_id if binding is not None else None
        is_marked = may_mention(message.content)
        address = message.address
        others = () if is_marked else (rules.fallback_agent, dashboard_agent(address), bound)
        own, agents = self._candidate_agents(address.platform, address.account, *others)
        group = own and not message.is_direct
        # The agent that a group message mentions first answers it, even in a channel bound to another agent.
        if (own or bound) and not (group and is_marked):
            agents = [agent for agent in agents if agent.id in (own, bound)] or agents
        takes_part = bool(group) and self._answers_in_thread(own or 0, message, binding)
        return RoutingSnapshot(agents, own, bound, takes_part, rules)

    def _answers_in_thread(self, agent: int, message: IncomingMessage, binding: AgentChannel | None) -> bool:
        """Return whether an agent has already answered in a message's thread, or has a job in that thread."""
        if not message.address.thread or message.addressing is not Addressing.NOBODY:
            return False
        alone = message.user_id if binding is not None and binding.key_by_user else None
        key = conversation_key(agent, message.address, alone)
        return self._has_row(self._TALKED, its_key=key) or (
            binding is None and self._has_row(self._ABOUT_TO, its_lane=lane_key(message.address, None))
        )

    @cached_by_version("agents", "bot_instances")
    def _candidate_agents(
        self, platform: str, account: str, *others: int | str | None
    ) -> tuple[int | None, Sequence[RoutableAgent]]:
        """Return the id of the agent of a platform account, and the agents that may answer a message there.

        ``others`` are the fallback agent, the agent of a dashboard, and the agent bound to the channel. With
        ``others``, only these agents and the account's agent are returned. Without ``others``, all active agents are
        returned, because a message may mention any of them.
        """
        values: dict[str, object] = {"platform": platform, "account": account}
        values |= dict(zip(("fallback", "dashboard", "bound"), others, strict=False))
        rows = self._read_rows(self._UNMENTIONED if others else self._ACTIVE, **values)
        return rows[0][0], [RoutableAgent(*agent) for _, *agent in rows if agent[0] is not None]


class Channels(Repository):
    """Queries for the cursors of channels (for a catch-up after an outage), and for disabled channels."""

    _ADD = insert(ChannelCursor)
    _NEW = _ADD.excluded
    _KEY = (*CHANNEL_KEY, "thread")
    _SEEN = PreparedStatement(_ADD.on_conflict_do_update(index_elements=_KEY, set_={"seen_at": _NEW.seen_at}))
    _LATER = or_(
        func.length(_NEW.mark) > func.length(col(ChannelCursor.mark)),
        and_(func.length(_NEW.mark) == func.length(col(ChannelCursor.mark)), _NEW.mark > col(ChannelCursor.mark)),
    )
    """The condition that a new message id is after the cursor: ids are numbers or times, so a longer id is later."""
    _ADVANCE = PreparedStatement(
        _ADD.on_conflict_do_update(index_elements=_KEY, set_={"mark": _NEW.mark, "seen_at": _NEW.seen_at}, where=_LATER)
    )
    _MARK = PreparedStatement(select(ChannelCursor.mark).where(equals_parameters(ChannelCursor, *_KEY)))
    _MOVED_TO = PreparedStatement(select(MovedChannel.moved_to).where(equals_parameters(MovedChannel, *CHANNEL_KEY)))
    _REASON = PreparedStatement(select(DisabledChannel.reason).where(equals_parameters(DisabledChannel, *CHANNEL_KEY)))
    _LAST_HEARD = PreparedStatement(
        select(func.max(col(InboxRow.sent_at))).where(equals_parameters(InboxRow, *CHANNEL_KEY))
    )

    def read_last_activity(self, address: Address) -> datetime | None:
        """Return the platform's time of the newest message in a channel, or None if the channel has no messages.

        A message that arrived last may be an old one, because platforms redeliver unacknowledged messages.
        """
        sent_at: datetime | None = self._read_value(self._LAST_HEARD, **address.model_dump())
        return sent_at

    def find_new_id(self, address: Address) -> str:
        """Return the id to which the platform moved a channel, or the given id if the channel was never moved."""
        moved: str | None = self._read_value(self._MOVED_TO, **address.model_dump())
        return moved if moved is not None else address.channel

    def read_cursor(self, address: Address) -> str | None:
        """Return the id of the message up to which the inbox has all messages of a channel; None without a cursor."""
        mark: str | None = self._read_value(self._MARK, **address.model_dump())
        return mark

    def advance_cursor(self, address: Address, message_id: str) -> None:
        """Move the cursor of a channel forward to this message; the cursor never moves back."""
        self._run_change(self._ADVANCE, **address.model_dump(), mark=message_id, direct=False, seen_at=self._now)

    def record_activity(self, address: Address, *, direct: bool) -> None:
        """Record that a channel was active now; ``direct`` marks a channel of direct messages."""
        self._run_change(self._SEEN, **address.model_dump(), mark="", direct=direct, seen_at=self._now)

    def list_known_channels(self, platform: str, account: str) -> Sequence[ChannelCursor]:
        """Return the channels and threads in which an account received messages, the last active ones first."""
        of_account = select(ChannelCursor).where(ChannelCursor.platform == platform, ChannelCursor.account == account)
        return self._find_all(of_account.order_by(col(ChannelCursor.seen_at).desc()).limit(MOST_KNOWN))

    def disable(self, address: Address, reason: str) -> None:
        """Disable sending to a channel until ``enable`` is called."""
        key = address.model_dump(include=set(CHANNEL_KEY))
        self._session.merge(DisabledChannel(**key, reason=reason, disabled_at=self._now))
        self._session.flush()

    def enable(self, address: Address) -> bool:
        """Enable sending to a channel again; return false if sending was already enabled."""
        of_channel = delete(DisabledChannel).where(equals_parameters(DisabledChannel, *CHANNEL_KEY))
        return self._run_statement(of_channel, **address.model_dump(include=set(CHANNEL_KEY))).rowcount > 0

    def read_disable_reason(self, address: Address) -> str | None:
        """Return the reason why sending to a channel is disabled, or None if sending is enabled."""
        reason: str | None = self._read_value(self._REASON, **address.model_dump())
        return reason

    def list_disabled_channels(self) -> Sequence[DisabledChannel]:
        """Return the channels with disabled sending, the most recently disabled first."""
        return self._find_all(select(DisabledChannel).order_by(col(DisabledChannel.disabled_at).desc()))

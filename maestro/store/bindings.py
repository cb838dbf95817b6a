"""Channels that belong to agents, as people bind and free them."""

from collections.abc import Sequence

from sqlmodel import col, delete, select

from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus
from maestro.domain.agents.edits import BindingChange, BindingFields, NewBinding
from maestro.domain.agents.views import Binding, BindingPage, binding_view
from maestro.domain.bots.bot import BotInstance
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.messages import Address
from maestro.store.agents import Agents
from maestro.store.audit import Audit
from maestro.store.clients import Clients


class Bindings(Agents):
    """All agents, and how channels become theirs; ``actor`` is who the audit log says it was."""

    def named(self, slug: str) -> Agent:
        """Return the agent of this slug; raises ``NotFound``."""
        agent = self.by_slug(slug)
        if agent is None:
            raise NotFound(f"there is no agent {slug!r}")
        return agent

    def channels_of(self, agent: Agent) -> Sequence[AgentChannel]:
        """Return the channels of an agent, the oldest first."""
        wanted = select(AgentChannel).where(AgentChannel.agent_id == agent.id).order_by(col(AgentChannel.id))
        return self._session.exec(wanted).all()

    def channel(self, binding_id: int) -> AgentChannel:
        """Return a binding; raises ``NotFound``."""
        found = self._session.get(AgentChannel, binding_id)
        if found is None:
            raise NotFound(f"there is no binding {binding_id}")
        return found

    def bind_channel(self, agent: Agent, new: NewBinding, actor: str) -> AgentChannel:
        """Give a channel to an agent.

        Raises ``Conflict`` when the channel belongs to an agent already or the agent is archived, and
        ``InvalidEdit`` for an unknown client.
        """
        _require_present(agent)
        taken = self.binding(Address(platform=new.platform, account=new.account, channel=new.channel))
        if taken is not None:
            raise Conflict(
                f"{place(taken)} belongs to the agent {self.get(taken.agent_id).slug} already; free it first, or "
                "change that binding"
            )
        binding = AgentChannel(agent_id=agent.id or 0, platform=new.platform, account=new.account, channel=new.channel)
        self._put_binding(binding, new)
        Audit(self._link, self._now).add(actor, "channel.bind", place(binding), agent.slug)
        return binding

    def change_binding(self, binding: AgentChannel, change: BindingChange, actor: str) -> AgentChannel:
        """Change a binding; raises ``Conflict`` for one of the configuration, ``NotFound`` for no such agent."""
        _require_ours(binding)
        if change.agent:
            agent = self.named(change.agent)
            _require_present(agent)
            binding.agent_id = agent.id or 0
        self._put_binding(binding, self.binding_fields(binding).model_copy(update=change.fields))
        Audit(self._link, self._now).add(actor, "channel.change", place(binding), ", ".join(sorted(change.given)))
        return binding

    def unbind_channel(self, binding: AgentChannel, actor: str) -> None:
        """Free a channel; raises ``Conflict`` for one that the configuration binds."""
        _require_ours(binding)
        agent = self.get(binding.agent_id)
        self.unbind(binding)
        Audit(self._link, self._now).add(actor, "channel.unbind", place(binding), agent.slug)

    def view(self, binding: AgentChannel) -> Binding:
        """Show a binding."""
        return binding_view(binding, self.binding_fields(binding), self.get(binding.agent_id).slug)

    def bound(self, agent: str | None, after: int, limit: int) -> BindingPage:
        """Show up to ``limit`` bound channels after that id, of one agent if its slug is given."""
        wanted = select(AgentChannel).where(col(AgentChannel.id) > after).order_by(col(AgentChannel.id))
        if agent is not None:
            wanted = wanted.where(AgentChannel.agent_id == self.named(agent).id)
        found = self._session.exec(wanted.limit(limit + 1)).all()
        items = tuple(map(self.view, found[:limit]))
        return BindingPage(items=items, next=str(items[-1].id) if len(found) > limit else None)

    def binding_fields(self, binding: AgentChannel) -> BindingFields:
        """Return what people can edit of a binding."""
        return BindingFields.model_construct(
            permission=binding.permission,
            key_by_user=binding.key_by_user,
            busy=binding.busy,
            allow_bots=binding.allow_bots,
            client=Clients(self._link, self._now).name_of(binding.client_id),
        )

    def enter_binding(self, agent: Agent, new: NewBinding) -> AgentChannel:
        """Bind a channel as the configuration says, whoever had it before."""
        address = Address(platform=new.platform, account=new.account, channel=new.channel)
        binding = self.binding(address) or AgentChannel(
            agent_id=agent.id or 0, platform=new.platform, account=new.account, channel=new.channel
        )
        binding.agent_id, binding.configured = agent.id or 0, True
        self._put_binding(binding, new)
        return binding

    def enter_instance(self, platform: str, account: str, agent: Agent | None) -> None:
        """Let an agent answer all that comes in at one of our accounts, as the configuration says; None: nobody."""
        instance = self._session.get(BotInstance, (platform, account))
        if agent is not None:
            instance = instance or BotInstance(platform=platform, account=account)
            instance.agent_id, instance.configured = agent.id, True
            self._session.add(instance)
        elif instance is not None and instance.configured:
            self._session.delete(instance)
        self._session.flush()

    def _put_binding(self, binding: AgentChannel, fields: BindingFields) -> None:
        binding.permission = fields.permission
        binding.key_by_user = fields.key_by_user
        binding.busy = fields.busy
        binding.allow_bots = fields.allow_bots
        binding.client_id = Clients(self._link, self._now).id_of(fields.client)
        self.bind(binding)

    def _free_channels(self, agent: Agent) -> None:
        self._session.exec(delete(AgentChannel).where(col(AgentChannel.agent_id) == agent.id))


def place(binding: AgentChannel) -> str:
    """Name the channel of a binding."""
    return f"{binding.platform}/{binding.account}/{binding.channel}"


def _require_present(agent: Agent) -> None:
    if agent.status is AgentStatus.ARCHIVED:
        raise Conflict(f"agent {agent.slug} is archived; restore it first")


def _require_ours(binding: AgentChannel) -> None:
    if binding.configured:
        raise Conflict(
            f"{place(binding)} is bound by the configuration; change it under channels there, and restart Maestro"
        )

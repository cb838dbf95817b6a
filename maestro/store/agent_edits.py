"""Agents as people edit them: each edit is a version and an entry in the audit log, in the transaction of the edit."""

from sqlalchemy import Integer, Table
from sqlmodel import SQLModel, col, delete, func, select

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus, AgentVersion
from maestro.domain.agents.edits import AgentChange, AgentFields, NewAgent, changed, only_conductor
from maestro.domain.agents.tokens import AgentToken
from maestro.domain.agents.versions import diff, fields_at, fields_of, put_fields, snapshot
from maestro.domain.agents.views import AgentDetail, agent_detail
from maestro.domain.conducting.teaching import with_prompt
from maestro.domain.errors import Conflict
from maestro.store.agent_tokens import AgentTokens
from maestro.store.audit import Audit
from maestro.store.bindings import Bindings
from maestro.store.clients import Clients
from maestro.store.jobs import Jobs
from maestro.store.versions import AgentVersions

MODEL_FIELDS = frozenset({"dailyBudgetUsd", "client", "model", "fallbacks"})
"""What decides whether a model can be asked: a change wakes the jobs that wait for one."""

EARLIER = "an earlier release"
"""Who made what an agent is before its first edit, where nobody wrote down who."""


class AgentEdits(Bindings):
    """All agents, and how they are changed; ``actor`` is who the history and the audit log say it was."""

    def create(self, new: NewAgent, actor: str, reason: str = "") -> Agent:
        """Make an agent; raises ``Conflict`` when the slug is taken, ``InvalidEdit`` for an unknown client."""
        taken = self.by_slug(new.slug)
        if taken is not None and taken.status is AgentStatus.ARCHIVED:
            raise Conflict(f"the slug {new.slug} is that of an archived agent; restore it, or choose another slug")
        if taken is not None:
            raise Conflict(f"there is an agent {new.slug} already; change it, or choose another slug")
        agent = Agent(slug=new.slug, name=new.slug, created_at=self._now, updated_at=self._now)
        put_fields(agent, with_prompt(new), self._clients.id_of(new.client))
        self.put(agent)
        self._record(agent, actor, reason)
        self._audit.add(actor, "agent.create", agent.slug, reason)
        return agent

    def change(self, agent: Agent, change: AgentChange, actor: str, reason: str = "") -> Agent:
        """Change an agent; what changes nothing makes no version.

        Raises ``Conflict`` when somebody else was faster, or when it is the last conductor that would go, and
        ``InvalidEdit`` for an unknown client. Channels of an agent that is archived are free.
        """
        if change.version is not None and change.version != agent.version:
            raise Conflict(
                f"agent {agent.slug} was changed meanwhile: it is at version {agent.version}, and this change was made "
                f"for version {change.version}. Read it again, and change that."
            )
        self.begin_history(agent)
        before = self.fields(agent)
        after = changed(before, change)
        after = after.model_copy(update={"name": after.name or agent.slug})
        different = diff(before, after)
        if not different:
            return agent
        self._keep_a_conductor(agent, after, change.force)
        put_fields(agent, after, self._clients.id_of(after.client))
        agent.version += 1
        self.put(agent)
        if agent.status is AgentStatus.ARCHIVED:
            self._free_channels(agent)
        self._record(agent, actor, reason)
        self._audit.add(actor, "agent.change", agent.slug, ", ".join(one.field for one in different))
        if MODEL_FIELDS.intersection(one.field for one in different):
            Jobs(self._link, self._now).wake_for_models()
        return agent

    def roll_back(self, agent: Agent, number: int, actor: str, reason: str = "", *, force: bool = False) -> Agent:
        """Make a new version that is as an old one was; raises ``NotFound``, and what ``change`` raises."""
        old = fields_at(AgentVersions(self._link, self._now).get(agent, number))
        change = AgentChange.model_construct(**dict(old), force=force)
        return self.change(agent, change, actor, reason or f"as in version {number}")

    def purge(self, agent: Agent, actor: str, *, force: bool = False) -> None:
        """Take an agent away for good, with its versions and bindings; ``force`` lets the last conductor go.

        Raises ``Conflict`` while anything speaks of it, and for one that the configuration names.
        """
        if agent.configured:
            raise Conflict(f"agent {agent.slug} is of the configuration; take it out of agents there first")
        used = self._spoken_of_in(agent)
        if used:
            raise Conflict(f"agent {agent.slug} cannot be removed for good: {used} speak of it. Archive it instead.")
        self.change(agent, AgentChange(status=AgentStatus.ARCHIVED, force=force), actor)
        self._session.exec(delete(AgentVersion).where(col(AgentVersion.agent_id) == agent.id))
        AgentTokens(self._link, self._now).forget(agent)
        self._session.delete(agent)
        self._session.flush()
        self._audit.add(actor, "agent.purge", agent.slug)

    def detail(self, agent: Agent) -> AgentDetail:
        """Show everything about an agent."""
        return agent_detail(agent, self.fields(agent), tuple(map(self.view, self.channels_of(agent))))

    def fields(self, agent: Agent) -> AgentFields:
        """Return what people can edit of an agent."""
        return fields_of(agent, self._clients.name_of(agent.client_id))

    def begin_history(self, agent: Agent) -> None:
        """Keep what an agent is now if nothing was kept of it yet: it was made before versions were."""
        if not AgentVersions(self._link, self._now).of(agent, limit=1):
            self._record(agent, EARLIER, "")

    def _record(self, agent: Agent, actor: str, reason: str) -> None:
        AgentVersions(self._link, self._now).add(agent, snapshot(self.fields(agent)), actor, reason)

    def _spoken_of_in(self, agent: Agent) -> str:
        """Return the tables, by name, that have rows about an agent besides those that go with it."""
        own = {AgentVersion.__tablename__, AgentChannel.__tablename__, AgentToken.__tablename__}
        tables = [table for name, table in SQLModel.metadata.tables.items() if name not in own and _has_agents(table)]
        of_agent = ((table.name, select(table.c.agent_id).where(table.c.agent_id == agent.id)) for table in tables)
        return ", ".join(sorted(name for name, rows in of_agent if self._session.exec(rows.limit(1)).first()))

    def _keep_a_conductor(self, agent: Agent, after: AgentFields, force: bool) -> None:
        others = select(func.count()).where(
            Agent.role == CONDUCTOR, Agent.status == AgentStatus.ACTIVE, col(Agent.id) != agent.id
        )
        if not force and only_conductor(agent, after, self._session.exec(others).one()):
            raise Conflict(
                f"{agent.slug} is the only active conductor, and direct messages would go to nobody. Make another "
                "conductor first, or force it."
            )

    @property
    def _clients(self) -> Clients:
        return Clients(self._link, self._now)

    @property
    def _audit(self) -> Audit:
        return Audit(self._link, self._now)


def _has_agents(table: Table) -> bool:
    """Say whether the rows of a table are of agents by their number; those of the chat are by their slug."""
    return "agent_id" in table.c and isinstance(table.c.agent_id.type, Integer)

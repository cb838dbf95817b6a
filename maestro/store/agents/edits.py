"""Edits of agents, bindings and tokens by operators, each with an audit entry in the same transaction.

Edits of agents also store a version of the agent. Tokens are stored only as digests.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Integer, delete, update
from sqlmodel import SQLModel, col, select

from maestro.domain.agents.agent import (
    BEARER_PREFIX,
    CONDUCTOR,
    MOST_TOKENS,
    TOKEN_BYTES,
    USE_RECORDED_EVERY,
    Agent,
    AgentChannel,
    AgentStatus,
    AgentToken,
    AgentVersion,
    IssuedToken,
    TokenHolder,
    token_digest,
)
from maestro.domain.agents.edits import (
    AgentChange,
    AgentFields,
    BindingChange,
    BindingFields,
    NewAgent,
    NewBinding,
    agent_fields,
    apply_change,
    removes_last_conductor,
    version_fields,
    write_fields,
)
from maestro.domain.agents.views import AgentDetail, Binding, BindingPage, agent_detail, diff_fields
from maestro.domain.conducting.conductor import add_conductor_prompt
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.messages import Address
from maestro.store.agents.agents import Agents, Colleagues, RoutingSnapshots, require_unarchived
from maestro.store.agents.skills import Skills
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.engine.statements import CHANNEL_KEY
from maestro.store.jobs.jobs import Jobs
from maestro.store.users.audit import Audit
from maestro.store.users.clients import PayingClients

MODEL_FIELDS = frozenset({"dailyBudgetUsd", "client", "model", "fallbacks"})
"""The agent's fields that decide which model is called; a change of a field resumes jobs that wait for a model."""

BINDING_COLUMNS = ("permission", "key_by_user", "busy", "allow_bots")

EARLIER = "an earlier release"
"""The author shown for versions that were stored before Maestro recorded authors."""


class AgentVersions(Repository):
    """Queries for the stored versions of agents."""

    def add_version(self, agent: Agent, snapshot: str, actor: str, reason: str = "") -> AgentVersion:
        """Store the current fields of an agent under the agent's version number."""
        number, agent_id = agent.version, agent.id or 0
        return self._save_objects(
            AgentVersion(agent_id=agent_id, version=number, at=self._now, actor=actor, reason=reason, snapshot=snapshot)
        )

    def list_versions(
        self, agent: Agent, before: int | None = None, limit: int | None = None
    ) -> Sequence[AgentVersion]:
        """Return the versions of an agent, newest first; with ``before``, only versions with a lower number."""
        versions = select(AgentVersion).where(AgentVersion.agent_id == agent.id)
        if before is not None:
            versions = versions.where(AgentVersion.version < before)
        return self._find_all(versions.order_by(col(AgentVersion.version).desc()).limit(limit))

    def get_pair(self, agent: Agent, number: int, against: int | None) -> tuple[AgentVersion, AgentVersion | None]:
        """Return version ``number`` and the version ``against`` (None: the one before); raises ``NotFound``."""
        version = self.get_version(agent, number)
        if against is not None:
            return version, self.get_version(agent, against)
        return version, next(iter(self.list_versions(agent, before=number, limit=1)), None)

    def read_fields_at(self, agent: Agent, moment: datetime) -> AgentFields | None:
        """Return an agent's fields at a time, or its first fields if the agent is newer; None without versions."""
        mine = select(AgentVersion).where(AgentVersion.agent_id == agent.id).limit(1)
        earlier = mine.where(AgentVersion.at <= moment).order_by(col(AgentVersion.version).desc())
        version = self._find_first(earlier) or self._find_first(mine.order_by(col(AgentVersion.version)))
        return version_fields(version) if version is not None else None

    def get_version(self, agent: Agent, number: int) -> AgentVersion:
        """Return one version of an agent; raises ``NotFound``."""
        query = select(AgentVersion).where(AgentVersion.agent_id == agent.id, AgentVersion.version == number)
        # A number from a request may exceed SQLite's largest integer, and a query for it would raise an error.
        return require_found(
            self._find_first(query) if 1 <= number <= agent.version else None,
            f"agent {agent.slug} has no version {number}; the newest is {agent.version}",
        )


class Bindings(Agents):
    """Edits of channel bindings by operators; ``actor`` is recorded in the audit log as the author."""

    _clients = LazyRepository(PayingClients)
    _audit = LazyRepository(Audit)

    def list_channels(self, agent: Agent) -> Sequence[AgentChannel]:
        """Return the channel bindings of an agent, oldest first."""
        of_agent = select(AgentChannel).where(AgentChannel.agent_id == agent.id)
        return self._find_all(of_agent.order_by(col(AgentChannel.id)))

    def get_binding(self, binding_id: int) -> AgentChannel:
        """Return the binding with this id; raises ``NotFound``."""
        return require_found(self._session.get(AgentChannel, binding_id), f"there is no binding {binding_id}")

    def bind_channel(self, agent: Agent, new: NewBinding, actor: str) -> AgentChannel:
        """Bind a channel to an agent.

        Raises ``Conflict`` when the channel is bound already or the agent is archived, and ``InvalidEdit`` for an
        unknown client.
        """
        require_unarchived(agent)
        channel = new.model_dump(include=set(CHANNEL_KEY))
        taken = self.find_binding(Address(**channel))
        if taken is not None:
            raise Conflict(
                f"{channel_name(taken)} belongs to the agent {self.get(taken.agent_id).slug} already; delete "
                "that binding first, or change it"
            )
        binding = AgentChannel(agent_id=agent.id or 0, **channel)
        self._put_binding(binding, new)
        self._audit.add_entry(actor, "channel.bind", channel_name(binding), agent.slug)
        return binding

    def change_binding(self, binding: AgentChannel, change: BindingChange, actor: str) -> AgentChannel:
        """Change a binding; raises ``Conflict`` for a configured binding, ``NotFound`` for an unknown agent."""
        _require_not_configured(binding)
        if change.agent:
            binding.agent_id = self.get_unarchived_agent(change.agent).id or 0
        self._put_binding(binding, self.binding_fields(binding).model_copy(update=change.binding_values))
        self._audit.add_entry(
            actor, "channel.change", channel_name(binding), ", ".join(sorted(change.model_fields_set))
        )
        return binding

    def unbind_channel(self, binding: AgentChannel, actor: str) -> None:
        """Delete a channel's binding; raises ``Conflict`` if the configuration sets the binding."""
        _require_not_configured(binding)
        agent = self.get(binding.agent_id)
        self.unbind_channel_of(binding)
        self._audit.add_entry(actor, "channel.unbind", channel_name(binding), agent.slug)

    def build_view(self, binding: AgentChannel) -> Binding:
        client = self._clients.find_name(binding.client_id)
        return Binding.from_row(binding, client=client, agent=self.get(binding.agent_id).slug)

    def list_bindings_page(self, agent: str | None, after: int, limit: int) -> BindingPage:
        """Return views of up to ``limit`` bindings with ids above ``after``; with ``agent`` (a slug), of that agent."""
        query = select(AgentChannel).where(col(AgentChannel.id) > after).order_by(col(AgentChannel.id))
        if agent is not None:
            query = query.where(AgentChannel.agent_id == self.get_agent_by_slug(agent).id)
        bindings = self._find_all(query.limit(limit + 1))
        items = tuple(map(self.build_view, bindings[:limit]))
        return BindingPage(items=items, next=str(items[-1].id) if len(bindings) > limit else None)

    def binding_fields(self, binding: AgentChannel) -> BindingFields:
        """Return the editable fields of a binding."""
        columns = {name: getattr(binding, name) for name in BINDING_COLUMNS}
        return BindingFields.model_construct(**columns, client=self._clients.find_name(binding.client_id))

    def set_configured_binding(self, agent: Agent, new: NewBinding) -> AgentChannel:
        """Bind a channel to an agent as the configuration says, in place of the channel's earlier binding."""
        channel = new.model_dump(include=set(CHANNEL_KEY))
        binding = self.find_binding(Address(**channel)) or AgentChannel(**channel)
        binding.agent_id, binding.configured = agent.id or 0, True
        self._put_binding(binding, new)
        return binding

    def set_configured_agent(self, platform: str, account: str, agent: Agent | None) -> None:
        """Set the agent of a platform account as the configuration says; None removes the account's agent."""
        instance = self._session.get(BotInstance, (platform, account))
        if agent is not None:
            instance = instance or BotInstance(platform=platform, account=account)
            instance.agent_id, instance.configured = agent.id, True
            self._session.add(instance)
        elif instance is not None and instance.configured:
            self._session.delete(instance)
        self._session.flush()

    def _put_binding(self, binding: AgentChannel, fields: BindingFields) -> None:
        for name in BINDING_COLUMNS:
            setattr(binding, name, getattr(fields, name))
        binding.client_id = self._clients.find_id(fields.client)
        self.save_binding(binding)


def channel_name(binding: AgentChannel) -> str:
    """Return a readable name for the channel of a binding."""
    return f"{binding.platform}/{binding.account}/{binding.channel}"


def _require_not_configured(binding: AgentChannel) -> None:
    if binding.configured:
        raise Conflict(
            f"{channel_name(binding)} is bound by the configuration; change it under channels there and restart Maestro"
        )


class AgentTokens(Repository):
    """Queries for the bearer tokens of agents, including revoked tokens."""

    _HELD = (
        select(AgentToken, Agent)
        .join(Agent, col(Agent.id) == AgentToken.agent_id)
        .where(col(AgentToken.revoked_at).is_(None))
    )

    def create_token(self, agent: Agent, name: str, actor: str) -> IssuedToken:
        """Create a token for an agent; raises ``Conflict`` if the agent is archived or has too many tokens."""
        if agent.status is AgentStatus.ARCHIVED:
            raise Conflict(f"agent {agent.slug} is archived, so its tokens are not valid; restore the agent first")
        if self._count_rows(AgentToken.agent_id == agent.id, col(AgentToken.revoked_at).is_(None)) >= MOST_TOKENS:
            raise Conflict(f"agent {agent.slug} has {MOST_TOKENS} tokens already; revoke unused tokens first")
        token = BEARER_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        row = AgentToken(
            agent_id=agent.id or 0,
            name=name,
            digest=token_digest(token),
            ending=token[-4:],
            created_by=actor,
            created_at=self._now,
        )
        self._save_objects(row)
        self._audit(actor, "token.create", agent, row)
        return IssuedToken.from_row(row, token=token)

    def list_tokens_of_agent(self, agent: Agent, before: int | None, limit: int) -> Sequence[AgentToken]:
        """Return up to ``limit`` tokens of an agent with ids below ``before``, newest first."""
        page = select(AgentToken).where(AgentToken.agent_id == agent.id)
        if before is not None:
            page = page.where(col(AgentToken.id) < before)
        return self._find_all(page.order_by(col(AgentToken.id).desc()).limit(limit))

    def list_valid_tokens(self, before: int | None, limit: int) -> Sequence[TokenHolder]:
        """Return up to ``limit`` valid tokens and their agents, with ids below ``before``, newest first."""
        page = self._HELD if before is None else self._HELD.where(col(AgentToken.id) < before)
        newest = page.order_by(col(AgentToken.id).desc()).limit(limit)
        return [TokenHolder(*row) for row in self._session.exec(newest)]

    def revoke_token(self, agent: Agent, token_id: int, actor: str) -> AgentToken:
        """Revoke an agent's token, if it is still valid; raises ``NotFound`` for an unknown token."""
        row = self._session.get(AgentToken, token_id)
        if row is None or row.agent_id != agent.id:
            raise NotFound(f"agent {agent.slug} has no token {token_id}")
        if row.revoked_at is None:
            row.revoked_at = self._now
            self._save_objects(row)
            self._audit(actor, "token.revoke", agent, row)
        return row

    def find_agent(self, token: str) -> TokenHolder | None:
        """Return the row of a token and its agent, even an archived one; None for an unknown or revoked token."""
        row = self._session.exec(self._HELD.where(AgentToken.digest == token_digest(token))).first()
        return TokenHolder(*row) if row is not None else None

    def record_use(self, token: AgentToken) -> None:
        """Record that a token is used now, unless a recent use of the token is already recorded."""
        last_used_at = col(AgentToken.last_used_at)
        is_unrecorded = last_used_at.is_(None) | (last_used_at <= self._now - USE_RECORDED_EVERY)
        used = update(AgentToken).where(col(AgentToken.id) == token.id, is_unrecorded)
        self._run_statement(used.values(last_used_at=self._now))

    def delete_tokens(self, agent: Agent) -> None:
        """Delete all tokens of an agent that is being deleted."""
        self._session.exec(delete(AgentToken).where(col(AgentToken.agent_id) == agent.id))

    def _audit(self, actor: str, action: str, agent: Agent, token: AgentToken) -> None:
        named = f"{token.id} {token.name}".strip()
        Audit(self._link, self._now).add_entry(actor, action, agent.slug, f"{named}, ends in {token.ending}")


class AgentEdits(Bindings):
    """Edits of agents by operators; ``actor`` is recorded as the author in versions and in the audit log."""

    versions = LazyRepository(AgentVersions)
    tokens = LazyRepository(AgentTokens)
    skills = LazyRepository(Skills)
    colleagues = LazyRepository(Colleagues)
    routing = LazyRepository(RoutingSnapshots)

    def create(self, new: NewAgent, actor: str, reason: str = "") -> Agent:
        """Add an agent; raises ``Conflict`` when the slug is in use, ``InvalidEdit`` for an unknown client."""
        taken = self.find_agent_by_slug(new.slug)
        if taken is not None and taken.status is AgentStatus.ARCHIVED:
            raise Conflict(f"the slug {new.slug} is that of an archived agent; restore it, or choose another slug")
        if taken is not None:
            raise Conflict(f"there is an agent {new.slug} already; change it, or choose another slug")
        agent = Agent(slug=new.slug, name=new.slug, created_at=self._now, updated_at=self._now)
        write_fields(agent, add_conductor_prompt(new), self._clients.find_id(new.client))
        self.save_agent(agent)
        self._add_version(agent, actor, reason)
        self._audit.add_entry(actor, "agent.create", agent.slug, reason)
        return agent

    def change(self, agent: Agent, change: AgentChange, actor: str, reason: str = "") -> Agent:
        """Change an agent, and store a new version if any field differs.

        Raises ``Conflict`` when the agent was edited after the caller read its version, or when the edit would disable
        the last conductor. Raises ``InvalidEdit`` for an unknown client. Archiving an agent deletes its bindings.
        """
        if change.version is not None and change.version != agent.version:
            raise Conflict(
                f"agent {agent.slug} was changed meanwhile: its version is {agent.version}, but this change was made "
                f"for version {change.version}. Read the agent again, and repeat the change."
            )
        self.begin_history(agent)
        before = self.read_fields(agent)
        after = apply_change(before, change)
        after = after.model_copy(update={"name": after.name or agent.slug})
        differences = diff_fields(before, after)
        if not differences:
            return agent
        self._require_conductor(agent, after, change.force)
        write_fields(agent, after, self._clients.find_id(after.client))
        agent.version += 1
        self.save_agent(agent)
        if agent.status is AgentStatus.ARCHIVED:
            self._session.exec(delete(AgentChannel).where(col(AgentChannel.agent_id) == agent.id))
        self._add_version(agent, actor, reason)
        self._audit.add_entry(
            actor, "agent.change", agent.slug, ", ".join(difference.field for difference in differences)
        )
        if MODEL_FIELDS.intersection(difference.field for difference in differences):
            Jobs(self._link, self._now).wake_for_models()
        return agent

    def roll_back(self, agent: Agent, number: int, actor: str, reason: str = "", *, force: bool = False) -> Agent:
        """Restore the fields of an earlier version as a new version; raises ``NotFound``, and as ``change`` does."""
        old = version_fields(self.versions.get_version(agent, number))
        change = AgentChange.model_construct(**dict(old), force=force)
        return self.change(agent, change, actor, reason or f"as in version {number}")

    def purge(self, agent: Agent, actor: str, *, force: bool = False) -> None:
        """Delete an agent with its versions and bindings; the last conductor is deleted only with ``force``.

        Raises ``Conflict`` while rows of other tables refer to the agent, or if the configuration names the agent.
        """
        if agent.configured:
            raise Conflict(f"agent {agent.slug} is set by the configuration; remove it from agents there first")
        used = self._find_referring_tables(agent)
        if used:
            raise Conflict(f"agent {agent.slug} cannot be deleted: rows of {used} refer to it. Archive it instead.")
        self.change(agent, AgentChange(status=AgentStatus.ARCHIVED, force=force), actor)
        self._session.exec(delete(AgentVersion).where(col(AgentVersion.agent_id) == agent.id))
        self.tokens.delete_tokens(agent)
        self._delete_object(agent)
        self._audit.add_entry(actor, "agent.purge", agent.slug)

    def build_detail(self, agent: Agent) -> AgentDetail:
        """Return an agent with all its details as an API view."""
        return agent_detail(agent, self.read_fields(agent), tuple(map(self.build_view, self.list_channels(agent))))

    def read_fields(self, agent: Agent) -> AgentFields:
        """Return the editable fields of an agent."""
        return agent_fields(agent, self._clients.find_name(agent.client_id))

    def begin_history(self, agent: Agent) -> None:
        """Store the current state of an agent as its first version, unless it has versions already."""
        if not self.versions.list_versions(agent, limit=1):
            self._add_version(agent, EARLIER, "")

    def _add_version(self, agent: Agent, actor: str, reason: str) -> None:
        self.versions.add_version(agent, self.read_fields(agent).model_dump_json(), actor, reason)

    def _find_referring_tables(self, agent: Agent) -> str:
        """Return the names of tables with rows of an agent, without tables whose rows are deleted with the agent."""
        own = {AgentVersion.__tablename__, AgentChannel.__tablename__, AgentToken.__tablename__}
        # Only integer columns contain agent ids; in the tables of the agent chat, ``agent_id`` contains slugs.
        tables = [
            table
            for name, table in SQLModel.metadata.tables.items()
            if name not in own and "agent_id" in table.c and isinstance(table.c.agent_id.type, Integer)
        ]
        of_agent = ((table.name, select(table.c.agent_id).where(table.c.agent_id == agent.id)) for table in tables)
        return ", ".join(sorted(name for name, rows in of_agent if self._find_first(rows.limit(1))))

    def _require_conductor(self, agent: Agent, after: AgentFields, force: bool) -> None:
        others = self._count_rows(
            Agent.role == CONDUCTOR, Agent.status == AgentStatus.ACTIVE, col(Agent.id) != agent.id
        )
        if not force and removes_last_conductor(agent, after, others):
            raise Conflict(
                f"{agent.slug} is the only active conductor, and no agent would answer direct messages. Make another "
                "agent a conductor first, or force the change."
            )

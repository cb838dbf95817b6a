"""The operations on agents, on their bindings to channels, and on their access tokens."""

from typing import Annotated

from pydantic import Field

from maestro.domain.agents.agent import AgentStatus, IssuedToken, NewToken, TokenPage, TokenView
from maestro.domain.agents.edits import MAX_REASON, AgentChange, BindingChange, BoundChannel, NewAgent, Rollback
from maestro.domain.agents.views import (
    AgentDetail,
    AgentPage,
    Binding,
    BindingPage,
    VersionDetail,
    VersionPage,
    agent_page,
    version_detail,
    version_page,
)
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.messages import Address
from maestro.operations.inputs import LIMIT, Limit, RowCursor, RowId, StoreOperations

Reason = Annotated[str, Field(max_length=MAX_REASON, description="The reason, shown in the agent's history.")]


class AgentOperations(StoreOperations):
    """The operations on agents and their versions; an unknown slug (short name) raises ``NotFound``."""

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> AgentPage:
        """List the agents in the order of their slugs; ``cursor`` is the last slug of the previous page."""
        with self._store.view() as tx:
            return agent_page(tx.agents.list_agents(), cursor, limit)

    def show(self, slug: str) -> AgentDetail:
        """Return an agent with all its fields and its channels."""
        with self._store.view() as tx:
            return tx.agents.build_detail(tx.agents.get_agent_by_slug(slug))

    def add(self, new: NewAgent, actor: str, reason: Reason = "") -> AgentDetail:
        """Create an agent, which answers from the next message on; 409 when another agent has the slug."""
        with self._store.begin() as tx:
            return tx.agents.build_detail(tx.agents.create(new, actor, reason))

    def change(self, slug: str, change: AgentChange, actor: str, reason: Reason = "") -> AgentDetail:
        """Change the given fields of an agent, from the next message on; null restores the default for all agents.

        409 when ``version`` is given but is no longer the newest. 409 also when no active conductor would remain,
        unless ``force`` is true. The status ``active`` restores an archived or paused agent.
        """
        with self._store.begin() as tx:
            return tx.agents.build_detail(tx.agents.change(tx.agents.get_agent_by_slug(slug), change, actor, reason))

    def remove(self, slug: str, actor: str, reason: Reason = "", *, purge: bool = False, force: bool = False) -> None:
        """Archive an agent: it answers no more and its channels are unbound; its conversations and memory stay.

        With ``purge`` the agent is deleted instead; 409 while jobs, memory or conversations refer to the agent. 409 for
        the last active conductor, unless ``force`` is true.
        """
        with self._store.begin() as tx:
            agent = tx.agents.get_agent_by_slug(slug)
            if purge:
                tx.agents.purge(agent, actor, force=force)
            else:
                tx.agents.change(agent, AgentChange(status=AgentStatus.ARCHIVED, force=force), actor, reason)

    def versions(self, slug: str, limit: Limit = LIMIT, cursor: RowCursor = None) -> VersionPage:
        """List the versions of an agent, newest first."""
        with self._store.view() as tx:
            before = int(cursor) if cursor is not None else None
            return version_page(
                tx.agents.versions.list_versions(tx.agents.get_agent_by_slug(slug), before, limit + 1), limit
            )

    def version(self, slug: str, number: int, against: int | None = None) -> VersionDetail:
        """Return a version of an agent, and its differences from the previous version, or from version ``against``."""
        with self._store.view() as tx:
            return version_detail(*tx.agents.versions.get_pair(tx.agents.get_agent_by_slug(slug), number, against))

    def roll_back(self, slug: str, rollback: Rollback, actor: str) -> AgentDetail:
        """Create a new version of an agent with the content of an earlier version."""
        with self._store.begin() as tx:
            agent = tx.agents.get_agent_by_slug(slug)
            return tx.agents.build_detail(
                tx.agents.roll_back(agent, rollback.version, actor, rollback.reason, force=rollback.force)
            )

    def undo(self, slug: str, actor: str, reason: str = "", *, force: bool = False) -> AgentDetail:
        """Create a new version of an agent with the content of the previous one; 409 if there is only one version."""
        with self._store.begin() as tx:
            agent = tx.agents.get_agent_by_slug(slug)
            if agent.version < 2:
                raise Conflict(f"agent {slug} has only one version; there is nothing to go back to")
            return tx.agents.build_detail(tx.agents.roll_back(agent, agent.version - 1, actor, reason, force=force))


class BindingOperations(StoreOperations):
    """The operations on bindings of channels to agents; an unknown binding raises ``NotFound``."""

    def list(self, agent: str | None = None, limit: Limit = LIMIT, cursor: RowCursor = None) -> BindingPage:
        """List the bindings of channels to agents, oldest first; ``agent``, a slug, limits the list to one agent."""
        with self._store.view() as tx:
            return tx.agents.list_bindings_page(agent, int(cursor or 0), limit)

    def free(self, address: Address, actor: str) -> None:
        """Remove the binding of the channel at an address; 409 for a binding from the configuration."""
        with self._store.begin() as tx:
            binding = tx.agents.find_binding(address)
            if binding is None:
                raise NotFound(f"{address.platform}/{address.channel} is bound to no agent")
            tx.agents.unbind_channel(binding, actor)

    def add(self, new: BoundChannel, actor: str) -> Binding:
        """Bind a channel to an agent, from the next message on; 409 when the channel is already bound."""
        with self._store.begin() as tx:
            return tx.agents.build_view(tx.agents.bind_channel(tx.agents.get_agent_by_slug(new.agent), new, actor))

    def change(self, binding_id: RowId, change: BindingChange, actor: str) -> Binding:
        """Change the given fields of a binding; 409 for a binding from the configuration."""
        with self._store.begin() as tx:
            return tx.agents.build_view(tx.agents.change_binding(tx.agents.get_binding(binding_id), change, actor))

    def remove(self, binding_id: RowId, actor: str) -> None:
        """Remove a binding; 409 for a binding from the configuration."""
        with self._store.begin() as tx:
            tx.agents.unbind_channel(tx.agents.get_binding(binding_id), actor)


class TokenOperations(StoreOperations):
    """The operations on the access tokens of an agent; an unknown slug or token raises ``NotFound``."""

    def list(self, slug: str, limit: Limit = LIMIT, cursor: RowId | None = None) -> TokenPage:
        """List the tokens of an agent, newest first, including revoked ones; the store holds only digests of tokens."""
        with self._store.view() as tx:
            tokens = tx.agents.tokens.list_tokens_of_agent(tx.agents.get_agent_by_slug(slug), cursor, limit + 1)
        items = tuple(map(TokenView.model_validate, tokens[:limit]))
        return TokenPage(items=items, next=str(items[-1].id) if len(tokens) > limit else None)

    def add(self, slug: str, new: NewToken, actor: str) -> IssuedToken:
        """Create a token for an agent; 409 for an archived agent. Only this response contains the token."""
        with self._store.begin() as tx:
            return tx.agents.tokens.create_token(tx.agents.get_agent_by_slug(slug), new.name, actor)

    def revoke(self, slug: str, token_id: RowId, actor: str) -> TokenView:
        """Revoke a token; Maestro then refuses every request with the token."""
        with self._store.begin() as tx:
            return TokenView.model_validate(
                tx.agents.tokens.revoke_token(tx.agents.get_agent_by_slug(slug), token_id, actor)
            )

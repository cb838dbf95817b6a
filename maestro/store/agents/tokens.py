"""Queries for the bearer tokens of external agents; the store has only digests of tokens."""

import secrets
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, update
from sqlmodel import col, select

from maestro.domain.agents.agent import (
    BEARER_PREFIX,
    MOST_TOKENS,
    TOKEN_BYTES,
    USE_RECORDED_EVERY,
    Agent,
    AgentStatus,
    AgentToken,
    IssuedToken,
    TokenHolder,
    token_digest,
)
from maestro.domain.errors import Conflict, NotFound
from maestro.store.engine.repository import Repository
from maestro.store.users.audit import Audit


class AgentTokens(Repository):
    """Queries for bearer tokens, including revoked ones."""

    _HELD = (
        select(AgentToken, Agent)
        .join(Agent, col(Agent.id) == AgentToken.agent_id)
        .where(col(AgentToken.revoked_at).is_(None))
    )
    _HOLDER = _HELD.where(AgentToken.digest == bindparam("its_digest"))
    _USED = (
        update(AgentToken)
        .where(
            col(AgentToken.id) == bindparam("token_id"),
            col(AgentToken.last_used_at).is_(None) | (col(AgentToken.last_used_at) <= bindparam("before")),
        )
        .values(last_used_at=bindparam("at"))
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
        """Return up to ``limit`` valid tokens with ids below ``before``, newest first, each with its agent."""
        page = self._HELD if before is None else self._HELD.where(col(AgentToken.id) < before)
        newest = page.order_by(col(AgentToken.id).desc()).limit(limit)
        return [TokenHolder(*row) for row in self._session.exec(newest)]

    def revoke_token(self, agent: Agent, token_id: int, actor: str) -> AgentToken:
        """Revoke an agent's token, unless it is revoked already; raises ``NotFound`` for an unknown token."""
        row = self._session.get(AgentToken, token_id)
        if row is None or row.agent_id != agent.id:
            raise NotFound(f"agent {agent.slug} has no token {token_id}")
        if row.revoked_at is None:
            row.revoked_at = self._now
            self._save_objects(row)
            self._audit(actor, "token.revoke", agent, row)
        return row

    def find_agent(self, token: str) -> TokenHolder | None:
        """Return a token's row and its agent, even if archived; None if the token is unknown or revoked."""
        row = self._session.exec(self._HOLDER, params={"its_digest": token_digest(token)}).first()
        return TokenHolder(*row) if row is not None else None

    def record_use(self, token: AgentToken) -> None:
        """Record that a token is used now, unless a recent use is recorded already."""
        self._run_statement(self._USED, token_id=token.id, at=self._now, before=self._now - USE_RECORDED_EVERY)

    def delete_tokens(self, agent: Agent) -> None:
        """Delete all tokens of an agent that is being deleted."""
        self._session.exec(delete(AgentToken).where(col(AgentToken.agent_id) == agent.id))

    def _audit(self, actor: str, action: str, agent: Agent, token: AgentToken) -> None:
        named = f"{token.id} {token.name}".strip()
        Audit(self._link, self._now).add_entry(actor, action, agent.slug, f"{named}, ends in {token.ending}")

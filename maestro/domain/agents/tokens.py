"""The bearer tokens by which outside agents are told apart; only a digest of each is kept."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Field, SQLModel

from maestro.domain.agents.agent import Agent
from maestro.domain.columns import UtcDateTime
from maestro.domain.fields import DisplayName
from maestro.domain.values import View

PREFIX = "mst_"
"""How every token begins, so that people and scanners for secrets know one when they see it."""
RANDOM_BYTES = 32
ENDING_CHARS = 4
MOST_TOKENS = 100
"""Tokens of one agent that are not revoked; more of them are forgotten somewhere."""
USE_NOTED_EVERY = timedelta(minutes=1)


class AgentToken(SQLModel, table=True):
    """One token of one agent: the SHA-256 of it, and its last four characters so that people can tell them apart."""

    __tablename__ = "agent_tokens"

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str = ""
    digest: str = Field(unique=True)
    ending: str
    created_by: str
    created_at: datetime = Field(sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


@dataclass(frozen=True)
class TokenHolder:
    """An agent that showed a token which holds."""

    token: AgentToken
    agent: Agent


class NewToken(View):
    """What a token is to be called, so that people know later where it is used."""

    name: DisplayName = ""


class TokenView(View):
    """A token as operators see it; ``last_used_at`` is noted at most once a minute."""

    id: int
    name: str
    ending: str
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class IssuedToken(TokenView):
    """A new token, the only time that it is shown."""

    token: str


class TokenPage(View):
    """Tokens of an agent, newest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[TokenView, ...]
    next: str | None


def digest_of(token: str) -> str:
    """Return what is kept of a token; it is as random as the digest is long, so nothing is gained by salt."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def issued_token(kept: AgentToken, token: str) -> IssuedToken:
    """Show a new token with what is kept of it."""
    return IssuedToken(**kept.model_dump(include=set(TokenView.model_fields)), token=token)


def token_page(tokens: Sequence[AgentToken], limit: int) -> TokenPage:
    """Return a page of up to ``limit`` tokens; ``tokens`` may be one more, and then there is another page."""
    items = tuple(map(TokenView.model_validate, tokens[:limit]))
    return TokenPage(items=items, next=str(items[-1].id) if len(tokens) > limit else None)


def use_is_news(token: AgentToken, now: datetime) -> bool:
    """Say whether that a token is used has to be noted again."""
    return token.last_used_at is None or now - token.last_used_at >= USE_NOTED_EVERY

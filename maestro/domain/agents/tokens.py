"""Bearer tokens that identify external agents; only their digests are stored."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Field, SQLModel

from maestro.domain.agents.agent import Agent
from maestro.domain.columns import UtcDateTime
from maestro.domain.fields import DisplayName
from maestro.domain.values import Page, View

PREFIX = "mst_"
"""The prefix of every token, by which operators and secret scanners recognise one."""
RANDOM_BYTES = 32
MOST_TOKENS = 100
"""The most active tokens of one agent; a higher number means that unused tokens were not revoked."""
USE_RECORDED_EVERY = timedelta(minutes=1)


class AgentToken(SQLModel, table=True):
    """A token of an agent: its SHA-256 digest, and its last four characters so that operators can tell tokens apart."""

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
    """An agent that presented a valid token, with that token."""

    token: AgentToken
    agent: Agent


class NewToken(View):
    """A request to create a token; its name tells operators where the token is used."""

    name: DisplayName = ""


class TokenView(View):
    """A token for operators; ``last_used_at`` is updated at most once a minute."""

    id: int
    name: str
    ending: str
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class IssuedToken(TokenView):
    """A new token with its full text, which is shown only once."""

    token: str


class TokenPage(Page[TokenView]):
    """A page of an agent's tokens, newest first."""


def token_digest(token: str) -> str:
    """Return the digest under which a token is stored; a token has 256 random bits, so a salt adds nothing."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def token_page(tokens: Sequence[AgentToken], limit: int) -> TokenPage:
    """Return a page of up to ``limit`` tokens; ``tokens`` has one more if there is a next page."""
    items = tuple(map(TokenView.model_validate, tokens[:limit]))
    return TokenPage(items=items, next=str(items[-1].id) if len(tokens) > limit else None)


def is_use_due(token: AgentToken, now: datetime) -> bool:
    """Return whether the use of a token now must be recorded, because none was recorded in the last minute."""
    return token.last_used_at is None or now - token.last_used_at >= USE_RECORDED_EVERY

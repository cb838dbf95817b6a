"""The bearer tokens by which outside agents are told apart; only a digest of each is kept."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


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

"""Heartbeats and crons as the operator's truth: what is to run when, for whom and where (decision 14)."""

from datetime import datetime

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime


class Planned(SQLModel):
    """What a heartbeat and a cron have in common; ``schedule`` is the text as it was written, ``zone`` an IANA name.

    The name is unique among all that is planned for an agent.
    """

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str
    schedule: str
    zone: str = "UTC"
    prompt: str
    platform: str
    account: str
    channel: str
    enabled: bool = True
    created_by: str
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class Heartbeat(Planned, table=True):
    """Something an agent looks after every so often."""

    __tablename__ = "heartbeat_configs"
    __table_args__ = (UniqueConstraint("agent_id", "name"),)


class Cron(Planned, table=True):
    """Something an agent does at certain times."""

    __tablename__ = "cron_jobs"
    __table_args__ = (UniqueConstraint("agent_id", "name"),)

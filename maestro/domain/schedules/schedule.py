"""Heartbeats and crons as the operator's truth: what is to run when, for whom and where (decision 14)."""

from collections.abc import Container
from datetime import datetime
from itertools import chain, count
from typing import ClassVar

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime


class Planned(SQLModel):
    """What a heartbeat and a cron have in common; ``schedule`` is the text as it was written, ``zone`` an IANA name.

    The name is unique among all that is planned for an agent; ``unnamed`` is what is called so that nobody named.
    """

    unnamed: ClassVar[str]

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

    def is_like(self, other: "Planned") -> bool:
        """Say whether both have the same agent do the same, at the same times and places."""
        what = {"agent_id", "schedule", "zone", "prompt", "platform", "account", "channel"}
        return type(self) is type(other) and self.model_dump(include=what) == other.model_dump(include=what)


class Heartbeat(Planned, table=True):
    """Something an agent looks after every so often."""

    unnamed: ClassVar[str] = "Heartbeat"

    __tablename__ = "heartbeat_configs"
    __table_args__ = (UniqueConstraint("agent_id", "name"),)


class Cron(Planned, table=True):
    """Something an agent does at certain times."""

    unnamed: ClassVar[str] = "Cron Job"

    __tablename__ = "cron_jobs"
    __table_args__ = (UniqueConstraint("agent_id", "name"),)


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name, with the first number from 2 on that makes it one of its own if it is taken."""
    numbered = (f"{name} {number}" for number in count(2))
    return next(one for one in chain((name,), numbered) if one not in taken)

"""Bots: our accounts on platforms, as rows that may be added and changed while Maestro runs."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class BotInstance(SQLModel, table=True):
    """One account of ours on a platform; what comes in there is for its agent, if it has one.

    ``secrets`` is a JSON object of names and what may be kept of each secret: a reference, or the secret encrypted;
    ``endings`` of names and the last characters, for people to know them by. ``options`` is a JSON object of what its
    platform lets one set. One that is ``configured`` stands in the configuration, which alone has its secrets and
    options; whether it is ``enabled`` is for operators to say in any case.

    See docs/decisions.md: routing.
    """

    __tablename__ = "bot_instances"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    agent_id: int | None = Field(default=None, foreign_key="agents.id")
    configured: bool = False
    enabled: bool = True
    secrets: str = "{}"
    endings: str = "{}"
    options: str = "{}"
    changed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    @property
    def place(self) -> str:
        """Its name among all bots."""
        return f"{self.platform}/{self.account}"

    @property
    def kept_secrets(self) -> Mapping[str, str]:
        """What is kept of each secret."""
        found: Mapping[str, str] = json.loads(self.secrets)
        return found

    @property
    def last_characters(self) -> Mapping[str, str]:
        """The end of each secret that was typed and is long enough."""
        found: Mapping[str, str] = json.loads(self.endings)
        return found

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What was set of it."""
        found: Mapping[str, Any] = json.loads(self.options)
        return found

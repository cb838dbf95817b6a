"""Accounts on platforms and their channels, as rows and as operators see and change them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field as ValueField
from pydantic import SecretStr
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime
from maestro.domain.fields import AccountName, OptionalSlug, Word
from maestro.domain.llm.account_views import REFERENCES
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.values import View


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
    def stored_secrets(self) -> Mapping[str, str]:
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


class ChannelCursor(SQLModel, table=True):
    """A channel, or a thread of one, that one of our accounts saw.

    Every message up to the platform's id ``mark`` is in the inbox; it is empty where nothing was read.
    """

    __tablename__ = "channel_cursors"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    thread: str = Field(primary_key=True)
    mark: str = ""
    direct: bool = False
    seen_at: datetime = Field(sa_type=UtcDateTime)


class DisabledChannel(SQLModel, table=True):
    """A channel in which the platform lets us send nothing any more.

    A message from there, or an operator, enables it again.
    """

    __tablename__ = "disabled_channels"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    reason: str
    disabled_at: datetime = Field(sa_type=UtcDateTime)


class MovedChannel(SQLModel, table=True):
    """A channel that its platform goes on with under another id, such as a group that became larger."""

    __tablename__ = "moved_channels"

    platform: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    moved_to: str
    moved_at: datetime = Field(sa_type=UtcDateTime)


class SecretView(View):
    """A secret that is set: where it stands instead, such as ``env:NAME``, or its last characters if it is long."""

    name: str
    reference: str = ""
    last4: str = ""


class ConnectorView(View):
    """One account of ours on a platform, and how it is.

    ``configured`` says that it stands in the configuration, which alone has its secrets and options then. ``state`` is
    empty for one that no process has connected yet. ``lag_seconds`` is how old the last event was when it came.
    """

    platform: str
    account: str
    agent: str
    enabled: bool
    configured: bool
    secrets: tuple[SecretView, ...]
    options: dict[str, Any]
    state: str = ""
    detail: str = ""
    changed_at: datetime | None = None
    last_event_at: datetime | None = None
    lag_seconds: float | None = None
    last_error: str = ""
    last_error_at: datetime | None = None


class ConnectorPage(View):
    """All connectors by platform and account; ``next`` is null, because there are never many."""

    items: tuple[ConnectorView, ...]
    next: str | None = None


class NewConnector(View):
    """A connector to add; a secret is the text itself, which is stored encrypted, or ``env:NAME`` or ``file:PATH``.

    ``options`` are named as in the platform's section of the configuration.
    """

    platform: Word
    account: AccountName = DEFAULT_ACCOUNT
    agent: OptionalSlug = ""
    enabled: bool = True
    secrets: dict[str, SecretStr] = ValueField(default={})
    options: dict[str, Any] = ValueField(default={})


class ConnectorChange(View):
    """What is to be changed of a connector; what is null stays. An empty secret, and an option of null, is taken away.

    An empty ``agent`` leaves what is said there to the rules of routing.
    """

    agent: OptionalSlug | None = None
    enabled: bool | None = None
    secrets: dict[str, SecretStr] | None = None
    options: dict[str, Any] | None = None


class DisabledChannelView(View):
    """A channel to which nothing is sent, because its platform refused it for good, and why."""

    platform: str
    account: str
    channel: str
    reason: str
    disabled_at: datetime


class DisabledChannelPage(View):
    """Channels to which nothing is sent, the last one first; ``next`` is null."""

    items: tuple[DisabledChannelView, ...]
    next: str | None = None


_SAID = ("state", "detail", "changed_at", "last_event_at", "lag_seconds", "last_error", "last_error_at")


def connector_view(bot: BotInstance, agent: str, status: ConnectorStatus | None) -> ConnectorView:
    """Show a connector."""
    kept, endings = bot.stored_secrets, bot.last_characters
    said = {name: getattr(status, name) for name in _SAID} if status is not None else {}
    return ConnectorView(
        platform=bot.platform,
        account=bot.account,
        agent=agent,
        enabled=bot.enabled,
        configured=bot.configured,
        secrets=tuple(_secret(name, text, endings.get(name, "")) for name, text in kept.items()),
        options=dict(bot.chosen),
        **said,
    )


def connector_page(
    bots: Sequence[BotInstance], agents: Mapping[int, str], said: Sequence[ConnectorStatus]
) -> ConnectorPage:
    """Show all connectors; the web connector, which is no bot, is one of the configuration."""
    statuses = {(status.platform, status.account): status for status in said}
    named = {(bot.platform, bot.account): bot for bot in bots}
    for platform, account in statuses.keys() - named.keys():
        if platform == "web":
            named[platform, account] = BotInstance(platform=platform, account=account, configured=True)
    shown = [connector_view(bot, agents.get(bot.agent_id or 0, ""), statuses.get(at)) for at, bot in named.items()]
    return ConnectorPage(items=tuple(sorted(shown, key=lambda one: (one.platform, one.account))))


def disabled_page(channels: Sequence[DisabledChannel]) -> DisabledChannelPage:
    """Show the channels to which nothing is sent."""
    return DisabledChannelPage(items=tuple(map(DisabledChannelView.model_validate, channels)))


def _secret(name: str, kept: str, last4: str) -> SecretView:
    return SecretView(name=name, reference=kept if kept.startswith(REFERENCES) else "", last4=last4)

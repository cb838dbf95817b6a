"""The tables and views of connectors (Maestro's accounts on platforms) and of their channels."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field as ValueField
from pydantic import SecretStr
from sqlmodel import Field, SQLModel

from maestro.domain.columns import ChannelRow, UtcDateTime
from maestro.domain.llm.accounts import REFERENCES
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import ConnectorStatus
from maestro.domain.values import AccountName, OptionalSlug, Page, View, Word


class BotInstance(SQLModel, table=True):
    """An account of Maestro on a platform; ``agent_id`` is the agent that answers its messages, None to use routing.

    ``secrets`` is a JSON object of secrets by name: each a reference such as ``env:NAME``, or the encrypted secret.
    ``endings`` has the last characters of each secret, by which operators tell the secrets apart. ``options`` is a JSON
    object of the platform's settings for the account. If the account is ``configured``, the configuration file defines
    it, with its secrets and options; operators can set ``enabled`` of every account (docs/decisions.md: routing).
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
    def name(self) -> str:
        """The platform and the name of the account, which together identify it."""
        return f"{self.platform}/{self.account}"

    @property
    def stored_secrets(self) -> Mapping[str, str]:
        """The references or encrypted secrets, by name."""
        return dict(json.loads(self.secrets))

    @property
    def last_characters(self) -> Mapping[str, str]:
        """The last characters of the secrets that an operator entered, by name; short secrets are left out."""
        return dict(json.loads(self.endings))

    @property
    def option_values(self) -> Mapping[str, Any]:
        """The options that are set for the account, by name."""
        return dict(json.loads(self.options))


class ChannelCursor(ChannelRow, table=True):
    """How far an account of Maestro has read a channel or thread; a catch-up after an outage begins there.

    ``mark`` is the platform's id of a message: the inbox has every message up to it. It is empty if no message was
    read.
    """

    __tablename__ = "channel_cursors"

    thread: str = Field(primary_key=True)
    mark: str = ""
    direct: bool = False
    seen_at: datetime = Field(sa_type=UtcDateTime)


class DisabledChannel(ChannelRow, table=True):
    """A channel to which Maestro sends nothing, because the platform permanently refused a message.

    A new message from the channel, or an operator, enables the channel again.
    """

    __tablename__ = "disabled_channels"

    reason: str
    disabled_at: datetime = Field(sa_type=UtcDateTime)


class MovedChannel(ChannelRow, table=True):
    """A channel that got another id on its platform, such as a Telegram group that became a supergroup."""

    __tablename__ = "moved_channels"

    moved_to: str
    moved_at: datetime = Field(sa_type=UtcDateTime)


class SecretView(View):
    """A secret without its value: its reference, such as ``env:NAME``, or the last characters of a long secret."""

    name: str
    reference: str = ""
    last4: str = ""


class ConnectorView(View):
    """An account of Maestro on a platform, with its settings and its last reported state.

    If the account is ``configured``, the configuration file defines it, with its secrets and options. ``state`` is
    empty if no process has connected the account yet. ``lagSeconds`` is the time from the last event on the platform to
    its receipt.
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

    @property
    def name(self) -> str:
        """The platform and the name of the account, which together identify the connector."""
        return f"{self.platform}/{self.account}"


class ConnectorPage(Page[ConnectorView]):
    """All connectors, sorted by platform and account; ``next`` is always null."""

    next: str | None = None


class NewConnector(View):
    """A connector to add; a secret is a value, which is stored encrypted, or ``env:NAME`` or ``file:PATH``.

    ``options`` are named like the keys in the platform's section of the configuration.
    """

    platform: Word
    account: AccountName = DEFAULT_ACCOUNT
    agent: OptionalSlug = ""
    enabled: bool = True
    secrets: dict[str, SecretStr] = ValueField(default={})
    options: dict[str, Any] = ValueField(default={})


class ConnectorChange(View):
    """Changes of a connector; a null field stays as it is. An empty secret or an option of null is removed.

    With an empty ``agent``, the routing rules choose the agent for messages of the account.
    """

    agent: OptionalSlug | None = None
    enabled: bool | None = None
    secrets: dict[str, SecretStr] | None = None
    options: dict[str, Any] | None = None


class DisabledChannelView(View):
    """A channel to which Maestro sends nothing, and the platform's reason for its permanent refusal."""

    platform: str
    account: str
    channel: str
    reason: str
    disabled_at: datetime


class DisabledChannelPage(Page[DisabledChannelView]):
    """Channels to which Maestro sends nothing, the last disabled first; ``next`` is always null."""

    next: str | None = None


def connector_view(bot: BotInstance, agent: str, status: ConnectorStatus | None) -> ConnectorView:
    """Return the view of a connector; ``agent`` is the slug of its agent, ``status`` its last reported state."""
    endings = bot.last_characters
    secrets = tuple(
        SecretView(name=name, reference=text if text.startswith(REFERENCES) else "", last4=endings.get(name, ""))
        for name, text in bot.stored_secrets.items()
    )
    return ConnectorView(
        **bot.model_dump(include={"platform", "account", "enabled", "configured"}),
        **(
            status.model_dump(include=set(ConnectorView.model_fields) - {"platform", "account"})
            if status is not None
            else {}
        ),
        agent=agent,
        secrets=secrets,
        options=dict(bot.option_values),
    )


def connector_page(
    bots: Sequence[BotInstance], agents: Mapping[int, str], reported: Sequence[ConnectorStatus]
) -> ConnectorPage:
    """Return the view of all connectors. The web connector has no row among ``bots``; it is shown as configured."""
    statuses = {(status.platform, status.account): status for status in reported}
    rows = {(bot.platform, bot.account): bot for bot in bots}
    for platform, account in statuses.keys() - rows.keys():
        if platform == "web":
            rows[platform, account] = BotInstance(platform=platform, account=account, configured=True)
    return ConnectorPage(
        items=tuple(
            connector_view(bot, agents.get(bot.agent_id or 0, ""), statuses.get(key))
            for key, bot in sorted(rows.items())
        )
    )


def disabled_page(channels: Sequence[DisabledChannel]) -> DisabledChannelPage:
    """Return the view of the channels to which Maestro sends nothing."""
    return DisabledChannelPage(items=tuple(map(DisabledChannelView.model_validate, channels)))

"""The operations on connectors; each connector is one account (bot) of Maestro on a chat platform."""

import json
from collections.abc import Mapping

from pydantic import SecretStr

from connectors.options import Instance
from connectors.platforms import Platform
from connectors.platforms import platform as described
from maestro.domain.connectors import (
    BotInstance,
    ConnectorChange,
    ConnectorPage,
    ConnectorView,
    DisabledChannelPage,
    NewConnector,
    connector_page,
    connector_view,
    disabled_page,
)
from maestro.domain.errors import ConfigurationError, Conflict, InvalidEdit, NotFound
from maestro.domain.llm.accounts import StoredKey
from maestro.domain.messages import Address
from maestro.domain.values import read
from maestro.operations.inputs import EncryptSecret
from maestro.store.platforms.bots import WEB, set_secrets
from maestro.store.store import Store
from maestro.store.transaction import Transaction

ADDRESS_OPTIONS = ("baseUrl", "gatewayUrl", "mediaHosts")
"""The connector options that decide which server receives the connector's token."""


class ConnectorOperations:
    """The operations on connectors; an unknown platform or account raises ``NotFound``."""

    def __init__(self, store: Store, encrypt: EncryptSecret) -> None:
        self._store = store
        self._encrypt = encrypt

    def list(self) -> ConnectorPage:
        """List the connectors with their state, last event, lag and last error; secrets are never returned."""
        with self._store.view() as tx:
            agents = {agent.id or 0: agent.slug for agent in tx.agents.list_agents()}
            return connector_page(tx.bots.list_bots(), agents, tx.users.list_connectors())

    def show(self, platform: str, account: str) -> ConnectorView:
        """Return the connector of an account on a platform."""
        for item in self.list().items:
            if (item.platform, item.account) == (platform, account):
                return item
        raise NotFound(f"there is no connector {platform}/{account}")

    def add(self, new: NewConnector, actor: str) -> ConnectorView:
        """Add a connector, which connects at once; secrets are stored encrypted, or as references such as env:NAME."""
        if new.platform == WEB:
            raise ConfigurationError("platform: the web connector always exists; configure it in the section web")
        bot = BotInstance(platform=new.platform, account=new.account, enabled=new.enabled)
        set_secrets(bot, self._stored_secrets(new.secrets))
        bot.options = json.dumps(new.options, sort_keys=True)
        _check_settings(described(new.platform), bot)
        with self._store.begin() as tx:
            bot.agent_id = tx.agents.get_agent_by_slug(new.agent).id if new.agent else None
            return _connector_view(tx, tx.bots.add_bot(bot, actor))

    def change(self, platform: str, account: str, change: ConnectorChange, actor: str) -> ConnectorView:
        """Change a connector; 409 for any field but ``enabled`` of a connector from the configuration."""
        given = change.model_fields_set & {name for name, value in change if value is not None}
        with self._store.begin() as tx:
            bot = tx.bots.get_bot(platform, account)
            if bot.configured and given - {"enabled"}:
                raise Conflict(f"{bot.name} is defined in the configuration; change it there, and restart Maestro")
            if given & {"secrets", "options"}:
                self._apply_change(bot, change)
            if change.agent is not None:
                bot.agent_id = tx.agents.get_agent_by_slug(change.agent).id if change.agent else None
            if change.enabled is not None:
                bot.enabled = change.enabled
            return _connector_view(tx, tx.bots.save_bot(bot, actor, "connector.change") if given else bot)

    def remove(self, platform: str, account: str, actor: str) -> None:
        """Remove a connector and its secrets; 409 for a connector from the configuration."""
        with self._store.begin() as tx:
            tx.bots.remove_bot(tx.bots.get_bot(platform, account), actor)

    def disabled_channels(self) -> DisabledChannelPage:
        """List the channels to which Maestro sends nothing, because the platform refused a message for good."""
        with self._store.view() as tx:
            return disabled_page(tx.bots.channels.list_disabled_channels())

    def enable_channel(self, platform: str, account: str, channel: str, actor: str) -> None:
        """Allow sending to a disabled channel again; 404 when the channel is not disabled."""
        address = read(Address, {"platform": platform, "account": account, "channel": channel})
        with self._store.begin() as tx:
            if not tx.bots.channels.enable(address):
                raise NotFound(f"the channel {address.outbound_lane} is not disabled")
            tx.system.audit.add_entry(actor, "channel.enable", address.outbound_lane)

    def _apply_change(self, bot: BotInstance, change: ConnectorChange) -> None:
        before = dict(bot.option_values)
        after = {key: value for key, value in {**before, **(change.options or {})}.items() if value is not None}
        moved = [name for name in ADDRESS_OPTIONS if before.get(name) != after.get(name)]
        if moved and not set(bot.stored_secrets) <= set(change.secrets or {}):
            raise ConfigurationError(
                f"{moved[0]}: give the secrets again with another address, so that no secret is sent to another server"
            )
        set_secrets(bot, self._stored_secrets(change.secrets or {}))
        bot.options = json.dumps(after, sort_keys=True)
        _check_settings(described(bot.platform), bot)

    def _stored_secrets(self, secrets: Mapping[str, SecretStr]) -> Mapping[str, StoredKey]:
        texts = {name: secret.get_secret_value().strip() for name, secret in secrets.items()}
        if any(not text.isprintable() for text in texts.values()):
            raise ConfigurationError("secrets: expected the secret itself, in one line, or env:NAME, or file:PATH")
        return {name: self._encrypt(text) if text else StoredKey("") for name, text in texts.items()}


def _check_settings(kind: Platform, bot: BotInstance) -> None:
    """Raise ``ConfigurationError`` for wrong secret names or options; references to secrets are not resolved here."""
    unknown = sorted(set(bot.stored_secrets) - set(kind.secrets))
    if unknown:
        raise ConfigurationError(f"secrets: {bot.platform} has no {unknown[0]}; expected {', '.join(kind.secrets)}")
    try:
        options = read(kind.options, bot.option_values)
    except InvalidEdit as error:
        raise ConfigurationError(f"options: {error}") from None
    problem = kind.complete(Instance(bot.account, {name: SecretStr("set") for name in bot.stored_secrets}, options))
    if problem is not None:
        raise ConfigurationError(f"{bot.name}: {problem}")


def _connector_view(tx: Transaction, bot: BotInstance) -> ConnectorView:
    states = {(row.platform, row.account): row for row in tx.users.list_connectors()}
    agent = tx.agents.get(bot.agent_id).slug if bot.agent_id is not None else ""
    return connector_view(bot, agent, states.get((bot.platform, bot.account)))

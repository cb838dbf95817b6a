"""Queries for accounts on platforms, and for channels that a platform moved to a new id."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, update
from sqlmodel import col, select

from maestro.domain.agents.agent import AgentChannel
from maestro.domain.connectors import BotInstance, DisabledChannel, MovedChannel
from maestro.domain.conversations.conversation import Conversation, ConversationStatus
from maestro.domain.errors import Conflict
from maestro.domain.llm.accounts import StoredKey
from maestro.domain.memory.memory import MemoryFact, MemoryState
from maestro.domain.messages import Address
from maestro.domain.schedules.schedule import Cron, Heartbeat
from maestro.domain.webhooks.webhook import Webhook
from maestro.store.agents.agents import Channels
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.users.audit import Audit

WEB = "web"

POSTING = (Heartbeat, Cron, Webhook)
"""The tables of schedules and webhooks, whose jobs post to a channel."""


def set_secrets(bot: BotInstance, stored_keys: Mapping[str, StoredKey]) -> None:
    """Store encrypted secrets of an account; delete those given as empty, and keep those not given."""
    secrets, endings = dict(bot.stored_secrets), dict(bot.last_characters)
    for name, key in stored_keys.items():
        secrets.pop(name, None)
        endings.pop(name, None)
        if key.secret:
            secrets[name] = key.secret
        if key.last4:
            endings[name] = key.last4
    bot.secrets, bot.endings = json.dumps(secrets, sort_keys=True), json.dumps(endings, sort_keys=True)


class ChannelMoves(Repository):
    """Queries for channels that a platform moved to a new id."""

    def move_channel(self, address: Address, new_channel: str) -> bool:
        """Move the rows of a channel to its new id; return false if the move was already recorded.

        These are its binding (unless the new channel has one), conversations, schedules and webhooks. Open jobs keep
        the old address. A connector may send to the new one, except where another user may get the old address.
        """
        known = self._session.get(MovedChannel, (address.platform, address.account, address.channel))
        if new_channel == address.channel or (known is not None and known.moved_to == new_channel):
            return False
        at = {"platform": address.platform, "account": address.account}
        self._run_statement(
            update(MovedChannel)
            .where(*self._account_filter(MovedChannel, address), col(MovedChannel.moved_to) == address.channel)
            .values(moved_to=new_channel)
        )
        self._session.merge(MovedChannel(**at, channel=address.channel, moved_to=new_channel, moved_at=self._now))
        self._session.flush()
        self._run_statement(delete(DisabledChannel).where(*self._channel_filter(DisabledChannel, address)))
        new_place = address.model_copy(update={"channel": new_channel})
        is_bound = self._has_any(select(AgentChannel.id).where(*self._channel_filter(AgentChannel, new_place)))
        self._move_conversations(address, new_channel)
        for table in POSTING if is_bound else (AgentChannel, *POSTING):
            self._run_statement(update(table).where(*self._channel_filter(table, address)).values(channel=new_channel))
        Audit(self._link, self._now).add_entry(address.platform, "channel.moved", address.outbound_lane, new_channel)
        return True

    def _move_conversations(self, address: Address, new_channel: str) -> None:
        """Move conversations with their facts; close a conversation if the new channel has one with the same key."""
        for row in self._find_all(select(Conversation).where(*self._channel_filter(Conversation, address))):
            key = row.key_for_channel(new_channel)
            active = select(Conversation.id).where(Conversation.status == ConversationStatus.ACTIVE)
            if row.status is ConversationStatus.ACTIVE and self._has_any(active.where(Conversation.key == key)):
                row.status = ConversationStatus.CLOSED
            for table in (MemoryFact, MemoryState):
                self._run_statement(update(table).where(col(table.place) == row.key).values(place=key))
            row.channel, row.key = new_channel, key
            self._save_objects(row)

    def _account_filter(self, table: Any, address: Address) -> tuple[Any, ...]:
        return (col(table.platform) == address.platform, col(table.account) == address.account)

    def _channel_filter(self, table: Any, address: Address) -> tuple[Any, ...]:
        return (*self._account_filter(table, address), col(table.channel) == address.channel)


class Bots(Repository):
    """Queries for accounts on platforms, except the web connector, for which a row only names the agent."""

    channels = LazyRepository(Channels)
    moves = LazyRepository(ChannelMoves)
    _audit = LazyRepository(Audit)

    def list_bots(self) -> Sequence[BotInstance]:
        """Return all accounts, sorted by platform and account name."""
        order = (col(BotInstance.platform), col(BotInstance.account))
        return self._find_all(select(BotInstance).where(BotInstance.platform != WEB).order_by(*order))

    def find_bot(self, platform: str, account: str) -> BotInstance | None:
        """Return the account with this name on a platform, or None if there is none."""
        return self._session.get(BotInstance, (platform, account)) if platform != WEB else None

    def get_bot(self, platform: str, account: str) -> BotInstance:
        """Return the account with this name on a platform; raises ``NotFound``."""
        return require_found(self.find_bot(platform, account), f"there is no connector {platform}/{account}")

    def add_bot(self, bot: BotInstance, actor: str) -> BotInstance:
        """Add an account; raises ``Conflict`` when its name is in use on the platform."""
        if self.find_bot(bot.platform, bot.account) is not None:
            raise Conflict(f"there is a connector {bot.name} already; change it, or choose another account name")
        return self.save_bot(bot, actor, "connector.add")

    def save_bot(self, bot: BotInstance, actor: str, action: str) -> BotInstance:
        """Store the current values of an account, with an audit entry for ``action``."""
        bot.changed_at = self._now
        self._save_objects(bot)
        self._audit.add_entry(actor, action, bot.name)
        return bot

    def remove_bot(self, bot: BotInstance, actor: str) -> None:
        """Delete an account with its secrets; raises ``Conflict`` if the configuration names the account."""
        if bot.configured:
            raise Conflict(f"connector {bot.name} is set by the configuration; remove it there, or disable it")
        self._delete_object(bot)
        self._audit.add_entry(actor, "connector.remove", bot.name)

    def set_configured(self, named: Mapping[tuple[str, str], int | None]) -> None:
        """Store the accounts that the configuration names, with their agents; delete accounts no longer named.

        An account of the same name that was added by the API becomes a configured one without its stored secrets.
        """
        for bot in self.list_bots():
            if bot.configured and (bot.platform, bot.account) not in named:
                self._session.delete(bot)
        for (platform, account), agent_id in named.items():
            bot = self.find_bot(platform, account) or BotInstance(platform=platform, account=account)
            if not bot.configured or bot.agent_id != agent_id:
                bot.secrets, bot.endings, bot.options = "{}", "{}", "{}"
                bot.agent_id, bot.configured, bot.changed_at = agent_id, True, self._now
                self._session.add(bot)
        self._session.flush()

"""Channels that a platform goes on with under another id: what belonged to the old one belongs to the new one."""

from typing import Any

from sqlmodel import col, delete, select, update

from maestro.domain.agents.agent import AgentChannel
from maestro.domain.bots.channels import DisabledChannel, MovedChannel
from maestro.domain.conversations.conversation import Conversation, ConversationStatus
from maestro.domain.memory.memory import MemoryFact, MemoryState
from maestro.domain.messages import Address
from maestro.domain.schedules.schedule import Cron, Heartbeat
from maestro.domain.webhooks.webhook import Webhook
from maestro.store.audit import Audit
from maestro.store.repository import Repository

POSTING = (Heartbeat, Cron, Webhook)
"""What posts to a channel by itself."""


class Moves(Repository):
    """All channels that were moved."""

    def add(self, place: Address, to: str) -> bool:
        """Let bindings, conversations, schedules and webhooks go along; false when that was done before.

        What the new channel has already stays as it is there. Open jobs keep the old address, by which a connector may
        find the new one; not where the old one may become somebody else's.
        """
        known = self._session.get(MovedChannel, (place.platform, place.account, place.channel))
        if to == place.channel or (known is not None and known.moved_to == to):
            return False
        at = {"platform": place.platform, "account": place.account}
        self._run(
            update(MovedChannel)
            .where(*self._in(MovedChannel, place), col(MovedChannel.moved_to) == place.channel)
            .values(moved_to=to)
        )
        self._session.merge(MovedChannel(**at, channel=place.channel, moved_to=to, moved_at=self._now))
        self._session.flush()
        self._run(delete(DisabledChannel).where(*self._of(DisabledChannel, place)))
        self._bindings(place, to)
        self._conversations(place, to)
        for table in POSTING:
            self._run(update(table).where(*self._of(table, place)).values(channel=to))
        Audit(self._link, self._now).add(place.platform, "channel.moved", place.outbound_lane, to)
        return True

    def _bindings(self, place: Address, to: str) -> None:
        taken = select(AgentChannel.id).where(*self._of(AgentChannel, place.model_copy(update={"channel": to})))
        if self._session.exec(taken).first() is None:
            self._run(update(AgentChannel).where(*self._of(AgentChannel, place)).values(channel=to))

    def _conversations(self, place: Address, to: str) -> None:
        """Let them go along with what was learned in them; where one goes on there already, ours is closed."""
        for row in self._session.exec(select(Conversation).where(*self._of(Conversation, place))).all():
            key = row.key_in(to)
            if row.status is ConversationStatus.ACTIVE and self._goes_on(key):
                row.status = ConversationStatus.CLOSED
            for table in (MemoryFact, MemoryState):
                self._run(update(table).where(col(table.place) == row.key).values(place=key))
            row.channel, row.key = to, key
            self._session.add(row)
            self._session.flush()

    def _goes_on(self, key: str) -> bool:
        active = (Conversation.key == key, Conversation.status == ConversationStatus.ACTIVE)
        return self._session.exec(select(Conversation.id).where(*active)).first() is not None

    def _in(self, table: Any, place: Address) -> tuple[Any, ...]:
        return (col(table.platform) == place.platform, col(table.account) == place.account)

    def _of(self, table: Any, place: Address) -> tuple[Any, ...]:
        return (*self._in(table, place), col(table.channel) == place.channel)

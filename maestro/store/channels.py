"""Channels of platforms: up to where each was read, and those in which nothing can be sent."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, bindparam, func, or_
from sqlmodel import col, delete, select

from maestro.domain.bots.channels import ChannelCursor, DisabledChannel, MovedChannel
from maestro.domain.messages import Address, InboxRow
from maestro.store.prepared import Prepared, insert
from maestro.store.repository import Repository

MOST_KNOWN = 10_000
"""Channels and threads of one account that are looked at after an outage, those seen last."""


class Channels(Repository):
    """The cursors of every account of ours, and the channels that a platform closed to it."""

    _ADD = insert(ChannelCursor)
    _NEW = _ADD.excluded
    _SEEN = Prepared(
        _ADD.on_conflict_do_update(
            index_elements=["platform", "account", "channel", "thread"], set_={"seen_at": _NEW.seen_at}
        )
    )
    _LATER = or_(
        func.length(_NEW.mark) > func.length(col(ChannelCursor.mark)),
        and_(func.length(_NEW.mark) == func.length(col(ChannelCursor.mark)), _NEW.mark > col(ChannelCursor.mark)),
    )
    """Ids of platforms are numbers, or times of one length."""
    _ADVANCE = Prepared(
        _ADD.on_conflict_do_update(
            index_elements=["platform", "account", "channel", "thread"],
            set_={"mark": _NEW.mark, "seen_at": _NEW.seen_at},
            where=_LATER,
        )
    )
    _MARK = Prepared(
        select(ChannelCursor.mark).where(
            *(col(getattr(ChannelCursor, name)) == bindparam(name) for name in ("platform", "account", "channel")),
            ChannelCursor.thread == bindparam("thread"),
        )
    )
    _MOVED_TO = Prepared(
        select(MovedChannel.moved_to).where(
            *(col(getattr(MovedChannel, name)) == bindparam(name) for name in ("platform", "account", "channel"))
        )
    )
    _REASON = Prepared(
        select(DisabledChannel.reason).where(
            DisabledChannel.platform == bindparam("platform"),
            DisabledChannel.account == bindparam("account"),
            DisabledChannel.channel == bindparam("channel"),
        )
    )

    _LAST_HEARD = Prepared(
        select(func.max(col(InboxRow.sent_at))).where(
            InboxRow.platform == bindparam("platform"),
            InboxRow.account == bindparam("account"),
            InboxRow.channel == bindparam("channel"),
        )
    )

    def last_heard(self, place: Address) -> datetime | None:
        """Return when the newest message of a channel was written, None for one without any.

        It need not be the one that came last: platforms post again what we did not take.
        """
        at = {"platform": place.platform, "account": place.account, "channel": place.channel}
        heard: datetime | None = self._value(self._LAST_HEARD, **at)
        return heard

    def moved_to(self, place: Address) -> str:
        """Return the id under which the platform goes on with a channel, its own where it was never moved."""
        moved: str | None = self._value(self._MOVED_TO, **place.model_dump())
        return moved if moved is not None else place.channel

    def cursor(self, place: Address) -> str | None:
        """Return up to which message of the platform a channel is in the inbox, None for one never seen."""
        mark: str | None = self._value(self._MARK, **place.model_dump())
        return mark

    def advance(self, place: Address, mark: str) -> None:
        """Keep that everything up to this message is in the inbox; an earlier mark changes nothing."""
        self._change(self._ADVANCE, **place.model_dump(), mark=mark, direct=False, seen_at=self._now)

    def remember(self, place: Address, *, direct: bool) -> None:
        """Keep that there is such a channel and that something was seen there now."""
        self._change(self._SEEN, **place.model_dump(), mark="", direct=direct, seen_at=self._now)

    def known(self, platform: str, account: str) -> Sequence[ChannelCursor]:
        """Return the channels and threads that an account saw, the last one first."""
        own = select(ChannelCursor).where(ChannelCursor.platform == platform, ChannelCursor.account == account)
        return self._session.exec(own.order_by(col(ChannelCursor.seen_at).desc()).limit(MOST_KNOWN)).all()

    def disable(self, place: Address, reason: str) -> None:
        """Send nothing more to a channel, until it is enabled."""
        at = {"platform": place.platform, "account": place.account, "channel": place.channel}
        self._session.merge(DisabledChannel(**at, reason=reason, disabled_at=self._now))
        self._session.flush()

    def enable(self, place: Address) -> bool:
        """Let a channel be sent to again; false when it could be."""
        closed = delete(DisabledChannel).where(
            col(DisabledChannel.platform) == place.platform,
            col(DisabledChannel.account) == place.account,
            col(DisabledChannel.channel) == place.channel,
        )
        return self._run(closed).rowcount > 0

    def why_disabled(self, place: Address) -> str | None:
        """Return why nothing is sent to a channel, None where that is not so."""
        at = {"platform": place.platform, "account": place.account, "channel": place.channel}
        reason: str | None = self._value(self._REASON, **at)
        return reason

    def disabled(self) -> Sequence[DisabledChannel]:
        """Return the channels to which nothing is sent, the last one first."""
        return self._session.exec(select(DisabledChannel).order_by(col(DisabledChannel.disabled_at).desc())).all()

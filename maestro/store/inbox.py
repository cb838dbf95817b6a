"""Received messages."""

from datetime import timedelta

from sqlalchemy import bindparam, func, insert, text, update
from sqlmodel import col, select

from maestro.domain.errors import NotFound
from maestro.domain.inbox import InboxRow, Pace
from maestro.domain.messages import IncomingMessage
from maestro.domain.people.permissions import Person
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository


class Inbox(Repository):
    """The inbox: unique by platform, account, channel and message id, for ever."""

    _VERY = Prepared(
        select(InboxRow).where(
            InboxRow.platform == bindparam("platform"),
            InboxRow.account == bindparam("account"),
            InboxRow.channel == bindparam("channel"),
            InboxRow.message_id == bindparam("its_id"),
        )
    )

    _OF_PERSON = (
        select(InboxRow.id)
        .where(
            InboxRow.platform == bindparam("platform"),
            InboxRow.user_id == bindparam("user_id"),
            InboxRow.pace == bindparam("its_pace"),
            col(InboxRow.received_at) > bindparam("since"),
            # A later time is one of a clock that was set back since.
            col(InboxRow.received_at) <= bindparam("now"),
        )
        .limit(1)
        .offset(bindparam("but"))
    )
    _LATELY = Prepared(_OF_PERSON)
    _LATELY_HERE = Prepared(
        _OF_PERSON.where(InboxRow.account == bindparam("account"), InboxRow.channel == bindparam("channel"))
    )

    _IN_PLACE = select(func.min(InboxRow.id)).where(
        *(col(getattr(InboxRow, name)) == bindparam(name) for name in ("platform", "account", "channel", "thread")),
        col(InboxRow.id) > bindparam("after"),
        # Written out, and not as a parameter, so that the index of just these rows is used.
        text("inbox.control = '/new'"),
    )
    _NEXT_NEW = Prepared(_IN_PLACE)
    _NEXT_NEW_OF = Prepared(_IN_PLACE.where(InboxRow.user_id == bindparam("user_id")))

    _KEPT = Prepared(insert(InboxRow))
    _BY_ID = Prepared(select(InboxRow).where(col(InboxRow.id) == bindparam("inbox_id")))

    def find(self, message: IncomingMessage) -> InboxRow | None:
        """Return the row of this very message if it came before, as a value."""
        place = message.address
        very = {"platform": place.platform, "account": place.account, "channel": place.channel}
        return self._read(self._VERY, InboxRow, **very, its_id=message.id)

    def add(self, message: IncomingMessage, job_id: str, control: str = "", pace: Pace = Pace.WITHIN) -> InboxRow:
        """Keep the message and return its row, as a value; its id is its place in the order of arrival."""
        its_own = {"id": None, "job_id": job_id, "received_at": self._now, "control": control, "pace": pace}
        return self.read(self._insert(self._KEPT, **InboxRow.columns(message), **its_own))

    def rewrite(self, inbox_id: int, content: str) -> None:
        """Let another text stand for that of a message."""
        self._run(update(InboxRow).where(col(InboxRow.id) == inbox_id).values(content=content))

    def wrote(self, message: IncomingMessage, count: int, within: timedelta) -> bool:
        """Say whether the sender of a message wrote so many others in the time until now, those over the limit aside.

        A bot's are counted in this channel alone.
        """
        bot = message.from_bot
        where = {"account": message.address.account, "channel": message.address.channel} if bot else {}
        values = {**self._lately(message, within), **where, "its_pace": Pace.WITHIN, "but": count - 1}
        return self._row(self._LATELY_HERE if bot else self._LATELY, **values) is not None

    def was_told(self, message: IncomingMessage, within: timedelta) -> bool:
        """Say whether the sender was told in the time until now that they write too fast."""
        values = self._lately(message, within)
        return self._row(self._LATELY, **values, its_pace=Pace.TOLD, but=0) is not None

    def get(self, inbox_id: int | None) -> InboxRow:
        """Return a row that must exist."""
        row = self._session.get(InboxRow, inbox_id)
        if row is None:
            raise NotFound(f"inbox row {inbox_id} does not exist")
        return row

    def read(self, inbox_id: int | None) -> InboxRow:
        """Return a row that must exist as a value: cheaper than ``get``, and cannot be changed."""
        row = self._read(self._BY_ID, InboxRow, inbox_id=inbox_id)
        if row is None:
            raise NotFound(f"inbox row {inbox_id} does not exist")
        return row

    def person(self, inbox_id: int | None) -> Person | None:
        """Return who sent a message, None for no message."""
        if inbox_id is None:
            return None
        return Person.who_sent(self.read(inbox_id))

    def next_new_conversation(self, row: InboxRow, user_id: str | None) -> int | None:
        """Return the first ``/new`` that came in after this row in the same place, only from this user if one is given.

        It is the id of the ``/new`` in the inbox, and None while there is none.
        """
        here = {"platform": row.platform, "account": row.account, "channel": row.channel, "thread": row.thread}
        which = self._NEXT_NEW if user_id is None else self._NEXT_NEW_OF
        first: int | None = self._value(which, after=row.id, user_id=user_id, **here)
        return first

    def _lately(self, message: IncomingMessage, within: timedelta) -> dict[str, object]:
        person = {"platform": message.address.platform, "user_id": message.user_id}
        return {**person, "since": self._now - within, "now": self._now}

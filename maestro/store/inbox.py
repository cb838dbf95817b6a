"""Received messages."""

from sqlmodel import col, select, update

from maestro.domain.errors import NotFound
from maestro.domain.inbox import InboxRow
from maestro.domain.messages import IncomingMessage
from maestro.store.repository import Repository


class Inbox(Repository):
    """The inbox: unique by platform, account, channel and message id, for ever."""

    def find(self, message: IncomingMessage) -> InboxRow | None:
        """Return the row of this very message if it came before."""
        address = message.address
        return self._session.exec(
            select(InboxRow).where(
                InboxRow.platform == address.platform,
                InboxRow.account == address.account,
                InboxRow.channel == address.channel,
                InboxRow.message_id == message.id,
            )
        ).first()

    def add(self, message: IncomingMessage, job_id: str) -> InboxRow:
        """Keep the message; its id in the inbox is its place in the order of arrival."""
        row = InboxRow.of(message, job_id, self._now)
        self._session.add(row)
        self._session.flush()
        return row

    def get(self, inbox_id: int | None) -> InboxRow:
        """Return a row that must exist."""
        row = self._session.get(InboxRow, inbox_id)
        if row is None:
            raise NotFound(f"inbox row {inbox_id} does not exist")
        return row

    def point_to(self, inbox_id: int, job_id: str) -> None:
        """Let the row name the job that answers it now."""
        self._session.exec(update(InboxRow).where(col(InboxRow.id) == inbox_id).values(job_id=job_id))

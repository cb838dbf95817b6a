"""What compactions took out of conversations, and what they left behind."""

from collections.abc import Sequence

from sqlalchemy import bindparam, func
from sqlmodel import col, delete, insert, select, update

from maestro.domain.conversations.conversation import ArchivedMessage, Compaction, Conversation, Message, Said
from maestro.store.editions import kept_while
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository

COLUMNS = tuple(Said.model_fields)


class Compactions(Repository):
    """All compactions."""

    _LATEST = Prepared(
        select(Compaction)
        .where(Compaction.conversation_id == bindparam("of_conversation"))
        .order_by(col(Compaction.id).desc())
        .limit(bindparam("at_most"))
    )

    @kept_while("compactions")
    def latest(self, conversation_id: int, limit: int) -> Sequence[Compaction]:
        """Return the newest ones first, as values."""
        return self._read_all(self._LATEST, Compaction, of_conversation=conversation_id, at_most=limit)

    def archive(self, conversation_id: int, ids: Sequence[int]) -> None:
        """Move messages out of their conversation: people still find them, models do not.

        See docs/decisions.md: retention.
        """
        its_own = col(Message.id).in_(ids), col(Message.conversation_id) == conversation_id
        going = select(*(getattr(Message, name) for name in COLUMNS)).where(*its_own)
        self._session.exec(insert(ArchivedMessage).from_select(COLUMNS, going))
        self._session.exec(delete(Message).where(*its_own))
        self._recount(conversation_id)

    def add(self, compaction: Compaction) -> Compaction:
        """Keep what a compaction left behind."""
        self._session.add(compaction)
        self._session.flush()
        return compaction

    def _recount(self, conversation_id: int) -> None:
        """Set a conversation's counters to the sums of what it still holds."""
        count, tokens = self._session.exec(
            select(func.count(), func.coalesce(func.sum(Message.token_estimate), 0)).where(
                Message.conversation_id == conversation_id
            )
        ).one()
        self._session.exec(
            update(Conversation)
            .where(col(Conversation.id) == conversation_id)
            .values(message_count=count, total_tokens_estimate=tokens)
        )

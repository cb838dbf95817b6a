"""Messages that users reply to, sent by Maestro or by a user, found by their platform's id."""

from sqlalchemy import bindparam, func, text
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.context.history import RepliedMessage
from maestro.domain.deliveries import Delivery
from maestro.domain.jobs.job import Job
from maestro.domain.messages import InboxRow
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, same

PLACE = ("platform", "account", "channel")
MAESTRO, SOMEBODY = "Maestro", "somebody"


class QuotedMessages(Repository):
    """Messages by their platforms' ids, in one channel; a deleted one cannot be quoted."""

    _OURS = PreparedStatement(
        select(
            func.coalesce(func.nullif(Delivery.content, ""), Delivery.filename), Job.agent_id, Job.answer_id, Agent.slug
        )
        .join(Job, col(Job.id) == Delivery.job_id)
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .where(
            same(Delivery, *CHANNEL_KEY),
            Delivery.platform_message_id == bindparam("known_as"),
            # SQLite uses the partial index only if the value is a literal in the SQL, and not a parameter.
            text("deliveries.platform_message_id <> ''"),
        )
        .order_by(col(Delivery.id).desc())
        .limit(1)
    )
    _THEIRS = PreparedStatement(
        select(InboxRow).where(
            same(InboxRow, *CHANNEL_KEY),
            InboxRow.message_id == bindparam("known_as"),
        )
    )

    def of(self, row: InboxRow, agent_id: int | None) -> RepliedMessage | None:
        """Return the message that another one replies to, as this agent sees it; None where it is unknown.

        In threads whose messages all name the first one, that is no quote.
        """
        if not row.reply_to or row.reply_to == row.thread:
            return None
        place = {name: getattr(row, name) for name in PLACE}
        return self._ours(agent_id, place | {"known_as": row.reply_to}) or self._theirs(place, row.reply_to)

    def _ours(self, agent_id: int | None, where: dict[str, object]) -> RepliedMessage | None:
        found = self._rows(self._OURS, **where)
        if not found:
            return None
        words, said_by, answer_id, slug = found[0]
        author = "" if said_by == agent_id else f"@{slug}" if slug else MAESTRO
        return RepliedMessage(words, author, message_id=answer_id) if words else None

    def _theirs(self, place: dict[str, object], known_as: str) -> RepliedMessage | None:
        found = self._read_all(self._THEIRS, InboxRow, **place, known_as=known_as)
        if not found:
            return None
        row = found[0]
        words = row.content.strip() or ", ".join(file.filename for file in row.files() if file.filename)
        return RepliedMessage(words, row.user_name or SOMEBODY, inbox_id=row.id) if words else None

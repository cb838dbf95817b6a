"""Conversations as operators see them, on the API and on the command line alike (decision 18)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from maestro.domain.conversations.compaction import Compaction
from maestro.domain.conversations.conversation import Conversation, ConversationStatus, Said
from maestro.domain.llm.prompts import Role
from maestro.domain.values import Value, View
from maestro.domain.words import SearchText

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ConversationFilter(Value):
    """Which conversations to show; what is None does not matter.

    ``user`` is the id of the person it began with, ``q`` a part of their name or of anything said, compacted or not.
    """

    agent: str | None = None
    platform: str | None = None
    channel: str | None = None
    user: str | None = None
    status: ConversationStatus | None = None
    q: SearchText | None = None


class ConversationView(View):
    """A conversation in a line; counts and tokens are those of what models still see."""

    id: int
    agent: str
    platform: str
    account: str
    channel: str
    thread: str
    user_id: str
    user_name: str
    status: ConversationStatus
    message_count: int
    total_tokens_estimate: int
    started_at: datetime
    last_message_at: datetime


class ConversationPage(View):
    """Conversations, the one that was spoken in last first; ``next`` is the cursor of the following page or null."""

    items: tuple[ConversationView, ...]
    next: str | None


class CompactionView(View):
    """What one compaction left in the place of older messages."""

    id: int
    created_at: datetime
    summary: str
    messages_before: int
    messages_after: int
    tokens_saved: int


class ConversationDetail(ConversationView):
    """A conversation with its compactions, oldest first; ``archived_count`` messages went to the archive.

    ``facts_learned`` is how many facts the agent keeps from it, ``open_jobs`` are those that are not done.
    """

    archived_count: int
    facts_learned: int
    open_jobs: tuple[str, ...]
    compactions: tuple[CompactionView, ...]


class SaidView(View):
    """A message of a conversation; ``author`` is the person's name or the agent's slug, a delegate's where one spoke.

    ``archived`` says that a compaction took it away from the models, ``superseded`` that a restart answered anew.
    """

    id: int
    conversation_id: int
    role: Role
    author: str
    content: str
    token_estimate: int
    job_id: str
    created_at: datetime
    archived: bool
    superseded: bool


class SaidPage(View):
    """Messages in the order they were said; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[SaidView, ...]
    next: str | None


@dataclass(frozen=True, order=True)
class Mark:
    """Where a page of conversations ended."""

    last_message_at: datetime
    conversation_id: int

    def encode(self) -> str:
        """Return the text that clients hand back."""
        return f"{(self.last_message_at - _BEGINNING) // timedelta(microseconds=1)}.{self.conversation_id}"

    @classmethod
    def decode(cls, text: str) -> "Mark":
        """Read a text of ours; raises ``ValueError`` for any other."""
        moment, _, number = text.partition(".")
        if not (moment.isdecimal() and number.isdecimal() and len(moment) < 18 and len(number) < 19):
            raise ValueError("this is not a cursor from an earlier answer")
        return cls(_BEGINNING + timedelta(microseconds=int(moment)), int(number))


@dataclass(frozen=True)
class Listed:
    """A conversation and the slug of its agent."""

    conversation: Conversation
    agent: str

    @property
    def mark(self) -> Mark:
        """Where a page ends that ends with this."""
        return Mark(self.conversation.last_message_at, self.conversation.id or 0)


@dataclass(frozen=True)
class Record:
    """Everything about a conversation but what was said in it."""

    listed: Listed
    archived: int = 0
    facts: int = 0
    open_jobs: Sequence[str] = ()
    compactions: Sequence[Compaction] = ()


@dataclass(frozen=True)
class Spoken:
    """A message, who said it, and whether it is in the archive."""

    message: Said
    author: str
    archived: bool


class ConversationControl(Protocol):
    """What an operator does with conversations."""

    def delete(self, conversation_id: int, actor: str, *, facts: bool) -> None:
        """Delete a conversation with its files, with ``facts`` also what was learned in it.

        Raises ``NotFound``, and ``Conflict`` while a job of it is open.
        """
        ...


def conversation_view(listed: Listed) -> ConversationView:
    """Show a conversation in a line."""
    return ConversationView(agent=listed.agent, **_columns(listed.conversation))


def conversation_detail(record: Record) -> ConversationDetail:
    """Show everything about a conversation but what was said in it."""
    return ConversationDetail(
        agent=record.listed.agent,
        archived_count=record.archived,
        facts_learned=record.facts,
        open_jobs=tuple(record.open_jobs),
        compactions=tuple(map(CompactionView.model_validate, record.compactions)),
        **_columns(record.listed.conversation),
    )


def said_view(spoken: Spoken) -> SaidView:
    """Show a message."""
    columns = set(SaidView.model_fields) - {"author", "archived"}
    return SaidView(author=spoken.author, archived=spoken.archived, **spoken.message.model_dump(include=columns))


def _columns(conversation: Conversation) -> dict[str, object]:
    return conversation.model_dump(include=set(ConversationView.model_fields) - {"agent"})

"""Conversations as operators see them, on the API and on the command line alike (docs/decisions.md: retention)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import Field

from maestro.domain.conversations.conversation import Compaction, Conversation, ConversationStatus, Said
from maestro.domain.llm.prompts import Role
from maestro.domain.media import MediaFile
from maestro.domain.values import Value, View
from maestro.domain.words import SearchText

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ConversationFilter(Value):
    """Which conversations to show; what is None does not matter.

    ``user`` is the id of the person it began with, ``q`` a part of their name or of anything said, compacted or not.
    """

    agent: str | None = Field(default=None, description="only those of this agent")
    platform: str | None = Field(default=None, description="only those of this platform")
    channel: str | None = Field(default=None, description="only those of this channel")
    user: str | None = Field(default=None, description="only those that this user began")
    status: ConversationStatus | None = Field(default=None, description="only those in this state")
    q: SearchText | None = Field(default=None, description="only those that contain this text")


class ConversationView(View):
    """A conversation in a line; counts and tokens are those of what models still see.

    ``costUsd`` is what is known of what its calls cost, null when nothing is.
    """

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
    cost_usd: float | None


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


class SentFile(View):
    """A file that came with a message; ``size`` is in bytes, ``available`` says whether it could be had.

    ``transcript`` is what was said in a voice message, null where nobody listened.
    """

    filename: str
    content_type: str
    size: int
    available: bool
    transcript: str | None


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
    files: tuple[SentFile, ...]


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
    """A conversation, the slug of its agent, and what is known of its cost."""

    conversation: Conversation
    agent: str
    cost_usd: float | None = None

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
    """A message, who said it, whether it is in the archive, and what came with it."""

    message: Said
    author: str
    archived: bool
    files: Sequence[MediaFile] = ()


def conversation_view(listed: Listed) -> ConversationView:
    """Show a conversation in a line."""
    return ConversationView(agent=listed.agent, cost_usd=listed.cost_usd, **_columns(listed.conversation))


def conversation_detail(record: Record) -> ConversationDetail:
    """Show everything about a conversation but what was said in it."""
    return ConversationDetail(
        agent=record.listed.agent,
        cost_usd=record.listed.cost_usd,
        archived_count=record.archived,
        facts_learned=record.facts,
        open_jobs=tuple(record.open_jobs),
        compactions=tuple(map(CompactionView.model_validate, record.compactions)),
        **_columns(record.listed.conversation),
    )


def said_view(spoken: Spoken) -> SaidView:
    """Show a message."""
    columns = set(SaidView.model_fields) - {"author", "archived", "files"}
    return SaidView(
        author=spoken.author,
        archived=spoken.archived,
        files=tuple(map(_sent, spoken.files)),
        **spoken.message.model_dump(include=columns),
    )


def _sent(file: MediaFile) -> SentFile:
    shown = file.model_dump(include={"filename", "content_type", "size", "transcript"})
    return SentFile(available=bool(file.digest), **shown)


def _columns(conversation: Conversation) -> dict[str, object]:
    return conversation.model_dump(include=set(ConversationView.model_fields) - {"agent", "cost_usd"})

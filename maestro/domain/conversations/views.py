"""Views of conversations for operators, and their exported files (docs/decisions.md: retention)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from pydantic import Field

from maestro.domain.conversations.conversation import ConversationStatus, MessageColumns
from maestro.domain.llm.prompts import Role
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import MemoryFact
from maestro.domain.values import Page, SearchText, Value, View


class ConversationFilter(Value):
    """A filter of conversations; a null field does not restrict the result, ``q`` also searches archived messages."""

    agent: str | None = Field(default=None, description="only conversations of this agent")
    platform: str | None = Field(default=None, description="only conversations on this platform")
    channel: str | None = Field(default=None, description="only conversations in this channel")
    user: str | None = Field(default=None, description="only conversations that this user began")
    status: ConversationStatus | None = Field(default=None, description="only conversations in this state")
    q: SearchText | None = Field(default=None, description="only conversations that contain this text")


class ConversationView(View):
    """A conversation without its messages; counts exclude archived messages, a null ``costUsd`` is unknown."""

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


class ConversationPage(Page[ConversationView]):
    """A page of conversations, last active first."""


class CompactionView(View):
    """A compaction: its summary, its counts of messages, and the estimate of the tokens that it saved."""

    id: int
    created_at: datetime
    summary: str
    messages_before: int
    messages_after: int
    tokens_saved: int


class ConversationDetail(ConversationView):
    """A conversation with its compactions, oldest first; ``archived_count`` is the number of archived messages.

    ``facts_learned`` counts the stored facts from this conversation, ``open_jobs`` are the ids of jobs that have not
    ended.
    """

    archived_count: int
    facts_learned: int
    open_jobs: tuple[str, ...]
    compactions: tuple[CompactionView, ...]


class MessageFileView(View):
    """A file of a message, unavailable if its download failed; ``size`` in bytes, ``transcript`` of a voice message."""

    filename: str
    content_type: str
    size: int
    available: bool
    transcript: str | None


class MessageView(View):
    """A message; ``author`` is the user's name or the slug of the agent (or delegate) that wrote the message.

    ``archived`` is true after a compaction removed the message from prompts, ``superseded`` after a restarted job wrote
    a newer answer.
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
    files: tuple[MessageFileView, ...]


class MessagePage(Page[MessageView]):
    """A page of messages in order of time."""


@dataclass(frozen=True)
class AuthoredMessage:
    """A message with its author's name, its files, and whether it is archived."""

    message: MessageColumns
    author: str
    archived: bool
    files: Sequence[MediaFile] = ()


def message_view(authored: AuthoredMessage) -> MessageView:
    files = tuple(MessageFileView.from_row(file, available=bool(file.digest)) for file in authored.files)
    return MessageView.from_row(authored.message, author=authored.author, archived=authored.archived, files=files)


@dataclass(frozen=True)
class MessageRange:
    """Consecutive messages, oldest first; ``older``: older messages exist. ``following`` is the next newer message."""

    messages: Sequence[AuthoredMessage]
    older: bool
    following: AuthoredMessage | None

    @property
    def since(self) -> datetime | None:
        """The start of the time that the range covers, None for the beginning of the conversation."""
        return self.messages[0].message.created_at if self.older and self.messages else None

    @property
    def until(self) -> datetime | None:
        """The end of the time that the range covers, None for now."""
        return self.following.message.created_at if self.following is not None else None

    def covers_moment(self, moment: datetime) -> bool:
        """Return whether a time lies between the start and the end of the range."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)


@dataclass(frozen=True)
class ConversationEvent:
    """An event of a conversation: a message, a compaction or a learned fact."""

    at: datetime
    message: MessageView | None = None
    compaction: CompactionView | None = None
    fact: MemoryFact | None = None


def list_events(
    span: MessageRange, compactions: Sequence[CompactionView], facts: Sequence[MemoryFact]
) -> Iterator[ConversationEvent]:
    """Yield the events of a range in order of time; of events at the same time, messages come first."""
    return merge(
        (ConversationEvent(entry.message.created_at, message=message_view(entry)) for entry in span.messages),
        (ConversationEvent(fact.created_at, fact=fact) for fact in facts if span.covers_moment(fact.created_at)),
        (
            ConversationEvent(one.created_at, compaction=one)
            for one in compactions
            if span.covers_moment(one.created_at)
        ),
        key=lambda event: event.at,
    )


def excerpt_around(text: str, query: str, chars: int = 80) -> tuple[str, str, str]:
    """Return a search hit as three texts: ``chars`` characters before, the hit, and after; else the beginning."""
    at = text.casefold().find(query.casefold()) if len(text.casefold()) == len(text) else text.find(query)
    if at < 0:
        return truncate_text(text, 2 * chars), "", ""
    end = at + len(query)
    before = f"…{text[at - chars : at]}" if at > chars else text[:at]
    return before, text[at:end], truncate_text(text[end:], chars)


def truncate_text(text: str, chars: int) -> str:
    return f"{text[:chars]}…" if len(text) > chars else text


def json_export_parts(detail: ConversationDetail, messages: Iterable[MessageView]) -> Iterator[str]:
    """Yield the JSON export of a conversation in parts: one object with the conversation and its messages."""
    yield f'{{"conversation": {detail.model_dump_json()}, "messages": ['
    for number, message in enumerate(messages):
        yield f"{',' if number else ''}\n{message.model_dump_json()}"
    yield "\n]}\n"


def markdown_export_parts(detail: ConversationDetail, messages: Iterable[MessageView]) -> Iterator[str]:
    """Yield the Markdown export in parts: for each message a heading, and its text as a quotation."""
    address = "/".join(filter(None, (detail.platform, detail.account, detail.channel, detail.thread)))
    yield f"# Conversation {detail.id}\n\n"
    user = detail.user_name or detail.user_id
    yield f"{_escape_name(detail.agent)} and {_escape_name(user)} in {_escape_name(address)}, "
    yield f"{_utc_text(detail.started_at)} to {_utc_text(detail.last_message_at)}, {detail.status}.\n"
    remaining = list(detail.compactions)
    for message in messages:
        while remaining and remaining[0].created_at < message.created_at:
            yield _compaction_section(remaining.pop(0))
        states = [name for name in ("archived", "superseded") if getattr(message, name)]
        note = f" ({', '.join(states)})" if states else ""
        yield f"\n## {_escape_name(message.author)}, {_utc_text(message.created_at)}{note}\n\n"
        yield _block_quote(message.content)
        for file in message.files:
            about = f"{file.content_type}, {file.size} bytes" if file.available else "not available"
            yield f"\nFile: {_escape_name(file.filename) or 'without a name'} ({_escape_name(about)})\n"
    yield from map(_compaction_section, remaining)


def _compaction_section(compaction: CompactionView) -> str:
    heading = f"\n## Compacted, {_utc_text(compaction.created_at)}\n\n"
    counts = f"{compaction.messages_before} messages became {compaction.messages_after} and this summary:"
    return f"{heading}{counts}\n\n{_block_quote(compaction.summary)}"


def _block_quote(text: str) -> str:
    return "".join(f"> {line}".rstrip() + "\n" for line in text.splitlines() or [""])


def _escape_name(text: str) -> str:
    """Return a name on one line, with Markdown characters escaped."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in " ".join(text.split()))


def _utc_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")

"""Conversations as operators see them: views, events in order of time, and exported files.

See docs/decisions.md: retention.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge

from pydantic import Field

from maestro.domain.conversations.conversation import Compaction, Conversation, ConversationStatus, MessageColumns
from maestro.domain.fields import SearchText
from maestro.domain.llm.prompts import Role
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import MemoryFact
from maestro.domain.values import Value, View

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

_MOMENT = "%Y-%m-%d %H:%M:%S UTC"


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


class MessageFileView(View):
    """A file that came with a message; ``size`` is in bytes, ``available`` says whether it could be had.

    ``transcript`` is what was said in a voice message, null where nobody listened.
    """

    filename: str
    content_type: str
    size: int
    available: bool
    transcript: str | None


class MessageView(View):
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
    files: tuple[MessageFileView, ...]


class MessagePage(View):
    """Messages in the order they were said; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[MessageView, ...]
    next: str | None


@dataclass(frozen=True, order=True)
class ConversationCursor:
    """Where a page of conversations ended."""

    last_message_at: datetime
    conversation_id: int

    def encode(self) -> str:
        """Return the text that clients hand back."""
        return f"{(self.last_message_at - _BEGINNING) // timedelta(microseconds=1)}.{self.conversation_id}"

    @classmethod
    def decode(cls, text: str) -> "ConversationCursor":
        """Read a text of ours; raises ``ValueError`` for any other."""
        moment, _, number = text.partition(".")
        if not (moment.isdecimal() and number.isdecimal() and len(moment) < 18 and len(number) < 19):
            raise ValueError("this is not a cursor from an earlier answer")
        return cls(_BEGINNING + timedelta(microseconds=int(moment)), int(number))


@dataclass(frozen=True)
class ListedConversation:
    """A conversation, the slug of its agent, and what is known of its cost."""

    conversation: Conversation
    agent: str
    cost_usd: float | None = None

    @property
    def mark(self) -> ConversationCursor:
        """Where a page ends that ends with this."""
        return ConversationCursor(self.conversation.last_message_at, self.conversation.id or 0)


@dataclass(frozen=True)
class ConversationRecord:
    """Everything about a conversation but what was said in it."""

    listed: ListedConversation
    archived: int = 0
    facts: int = 0
    open_jobs: Sequence[str] = ()
    compactions: Sequence[Compaction] = ()


@dataclass(frozen=True)
class AuthoredMessage:
    """A message, who said it, whether it is in the archive, and what came with it."""

    message: MessageColumns
    author: str
    archived: bool
    files: Sequence[MediaFile] = ()


def conversation_view(listed: ListedConversation) -> ConversationView:
    """Show a conversation in a line."""
    return ConversationView(agent=listed.agent, cost_usd=listed.cost_usd, **_columns(listed.conversation))


def conversation_detail(record: ConversationRecord) -> ConversationDetail:
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


def message_view(spoken: AuthoredMessage) -> MessageView:
    """Show a message."""
    columns = set(MessageView.model_fields) - {"author", "archived", "files"}
    return MessageView(
        author=spoken.author,
        archived=spoken.archived,
        files=tuple(map(_sent, spoken.files)),
        **spoken.message.model_dump(include=columns),
    )


def _sent(file: MediaFile) -> MessageFileView:
    shown = file.model_dump(include={"filename", "content_type", "size", "transcript"})
    return MessageFileView(available=bool(file.digest), **shown)


def _columns(conversation: Conversation) -> dict[str, object]:
    return conversation.model_dump(include=set(ConversationView.model_fields) - {"agent", "cost_usd"})


@dataclass(frozen=True)
class MessageRange:
    """Messages that stand together, oldest first.

    ``older`` says whether others stand before them, ``following`` is the first one after them, None for the newest.
    """

    said: Sequence[AuthoredMessage]
    older: bool
    following: AuthoredMessage | None

    @property
    def since(self) -> datetime | None:
        """From when on it tells what happened, None for from the beginning."""
        return self.said[0].message.created_at if self.older and self.said else None

    @property
    def until(self) -> datetime | None:
        """Up to when it tells what happened, None for until now."""
        return self.following.message.created_at if self.following is not None else None

    def covers(self, moment: datetime) -> bool:
        """Say whether what happened then is told here."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)


@dataclass(frozen=True)
class ConversationEvent:
    """One thing that happened: a message was said, messages were compacted, or a fact was learned."""

    at: datetime
    said: AuthoredMessage | None = None
    compaction: Compaction | None = None
    fact: MemoryFact | None = None


def list_events(
    stretch: MessageRange, compactions: Sequence[Compaction], facts: Sequence[MemoryFact]
) -> Iterator[ConversationEvent]:
    """Yield what happened in a stretch in the order of time; of the same moment, what was said comes first."""
    said = (ConversationEvent(one.message.created_at, said=one) for one in stretch.said)
    compacted = (
        ConversationEvent(one.created_at, compaction=one) for one in compactions if stretch.covers(one.created_at)
    )
    learned = (ConversationEvent(one.created_at, fact=one) for one in facts if stretch.covers(one.created_at))
    return merge(said, learned, compacted, key=lambda entry: entry.at)


def excerpt_around(text: str, wanted: str, chars: int = 80) -> tuple[str, str, str]:
    """Return where a text contains what somebody looks for: what stands before it, itself, and what stands after.

    Only so many characters of either side are kept. Where the text does not contain it in this spelling, its beginning
    is returned.
    """
    at = text.casefold().find(wanted.casefold()) if len(text.casefold()) == len(text) else text.find(wanted)
    if at < 0:
        return _ended(text, 2 * chars), "", ""
    end = at + len(wanted)
    before = f"…{text[at - chars : at]}" if at > chars else text[:at]
    return before, text[at:end], _ended(text[end:], chars)


def _ended(text: str, chars: int) -> str:
    return f"{text[:chars]}…" if len(text) > chars else text


def json_parts(detail: ConversationDetail, said: Iterable[MessageView]) -> Iterator[str]:
    """Yield an object with the conversation and its messages, as the API shows both."""
    yield f'{{"conversation": {detail.model_dump_json()}, "messages": ['
    for number, one in enumerate(said):
        yield f"{',' if number else ''}\n{one.model_dump_json()}"
    yield "\n]}\n"


def markdown_parts(detail: ConversationDetail, said: Iterable[MessageView]) -> Iterator[str]:
    """Yield a text to read: a heading for each message, and below it what was said.

    Each line that somebody said begins with ``>``, so that nobody's text can pose as another message.
    """
    place = "/".join(filter(None, (detail.platform, detail.account, detail.channel, detail.thread)))
    yield f"# Conversation {detail.id}\n\n"
    yield f"{_plain_name(detail.agent)} and {_plain_name(detail.user_name or detail.user_id)} in {_plain_name(place)}, "
    yield f"{detail.started_at.strftime(_MOMENT)} to {detail.last_message_at.strftime(_MOMENT)}, {detail.status}.\n"
    left = list(detail.compactions)
    for one in said:
        while left and left[0].created_at < one.created_at:
            yield _compaction_section(left.pop(0))
        yield _message_section(one)
    yield from map(_compaction_section, left)


def _message_section(one: MessageView) -> str:
    marks = [name for name, true in (("archived", one.archived), ("superseded", one.superseded)) if true]
    beside = f" ({', '.join(marks)})" if marks else ""
    head = f"\n## {_plain_name(one.author)}, {one.created_at.strftime(_MOMENT)}{beside}\n\n"
    return "".join([head, _quoted_text(one.content), *map(_file_line, one.files)])


def _file_line(file: MessageFileView) -> str:
    about = f"{file.content_type}, {file.size} bytes" if file.available else "not available"
    return f"\nFile: {_plain_name(file.filename) or 'without a name'} ({_plain_name(about)})\n"


def _compaction_section(one: CompactionView) -> str:
    head = f"\n## Compacted, {one.created_at.strftime(_MOMENT)}\n\n"
    counts = f"{one.messages_before} messages became {one.messages_after} and this summary:"
    return f"{head}{counts}\n\n{_quoted_text(one.summary)}"


def _quoted_text(text: str) -> str:
    return "".join(f"> {line}".rstrip() + "\n" for line in text.splitlines() or [""])


def _plain_name(text: str) -> str:
    """Return a name on one line, in which nothing is Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in " ".join(text.split()))

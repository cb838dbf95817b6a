"""Queries for the inbox, quoted messages, media files, and counts of ignored messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import bindparam, delete, func, inspect, literal, or_, text
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.connectors import BotInstance, DisabledChannel
from maestro.domain.context.history import RepliedMessage
from maestro.domain.deliveries import Delivery
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.llm.budgets import Client
from maestro.domain.media import MediaFile
from maestro.domain.messages import Address, FloodState, InboxRow, IncomingMessage, lane_key
from maestro.domain.people.people import IgnoredLines, KnownPerson, Owner, Person
from maestro.domain.questions.question import Question
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, equals_parameters, insert, row_insert
from maestro.store.jobs.claims import CLAIM_LAPSES, Claims


class QuotedMessages(Repository):
    """Queries for quoted messages by their platform ids; a deleted message has no text to quote."""

    _OURS = PreparedStatement(
        select(
            func.coalesce(func.nullif(Delivery.content, ""), Delivery.filename), Job.agent_id, Job.answer_id, Agent.slug
        )
        .join(Job, col(Job.id) == Delivery.job_id)
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .where(
            equals_parameters(Delivery, *CHANNEL_KEY),
            Delivery.platform_message_id == bindparam("known_as"),
            # SQLite uses the partial index of sent chunks only if the SQL contains the empty text, not a parameter.
            text("deliveries.platform_message_id <> ''"),
        )
        .order_by(col(Delivery.id).desc())
        .limit(1)
    )

    def find_quoted(self, row: InboxRow, agent_id: int | None) -> RepliedMessage | None:
        """Return the message that an incoming message quotes, with its author as this agent sees it; None if unknown.

        On some platforms, every message of a thread refers to the thread's first message; that reference is no quote.
        """
        if not row.reply_to or row.reply_to == row.thread:
            return None
        channel = {name: getattr(row, name) for name in CHANNEL_KEY}
        sent = self._read_row(self._OURS, **channel, known_as=row.reply_to)
        if sent is not None and sent[0]:
            content, sender_id, answer_id, slug = sent
            author = "" if sender_id == agent_id else f"@{slug}" if slug else "Maestro"
            return RepliedMessage(content, author, message_id=answer_id)
        quoted = self._read_model_by(InboxRow, **channel, message_id=row.reply_to)
        if quoted is None:
            return None
        content = quoted.content.strip() or ", ".join(file.filename for file in quoted.files() if file.filename)
        return RepliedMessage(content, quoted.user_name or "somebody", inbox_id=quoted.id) if content else None


class MediaFiles(Repository):
    """Queries for the files that Maestro downloaded for attachments of messages."""

    def save_file(self, file: MediaFile) -> None:
        """Store the result of downloading an attachment, in place of an earlier result for the attachment."""
        self._session.exec(
            delete(MediaFile).where(col(MediaFile.inbox_id) == file.inbox_id, col(MediaFile.seq) == file.seq)
        )
        self._save_objects(file)

    def list_files_of_messages(self, inbox_ids: Sequence[int]) -> Mapping[int, tuple[MediaFile, ...]]:
        """Return the files of each of these messages, in order; a file without a download counts as unavailable."""
        if not inbox_ids:
            return {}
        rows = self._find_all(select(InboxRow).where(col(InboxRow.id).in_(inbox_ids), InboxRow.attachments != "[]"))
        if not rows:
            return {}
        ids = [row.id for row in rows]
        fetched = self._find_all(select(MediaFile).where(col(MediaFile.inbox_id).in_(ids)))
        known = {(file.inbox_id, file.seq): file for file in fetched}
        return {
            row.id: tuple(
                known.get((row.id, seq)) or MediaFile(inbox_id=row.id, seq=seq, filename=attachment.filename)
                for seq, attachment in enumerate(row.files())
            )
            for row in rows
            if row.id is not None
        }

    def list_untranscribed_files(self, inbox_ids: Sequence[int]) -> Sequence[MediaFile]:
        """Return the voice messages without a transcript in these inbox messages, in order."""
        files = self._find_all(
            select(MediaFile)
            .where(col(MediaFile.inbox_id).in_(inbox_ids))
            .order_by(col(MediaFile.inbox_id), col(MediaFile.seq))
        )
        return [file for file in files if file.lacks_transcript]

    def set_transcript(self, file_id: int | None, transcript: str) -> None:
        """Store the transcript of a file; an empty transcript records that the transcription failed."""
        self._update_row(MediaFile, file_id, transcript=transcript)


@dataclass(frozen=True, slots=True)
class IntakeState:
    """The facts that decide how Maestro handles an incoming message.

    ``job_id``: the message's job, if the platform delivered the message before. ``disabled``: the channel may not be
    sent to. ``listed``: the sender is an owner. ``let_in``: the sender was paired or invited. ``over_limit``: the
    sender exceeds the rate limit. ``asking`` and ``taken``: in the lane (queue) of the channel or of the sender, a
    question is open or a job is pending or running. ``pending`` and ``running`` count the jobs of all lanes.
    ``unclaimed``: a pending job has no claim. ``due``: the wait of a job is over. ``client_id`` and ``weight``: the
    client that pays for the channel.
    """

    binding: AgentChannel | None
    job_id: str | None
    disabled: bool
    listed: bool
    let_in: bool
    over_limit: bool
    asking: bool
    taken: bool
    pending: int
    running: int
    unclaimed: bool
    due: bool
    client_id: int | None
    weight: float | None


class IgnoredMessages(Repository):
    """Queries for counts of ignored messages, which have no inbox row, by channel and reason."""

    _ADD = insert(IgnoredLines)
    _COUNT = _ADD.on_conflict_do_update(
        index_elements=[*CHANNEL_KEY, "reason"],
        set_={"count": col(IgnoredLines.count) + _ADD.excluded.count, "last_at": _ADD.excluded.last_at},
    )

    _COUNTED = PreparedStatement(_COUNT)

    def add_ignored(self, address: Address, reason: str, count: int = 1) -> None:
        """Add ``count`` ignored messages to the counter of their channel and reason."""
        channel = address.model_dump(include=set(CHANNEL_KEY))
        times = {"first_at": self._now, "last_at": self._now}
        self._write_shared(self._COUNTED, **channel, **times, reason=reason, count=count)

    def list_ignored_page(self, offset: int, limit: int) -> Sequence[IgnoredLines]:
        """Return counts of ignored messages by channel and reason, the highest count first."""
        place = (col(IgnoredLines.platform), col(IgnoredLines.account), col(IgnoredLines.channel))
        page = select(IgnoredLines).order_by(col(IgnoredLines.count).desc(), *place, col(IgnoredLines.reason))
        return self._find_all(page.limit(limit).offset(offset))

    def count_by_reason(self) -> Mapping[str, int]:
        """Return the number of ignored messages for each reason to ignore a message."""
        sums = select(IgnoredLines.reason, func.sum(IgnoredLines.count)).group_by(IgnoredLines.reason)
        return {reason: int(count) for reason, count in self._run_statement(sums)}


class Inbox(Repository):
    """Queries for the inbox; platform, account, channel and message id identify an incoming message."""

    media = LazyRepository(MediaFiles)
    quotes = LazyRepository(QuotedMessages)
    ignored = LazyRepository(IgnoredMessages)

    _OF_PERSON = (
        select(InboxRow.id)
        .where(
            equals_parameters(InboxRow, "platform", "user_id"),
            InboxRow.pace == bindparam("its_pace"),
            col(InboxRow.received_at) > bindparam("since"),
            # A message with a time in the future does not count: it was received before the clock was set back.
            col(InboxRow.received_at) <= bindparam("now"),
        )
        .limit(1)
        .offset(bindparam("but"))
    )
    _LATELY = PreparedStatement(_OF_PERSON)
    _LATELY_HERE = PreparedStatement(_OF_PERSON.where(equals_parameters(InboxRow, "account", "channel")))
    NEXT_NEW = select(func.min(InboxRow.id).label("next_new")).where(
        equals_parameters(InboxRow, *CHANNEL_KEY, "thread"),
        col(InboxRow.id) > bindparam("after"),
        # SQLite uses the partial index of ``/new`` only if the control word is a literal in the SQL, not a parameter.
        text("inbox.control = '/new'"),
    )
    """A query for the inbox id of the first ``/new`` in a channel and thread after the row with the id ``after``."""
    NEXT_NEW_OF = NEXT_NEW.where(InboxRow.user_id == bindparam("user_id"))
    """The query ``NEXT_NEW``, limited to one user."""
    _NEXT_NEW, _NEXT_NEW_OF = PreparedStatement(NEXT_NEW), PreparedStatement(NEXT_NEW_OF)

    _SENDER = ("platform", "user_id")
    # SQLite uses the partial indexes of these tables only if the status is a literal in the SQL, not a parameter.
    _ASKING = select(Question.id).where(
        text("questions.status = 'open'"),
        or_(col(Question.lane) == bindparam("lane"), col(Question.lane) == bindparam("own_lane")),
        col(Question.expires_at) > bindparam("now"),
    )
    _TAKEN = select(Job.id).where(
        text("queue.status IN ('pending', 'running')"),
        or_(col(Job.lane) == bindparam("lane"), col(Job.lane) == bindparam("own_lane")),
    )
    _DUE = select(Job.id).where(
        text("queue.status = 'waiting'"),
        or_(col(Job.wake_at) <= bindparam("now"), col(Job.waits_since) > bindparam("now")),
    )
    _COUNT = select(func.count()).select_from(Job)
    _FACTS = (
        select(InboxRow.job_id)
        .where(equals_parameters(InboxRow, *CHANNEL_KEY), col(InboxRow.message_id) == bindparam("its_id"))
        .scalar_subquery(),
        select(DisabledChannel.channel).where(equals_parameters(DisabledChannel, *CHANNEL_KEY)).exists(),
        select(Owner.user_id).where(equals_parameters(Owner, *_SENDER)).exists(),
        select(KnownPerson.user_id).where(equals_parameters(KnownPerson, *_SENDER)).exists(),
        _OF_PERSON.exists(),
        _ASKING.exists(),
        _TAKEN.exists(),
        _COUNT.where(col(Job.status) == JobStatus.PENDING).scalar_subquery(),
        _COUNT.where(col(Job.status) == JobStatus.RUNNING).scalar_subquery(),
        select(Job.id).where(*Claims.UNCLAIMED).exists(),
        _DUE.exists(),
        col(Client.id),
        col(Client.weight),
    )
    _BINDING = tuple(inspect(AgentChannel).columns)
    # The tables are joined to a constant row, so that a missing row in one table does not hide other tables' rows.
    _STATE = PreparedStatement(
        select(*(fact.label(f"fact_{number}") for number, fact in enumerate(_FACTS)))
        .add_columns(*(column.label(f"binding_{column.key}") for column in _BINDING))
        .select_from(select(literal(1).label("one")).subquery())
        .outerjoin(AgentChannel, equals_parameters(AgentChannel, *CHANNEL_KEY))
        .outerjoin(BotInstance, equals_parameters(BotInstance, "platform", "account"))
        .outerjoin(Agent, col(Agent.id) == func.coalesce(BotInstance.agent_id, AgentChannel.agent_id))
        .outerjoin(Client, col(Client.id) == func.coalesce(AgentChannel.client_id, Agent.client_id))
    )

    def read_state(self, message: IncomingMessage, most_within: int, within: timedelta) -> IntakeState:
        """Return the facts that decide how an incoming message is handled.

        The sender exceeds the rate limit after ``most_within`` other messages within the last period ``within``.
        """
        address = message.address
        row = self._read_row(
            self._STATE,
            **self._period_parameters(message, within),
            account=address.account,
            channel=address.channel,
            its_id=message.id,
            its_pace=FloodState.WITHIN,
            but=max(most_within, 1) - 1,
            lane=lane_key(address, None),
            own_lane=lane_key(address, message.user_id),
            abandoned_before=self._now - CLAIM_LAPSES,
        )
        assert row is not None
        facts, cells = row[: len(self._FACTS)], row[len(self._FACTS) :]
        if cells[0] is None:
            return IntakeState(None, *facts)
        binding: AgentChannel = AgentChannel.__new__(AgentChannel)
        binding.__dict__.update(zip((column.key for column in self._BINDING), cells, strict=True))
        return IntakeState(binding, *facts)

    def find(self, message: IncomingMessage) -> InboxRow | None:
        """Return a message's inbox row as a read-only row, or None if the platform delivers it for the first time."""
        return self._read_model_by(
            InboxRow, **message.address.model_dump(include=set(CHANNEL_KEY)), message_id=message.id
        )

    def add(
        self, message: IncomingMessage, job_id: str, control: str = "", flood_state: FloodState = FloodState.WITHIN
    ) -> InboxRow:
        """Store a message and return its inbox row as a read-only row; ids rise in the order of arrival."""
        its_own = {"id": None, "job_id": job_id, "received_at": self._now, "control": control, "pace": flood_state}
        columns = {**InboxRow.columns(message), **its_own}
        row: InboxRow = InboxRow.__new__(InboxRow)
        row.__dict__.update(columns, id=self._insert_row(row_insert(InboxRow), **columns))
        return row

    def replace_content(self, inbox_id: int, content: str) -> None:
        self._update_row(InboxRow, inbox_id, content=content)

    def is_over_rate(self, message: IncomingMessage, count: int, within: timedelta) -> bool:
        """Return whether a message's sender sent ``count`` other messages within the last period ``within``.

        Messages over the limit are not counted. For a sender that is a bot, only messages in the same channel are
        counted.
        """
        bot = message.from_bot
        where = {"account": message.address.account, "channel": message.address.channel} if bot else {}
        values = {**self._period_parameters(message, within), **where, "its_pace": FloodState.WITHIN, "but": count - 1}
        return self._has_row(self._LATELY_HERE if bot else self._LATELY, **values)

    def was_warned(self, message: IncomingMessage, within: timedelta) -> bool:
        """Return whether a message's sender was warned about the rate limit within the last period ``within``."""
        values = self._period_parameters(message, within)
        return self._has_row(self._LATELY, **values, its_pace=FloodState.TOLD, but=0)

    def get(self, inbox_id: int | None) -> InboxRow:
        """Return the inbox row with this id; raises ``NotFound``."""
        return require_found(self._session.get(InboxRow, inbox_id), f"inbox row {inbox_id} does not exist")

    def read(self, inbox_id: int | None) -> InboxRow:
        """Return an inbox row by id as a read-only row, which costs less than ``get``; raises ``NotFound``."""
        return require_found(self._read_model_by(InboxRow, id=inbox_id), f"inbox row {inbox_id} does not exist")

    def read_sender(self, inbox_id: int | None) -> Person | None:
        """Return the sender of the message in an inbox row; None if ``inbox_id`` is None."""
        return Person.from_row(self.read(inbox_id)) if inbox_id is not None else None

    def find_next_new_command(self, row: InboxRow, user_id: str | None) -> int | None:
        """Return the inbox id of the first ``/new`` after this row in its channel and thread, or None.

        With ``user_id``, only a ``/new`` of that user counts.
        """
        here = row.address.model_dump()
        which = self._NEXT_NEW if user_id is None else self._NEXT_NEW_OF
        first: int | None = self._read_value(which, after=row.id, user_id=user_id, **here)
        return first

    def _period_parameters(self, message: IncomingMessage, within: timedelta) -> dict[str, object]:
        person = {"platform": message.address.platform, "user_id": message.user_id}
        return {**person, "since": self._now - within, "now": self._now}

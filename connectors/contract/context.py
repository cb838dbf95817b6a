"""A ``ConnectorContext`` in memory, which records for tests what a connector stores and reports."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from connectors.base import ConnectorState, Identity, KnownChannel, Upload
from maestro.domain.errors import Backlogged, InvalidMessage, NotFound
from maestro.domain.messages import (
    AcceptedMessage,
    Address,
    Attachment,
    Button,
    IncomingMessage,
    OutgoingMessage,
    Receipt,
    ReceiptReport,
    ReceiptState,
)

REPORT_ORDER = tuple(ReceiptState)
"""The order of a message's statuses; an earlier status never replaces a later one."""


@dataclass
class MemoryContext:
    """A ``ConnectorContext`` that stores messages, channels, tickets and uploads in dictionaries.

    ``limit`` is the largest size of the inbox. ``before_accept`` and ``before_replay`` delay the next call until they
    are set, for tests of races. ``failure`` is raised by reads and writes; ``crash`` is raised once, after a message
    was stored and before its acknowledgement. ``refused`` counts messages that were not stored.
    """

    limit: int = 10_000
    inbox: list[IncomingMessage] = field(default_factory=list)
    sent: list[OutgoingMessage] = field(default_factory=list)
    owners: dict[Address, str] = field(default_factory=dict)
    tickets: dict[str, Identity] = field(default_factory=dict)
    files: dict[str, tuple[str, Attachment, bytes]] = field(default_factory=dict)
    states: list[tuple[ConnectorState, str]] = field(default_factory=list)
    marks: dict[tuple[str, str], str] = field(default_factory=dict)
    """The cursor of each channel and thread."""
    direct: set[tuple[str, str]] = field(default_factory=set)
    passed_over: list[tuple[str, int, str]] = field(default_factory=list)
    """The channel, the count and the reason of skipped messages."""
    reports: dict[str, ReceiptReport] = field(default_factory=dict)
    """The statuses of sent messages, by key."""
    buttons: dict[str, tuple[Button, ...]] = field(default_factory=dict)
    """The buttons of sent messages, by key."""
    moves: dict[str, str] = field(default_factory=dict)
    largest_page: int = 0
    failure: Exception | None = None
    crash: Exception | None = None
    refused: int = 0
    before_accept: asyncio.Event | None = None
    before_replay: asyncio.Event | None = None

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        if self.failure is not None:
            self.refused += 1
            raise self.failure
        if self.before_accept is not None:
            await self.before_accept.wait()
        if any((stored.address, stored.id) == (message.address, message.id) for stored in self.inbox):
            return AcceptedMessage(message_id=message.id, job_id="", duplicate=True)
        if len(self.inbox) >= self.limit:
            raise Backlogged
        self.inbox.append(message)
        crash, self.crash = self.crash, None
        if crash is not None:
            raise crash
        return AcceptedMessage(message_id=message.id, job_id=f"message-{len(self.inbox)}", duplicate=False)

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        return self.marks.get((channel, thread))

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        before = self.marks.get((channel, thread), "")
        self.marks[channel, thread] = max(before, mark, key=lambda cursor: (len(cursor), cursor))

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        self.marks.setdefault((channel, thread), "")
        if direct:
            self.direct.add((channel, thread))

    async def known_channels(self) -> Sequence[KnownChannel]:
        now = datetime.now(UTC)
        known = [KnownChannel(*at, mark, at in self.direct, now) for at, mark in self.marks.items()]
        return known[::-1]

    async def skipped(self, channel: str, count: int, why: str) -> None:
        self.passed_over.append((channel, count, why))

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        if self.failure is not None:
            raise self.failure
        missed = [message for message in self.sent if message.address == address and message.id > after_id]
        if self.before_replay is not None:
            await self.before_replay.wait()
        page = sorted(missed, key=lambda message: message.id)[:limit]
        self.largest_page = max(self.largest_page, len(page))
        return page

    async def newest_delivery(self) -> int:
        if self.failure is not None:
            raise self.failure
        return max((message.id for message in self.sent), default=0)

    async def last_heard(self, channel: str) -> datetime | None:
        times = (message.sent_at for message in self.inbox if message.address.channel == channel)
        return max(times, default=None)

    async def record_report(self, key: str, report: ReceiptReport) -> bool:
        if self.failure is not None:
            raise self.failure
        known = self.reports.get(key)
        if known is None or REPORT_ORDER.index(report.standing) > REPORT_ORDER.index(known.standing):
            self.reports[key] = report
        return True

    async def receipt(self, key: str) -> Receipt | None:
        report = self.reports.get(key)
        return Receipt(platform_message_id=report.platform_message_id) if report is not None else None

    async def pressed(self, key: str, number: int) -> str | None:
        buttons = self.buttons.get(key, ())
        return buttons[number].value if 0 <= number < len(buttons) else None

    async def moved(self, channel: str, to: str) -> None:
        self.moves[channel] = to

    async def moved_to(self, channel: str) -> str:
        return self.moves.get(channel, channel)

    async def open_channel(self, address: Address, user_id: str) -> bool:
        return self.owners.setdefault(address, user_id) == user_id

    async def redeem(self, ticket: str) -> Identity | None:
        return self.tickets.pop(ticket, None)

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        file_id = f"upload-{len(self.files) + 1}"
        file = Attachment(id=file_id, filename=upload.filename, content_type=upload.content_type, size=upload.size)
        self.files[file_id] = (user_id, file, await asyncio.to_thread(Path(upload.path).read_bytes))
        return file

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        own_files = {file_id: file for file_id, (owner, file, _) in self.files.items() if owner == user_id}
        for file_id in ids:
            if file_id not in own_files:
                raise InvalidMessage(f"You have no upload with the id {file_id!r}.")
        return tuple(own_files[file_id] for file_id in ids)

    async def upload_file(self, attachment_id: str) -> Path:
        raise NotFound(attachment_id)

    async def fetch_file(self, message: OutgoingMessage) -> Path:
        if message.path is None or not message.path.is_file():
            raise NotFound(f"the file of message {message.id} was deleted")
        return message.path

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        self.states.append((state, detail))

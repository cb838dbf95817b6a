"""A ConnectorContext without a store: what a connector did is there to look at."""

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
"""What a platform says of a message never goes back in this order."""


@dataclass
class MemoryContext:
    """A ``ConnectorContext`` that keeps messages, channels, tickets and uploads in dictionaries.

    ``limit`` is the inbox size from which on messages are refused. ``before_accept`` and ``before_replay`` hold the
    next call back until they are set, for tests about races. ``failure`` is raised where something is read or written,
    ``crash`` once, when a message was just stored and not acknowledged; ``refused`` counts what was not stored.
    """

    limit: int = 10_000
    inbox: list[IncomingMessage] = field(default_factory=list)
    sent: list[OutgoingMessage] = field(default_factory=list)
    owners: dict[Address, str] = field(default_factory=dict)
    tickets: dict[str, Identity] = field(default_factory=dict)
    files: dict[str, tuple[str, Attachment, bytes]] = field(default_factory=dict)
    states: list[tuple[ConnectorState, str]] = field(default_factory=list)
    marks: dict[tuple[str, str], str] = field(default_factory=dict)
    """Up to where each channel and thread was read."""
    direct: set[tuple[str, str]] = field(default_factory=set)
    passed_over: list[tuple[str, int, str]] = field(default_factory=list)
    """The channel, the number and the reason of what was not taken in."""
    reports: dict[str, ReceiptReport] = field(default_factory=dict)
    """The statuses of sent messages, by key."""
    buttons: dict[str, tuple[Button, ...]] = field(default_factory=dict)
    """The buttons of messages that were sent, by key."""
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
        known = {(kept.address, kept.id) for kept in self.inbox}
        if (message.address, message.id) in known:
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
        self.marks[channel, thread] = max(before, mark, key=lambda one: (len(one), one))

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
        return max((one.sent_at for one in self.inbox if one.address.channel == channel), default=None)

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
        known = self.buttons.get(key, ())
        return known[number].value if 0 <= number < len(known) else None

    async def moved(self, channel: str, to: str) -> None:
        self.moves[channel] = to

    async def moved_to(self, channel: str) -> str:
        return self.moves.get(channel, channel)

    async def open_channel(self, address: Address, user_id: str) -> bool:
        return self.owners.setdefault(address, user_id) == user_id

    async def redeem(self, ticket: str) -> Identity | None:
        return self.tickets.pop(ticket, None)

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        kept = Attachment(
            id=f"upload-{len(self.files) + 1}",
            filename=upload.filename,
            content_type=upload.content_type,
            size=upload.size,
        )
        content = await asyncio.to_thread(Path(upload.path).read_bytes)
        self.files[kept.id] = (user_id, kept, content)
        return kept

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        mine = {name: kept for name, (owner, kept, _) in self.files.items() if owner == user_id}
        for name in ids:
            if name not in mine:
                raise InvalidMessage(f"There is no upload {name!r} of yours.")
        return tuple(mine[name] for name in ids)

    async def upload_file(self, attachment_id: str) -> Path:
        raise NotFound(attachment_id)

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        self.states.append((state, detail))

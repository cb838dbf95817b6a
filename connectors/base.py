"""The contract of a connector: its methods, the optional ones, and the context that Maestro gives it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from starlette.routing import BaseRoute

from connectors.capabilities import Capabilities, Idempotency, LengthUnit, Markup, OnAmbiguous, PlatformTransport
from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    SendFailure,
    Unsettled,
)
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

__all__ = [
    "AccountRefused",
    "AcknowledgesMessages",
    "AmbiguousSend",
    "Button",
    "Capabilities",
    "CatchesUp",
    "Connector",
    "ConnectorContext",
    "ConnectorState",
    "EditsMessages",
    "FailureScope",
    "FetchFailure",
    "FetchesMedia",
    "HasRoutes",
    "Idempotency",
    "Identity",
    "IdentityRole",
    "KnownChannel",
    "LengthUnit",
    "Markup",
    "NotDispatched",
    "OnAmbiguous",
    "PermanentFetch",
    "PermanentSend",
    "PlatformTransport",
    "ReceiptReport",
    "ReceiptState",
    "Reconciles",
    "Renders",
    "RetryableFetch",
    "RetryableSend",
    "SendFailure",
    "Unsettled",
    "Upload",
]


class IdentityRole(StrEnum):
    """The role of a user of the web connector (docs/decisions.md: web identity)."""

    OWNER = "owner"
    USER = "user"


@dataclass(frozen=True)
class Identity:
    """The identity of a web user; chosen by the server, never by the client."""

    user_id: str
    user_name: str
    role: IdentityRole


class ConnectorState(StrEnum):
    """The state of a connector, for doctor and dashboard."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class KnownChannel:
    """A channel, or a thread of one, with at least one message.

    Everything up to the platform's message id ``mark`` is in the inbox; ``mark`` is empty if nothing is. ``direct``
    marks a direct message channel; ``seen_at`` is the time of the last message.
    """

    channel: str
    thread: str
    mark: str
    direct: bool
    seen_at: datetime


@dataclass(frozen=True)
class Upload:
    """A received file before it is kept; the store moves ``path`` away, ``size`` is in bytes."""

    path: Path
    filename: str
    content_type: str
    size: int


class ConnectorContext(Protocol):
    """The services of Maestro for a connector; every method is safe to call from the event loop."""

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Commit the message; only then may the platform be acknowledged (docs/invariants.md: durable before ack).

        A message with ``edit_of`` changes the text of that one while no job works on it. Control words such as
        ``/stop`` are messages like others. Raises ``Backlogged`` when the inbox is full, ``InvalidMessage`` for a
        broken rule, and what the store raises: the platform is then not acknowledged, so that it sends again.
        """
        ...

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        """Return up to which message of the platform a channel is in the inbox; None for one never seen."""
        ...

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        """Record that everything up to ``mark`` is in the inbox, which must hold for each earlier message.

        It never goes back: of two marks the longer one is the later, then the one that sorts later.
        """
        ...

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        """Record that a channel exists and had a message now, for platforms that do not list all channels."""
        ...

    async def known_channels(self) -> Sequence[KnownChannel]:
        """Return every channel and thread of this account that was ever seen, the one seen last first."""
        ...

    async def skipped(self, channel: str, count: int, why: str) -> None:
        """Report to operators how many messages of a channel were skipped, and why; 0 for an unknown number."""
        ...

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        """Return what was sent to this channel after the given delivery, oldest first, at most ``limit`` of it."""
        ...

    async def newest_delivery(self) -> int:
        """Return an id between all present and all later deliveries: a larger cursor is of another store.

        It is the highest id ever given in this store, or where its ids began at the last start.
        """
        ...

    async def last_heard(self, channel: str) -> datetime | None:
        """Return when the newest message of a channel that is in the inbox was written; None for one without any."""
        ...

    async def record_report(self, key: str, report: ReceiptReport) -> bool:
        """Record a status of a sent message, whatever the order of statuses; false for a message of another sender.

        A status that is further on stays. A failure marks the delivery as failed.
        """
        ...

    async def receipt(self, key: str) -> Receipt | None:
        """Return the platform's id of a sent message; None as long as the platform has not reported it."""
        ...

    async def pressed(self, key: str, number: int) -> str | None:
        """Return the text behind a button of a sent message, counted from 0; None where there is no such button."""
        ...

    async def moved(self, channel: str, to: str) -> None:
        """Record that a channel continues under another id: bindings and conversations go along."""
        ...

    async def moved_to(self, channel: str) -> str:
        """Return the id under which a channel continues, its own where it was never moved."""
        ...

    async def open_channel(self, address: Address, user_id: str) -> bool:
        """Give the channel to this user if it has no owner; false when it belongs to another user.

        See docs/decisions.md: web identity.
        """
        ...

    async def redeem(self, ticket: str) -> Identity | None:
        """Exchange a dashboard ticket, once, for the identity behind it; None when unknown, used or expired."""
        ...

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        """Keep an uploaded file under a new id that only this user can refer to."""
        ...

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the user's uploads by id; raises ``InvalidMessage`` naming an id that is not theirs."""
        ...

    async def upload_file(self, attachment_id: str) -> Path:
        """Return where a kept upload is, to be read only; raises ``NotFound``."""
        ...

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Report the connector's state to operators; the last event and its lag are noted by ``accept``.

        The detail of ``DEGRADED`` and ``FAILED`` stays visible as the last error; it never holds a token.
        """
        ...


class Connector(Protocol):
    """A connector of one account; ``token_digest`` distinguishes its token from others, empty where it has none."""

    platform: str
    account: str
    token_digest: str
    capabilities: Capabilities

    async def run(self) -> None:
        """Receive until cancelled; raises ``AccountRefused`` when only an operator can help.

        The connector itself reconnects. After any other exception it is run again, after a pause that grows.
        """
        ...

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand one chunk to the platform under ``message.key``; raises a ``SendFailure``.

        With a ``filename`` the content, or what is at its ``path``, goes as a file of this name. A press of a
        button stands for what ``ConnectorContext.pressed`` returns. It never tries twice by itself, unless the
        platform surely did not take it (docs/invariants.md: one layer retries). Mentions and previews of links are off.
        """
        ...

    async def typing(self, address: Address) -> None:
        """Show once that an answer is being written; called again every ``typing_interval``."""
        ...


@runtime_checkable
class Renders(Protocol):
    """A connector of a platform with its own markup: text is measured as rendered, and split before."""

    def render(self, text: str) -> str:
        """Return a chunk of Markdown as ``send`` writes it; a pure function that never fails."""
        ...


@runtime_checkable
class Reconciles(Protocol):
    """A connector that can look whether the platform has a sent message."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for ``message.key`` among what came since ``message.tried_at``; None when it surely is not there.

        Raises ``Unsettled`` when it can never be known, another ``SendFailure`` when the platform cannot be asked now.
        """
        ...


@runtime_checkable
class EditsMessages(Protocol):
    """A connector that can edit a sent message, for streaming."""

    async def edit(self, message: OutgoingMessage) -> None:
        """Change the message that the platform knows as ``message.edits``, formatted as ``send`` would.

        No change is a success. Raises ``PermanentSend`` for a message that is gone or too old, and what
        ``send`` raises.
        """
        ...


@runtime_checkable
class AcknowledgesMessages(Protocol):
    """A connector that can show at once, at the message itself, that it was seen."""

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message of the inbox, nothing where none is set; again is harmless."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A connector that can take in the messages missed in an outage."""

    async def catch_up(self) -> None:
        """Take in what every known channel has after its cursor, oldest first, within the caps of the settings.

        The connector does it after each connection; what is over a cap is told by ``ConnectorContext.skipped``.
        """
        ...


@runtime_checkable
class HasRoutes(Protocol):
    """A connector that serves HTTP itself."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes, served under ``/platforms/<platform>/<account>`` unless the connector is the web one."""
        ...


@runtime_checkable
class FetchesMedia(Protocol):
    """A connector that can get the files its messages refer to; it is asked after permission only."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put the file into ``folder``, which is empty, and return its path; raises a ``FetchFailure``.

        ``attachment.id`` is what ``accept`` was given: enough to ask for a link again when one has expired.
        """
        ...

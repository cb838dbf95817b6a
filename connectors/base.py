"""The interface of a connector: its methods, its capabilities, and the context through which it calls Maestro."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from starlette.routing import BaseRoute

from connectors.failures import AccountRefused as AccountRefused
from connectors.failures import AmbiguousSend as AmbiguousSend
from connectors.failures import FailureScope as FailureScope
from connectors.failures import FetchFailure as FetchFailure
from connectors.failures import NotDispatched as NotDispatched
from connectors.failures import PermanentFetch as PermanentFetch
from connectors.failures import PermanentSend as PermanentSend
from connectors.failures import RetryableFetch as RetryableFetch
from connectors.failures import RetryableSend as RetryableSend
from connectors.failures import SendFailure as SendFailure
from connectors.failures import Unsettled as Unsettled
from maestro.domain.messages import AcceptedMessage, Address, Attachment, IncomingMessage, OutgoingMessage, Receipt
from maestro.domain.messages import Button as Button
from maestro.domain.messages import ReceiptReport as ReceiptReport
from maestro.domain.messages import ReceiptState as ReceiptState


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
    """The state of a connector, shown by ``maestro doctor`` and the dashboard."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class KnownChannel:
    """A channel, or a thread of a channel, with at least one message.

    All messages up to the platform's message id ``mark`` are in the inbox; an empty ``mark`` stands for no message.
    ``direct`` marks a direct message channel; ``seen_at`` is the time of the last message.
    """

    channel: str
    thread: str
    mark: str
    direct: bool
    seen_at: datetime


@dataclass(frozen=True)
class Upload:
    """An uploaded file that is not stored yet; storing moves the file away from ``path``. ``size`` is in bytes."""

    path: Path
    filename: str
    content_type: str
    size: int


class LengthUnit(StrEnum):
    """The unit in which a platform counts the length of a message."""

    CODE_POINTS = "code points"
    UTF16 = "utf-16 units"


class Idempotency(StrEnum):
    """How a platform prevents that a repeated send appears twice: by a key, by a search for the message, or never."""

    NATIVE = "native"
    RECONCILE = "reconcile"
    NONE = "none"


class OnAmbiguous(StrEnum):
    """The rule for ambiguous sends, after which it is unknown whether the platform has the message.

    ``RESEND`` sends the message again, so that it may appear twice; ``HOLD`` leaves the message to an operator.
    ``AUTO`` resends answers to users and holds messages without a waiting user, for example a scheduled post.
    """

    AUTO = "auto"
    RESEND = "resend"
    HOLD = "hold"


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a platform; lengths are in ``unit``, intervals in seconds.

    ``native_window`` is the time for which the platform remembers the key of a message, None for ever.
    ``max_file_bytes`` is the size of the largest file to send, 0 if the platform accepts none. ``on_ambiguous`` applies
    when neither a key nor a search settles an ambiguous send. ``max_buttons`` is the most buttons of a message, 0 for
    none. ``edit_interval`` is the least time between two edits of an answer that is being written, 0 without streaming.
    """

    max_length: int
    unit: LengthUnit
    typing_interval: float
    idempotency: Idempotency
    native_window: timedelta | None = None
    max_file_bytes: int = 0
    on_ambiguous: OnAmbiguous = OnAmbiguous.HOLD
    max_buttons: int = 0
    edit_interval: float = 0


class ConnectorContext(Protocol):
    """The services of Maestro for a connector; every method is safe to call from the event loop."""

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Store a message in the inbox; only then does the connector acknowledge it to the platform.

        See docs/invariants.md: durable before ack. A message with ``edit_of`` changes the text of the edited message
        while no job works on it. Control words such as ``/stop`` are accepted too. Raises ``InvalidMessage`` for a
        message that breaks a rule. After ``Backlogged`` (the inbox is full) or an error of the store the connector
        sends no acknowledgement, so that the platform repeats it.
        """
        ...

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        """Return the id of the message up to which the inbox has a channel's messages; None for an unknown channel."""
        ...

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        """Move a channel's cursor to ``mark``; call this only when all messages up to ``mark`` are in the inbox.

        The cursor never goes back. A longer mark is a later one; marks of equal length are compared alphabetically.
        """
        ...

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        """Record that a channel exists and had a message now, for platforms that do not list all channels."""
        ...

    async def known_channels(self) -> Sequence[KnownChannel]:
        """Return every known channel and thread of this account, the most recently used first."""
        ...

    async def skipped(self, channel: str, count: int, why: str) -> None:
        """Report to operators that ``count`` messages of a channel were skipped, 0 if unknown, and ``why``."""
        ...

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        """Return at most ``limit`` deliveries to this channel with an id above ``after_id``, oldest first."""
        ...

    async def newest_delivery(self) -> int:
        """Return an upper bound of this store's delivery ids; a cursor above the bound comes from another store.

        The bound is the highest id that a delivery ever had, or the id after which the last start of Maestro began.
        """
        ...

    async def last_heard(self, channel: str) -> datetime | None:
        """Return the time of the newest message of a channel in the inbox; None if there is no message."""
        ...

    async def record_report(self, key: str, report: ReceiptReport) -> bool:
        """Record a platform's delivery status of a sent message; return false if Maestro did not send the message.

        An earlier status never replaces a later one. The status failed marks the delivery as failed.
        """
        ...

    async def receipt(self, key: str) -> Receipt | None:
        """Return the platform's id of a sent message; None until the platform has reported the id."""
        ...

    async def pressed(self, key: str, number: int) -> str | None:
        """Return the text of button ``number`` (from 0) of the message with this key; None without such a button."""
        ...

    async def moved(self, channel: str, to: str) -> None:
        """Record that a channel has a new id: bindings and conversations of the channel move to the new id."""
        ...

    async def moved_to(self, channel: str) -> str:
        """Return the current id of a channel; ``channel`` itself if the id never changed."""
        ...

    async def open_channel(self, address: Address, user_id: str) -> bool:
        """Make the user the owner of a channel without an owner; return false if another user owns the channel.

        See docs/decisions.md: web identity.
        """
        ...

    async def redeem(self, ticket: str) -> Identity | None:
        """Exchange a one-time dashboard ticket for its user's identity; None for an unknown, used or expired ticket."""
        ...

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        """Store an uploaded file under a new id that only this user can refer to."""
        ...

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the user's uploads by id; raises ``InvalidMessage`` naming an id of another user."""
        ...

    async def upload_file(self, attachment_id: str) -> Path:
        """Return the path of a stored upload on this host, for reading only; raises ``NotFound``."""
        ...

    async def fetch_file(self, message: OutgoingMessage) -> Path:
        """Return the path of the file of a message that was sent, for reading only; raises ``NotFound``."""
        ...

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Report the state of the connector to operators; ``accept`` records the time and delay of the last message.

        ``detail`` of ``DEGRADED`` and ``FAILED`` stays visible as the last error, so it must not contain a token.
        """
        ...


class Connector(Protocol):
    """A connector of one account; ``token_digest`` tells the account's token from other tokens, "" without a token."""

    platform: str
    account: str
    token_digest: str
    capabilities: Capabilities

    async def run(self) -> None:
        """Receive messages until cancelled; raises ``AccountRefused`` when only an operator can fix the account.

        The connector itself reconnects. After any other exception Maestro runs it again, after a growing wait.
        """
        ...

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send one chunk to the platform under ``message.key``; raises a ``SendFailure``.

        With a ``filename``, the content or the file at ``path`` is sent as a file of this name. A button press counts
        as a message with the text that ``ConnectorContext.pressed`` returns. A sent message must notify no user and
        show no link preview. The connector repeats a call only if the platform certainly did not accept it
        (docs/invariants.md: one layer retries).
        """
        ...

    async def typing(self, address: Address) -> None:
        """Show the typing indicator once; called every ``typing_interval`` seconds."""
        ...


@runtime_checkable
class Renders(Protocol):
    """A connector of a platform with its own markup; texts are split so that each rendered chunk fits the platform."""

    def render(self, text: str) -> str:
        """Return a chunk of Markdown in the platform's markup; a pure function that never fails."""
        ...


@runtime_checkable
class Reconciles(Protocol):
    """A connector that can check whether the platform has a sent message."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Find the message with ``message.key`` sent since ``message.tried_at``; None if the platform surely lacks it.

        Raises ``Unsettled`` when the outcome can never be known, and another ``SendFailure`` when the platform cannot
        answer now.
        """
        ...


@runtime_checkable
class EditsMessages(Protocol):
    """A connector that can edit a sent message, for streaming."""

    async def edit(self, message: OutgoingMessage) -> None:
        """Replace the text of the message with the platform's id ``message.edits``, formatted as by ``send``.

        An edit without a change succeeds. Raises ``PermanentSend`` for a message that was deleted or is too old, and
        the errors of ``send``.
        """
        ...


@runtime_checkable
class AcknowledgesMessages(Protocol):
    """A connector that can show on a user's message that Maestro has seen it."""

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction, if any, to an incoming message; a repeat is harmless."""
        ...


@runtime_checkable
class HasRoutes(Protocol):
    """A connector that receives HTTP requests."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes; all but the web connector's are served below ``/platforms/<platform>/<account>``."""
        ...


@runtime_checkable
class FetchesMedia(Protocol):
    """A connector that can download the files of its messages; Maestro downloads only after the access check."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download the file into the empty ``folder`` and return its path; raises a ``FetchFailure``.

        ``attachment.id`` is the id in the accepted message. The id suffices to request a new link after a link expired.
        """
        ...

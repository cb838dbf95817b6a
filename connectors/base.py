"""What a connector is and what it may ask for: three methods, a context, and typed outcomes of a send."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from starlette.routing import BaseRoute

from maestro.domain.errors import MaestroError, Patience
from maestro.domain.messages import Accepted, Address, Attachment, IncomingMessage, OutgoingMessage, Receipt


class LengthUnit(StrEnum):
    """How a platform counts the length of a message."""

    CODE_POINTS = "code points"
    UTF16 = "utf-16 units"


class Idempotency(StrEnum):
    """What a platform offers so that a repeated send is not seen twice."""

    NATIVE = "native"
    RECONCILE = "reconcile"
    NONE = "none"


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do; lengths in ``unit``, the interval in seconds."""

    max_length: int
    unit: LengthUnit
    typing_interval: float
    idempotency: Idempotency


class Role(StrEnum):
    """What a person on the web connector is allowed to be (decision 19)."""

    OWNER = "owner"
    USER = "user"


@dataclass(frozen=True)
class Identity:
    """Who is at the other end; chosen by the server, never by the client."""

    user_id: str
    user_name: str
    role: Role


class ConnectorState(StrEnum):
    """How a connector is doing, for doctor and dashboard."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    FAILED = "failed"


class ConnectorContext(Protocol):
    """All a connector may ask of Maestro; every method is safe to call from the event loop."""

    async def accept(self, message: IncomingMessage) -> Accepted:
        """Commit the message; raises ``Backlogged`` when the inbox is full, ``InvalidMessage`` for a broken rule."""
        ...

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        """Return what was sent to this channel after the given delivery, oldest first, at most ``limit`` of it."""
        ...

    async def open_channel(self, address: Address, user_id: str) -> bool:
        """Give the channel to this user if nobody has it; false when it is somebody else's (decision 19)."""
        ...

    async def redeem(self, ticket: str) -> Identity | None:
        """Exchange a dashboard ticket, once, for the identity behind it; None when unknown, used or expired."""
        ...

    async def keep_upload(self, user_id: str, upload: "Upload") -> Attachment:
        """Keep an uploaded file under a new id that only this user can refer to."""
        ...

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the user's uploads by id; raises ``InvalidMessage`` naming an id that is not theirs."""
        ...

    async def upload_file(self, attachment_id: str) -> Path:
        """Return where a kept upload is, to be read only; raises ``NotFound``."""
        ...

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Tell operators how the connector is doing."""
        ...


@dataclass(frozen=True)
class Upload:
    """A received file before it is kept; ``path`` is moved away by whoever keeps it, ``size`` in bytes."""

    path: Path
    filename: str
    content_type: str
    size: int


class Connector(Protocol):
    """One account on one platform; ``token_digest`` tells its token from others, empty where it has none."""

    platform: str
    account: str
    token_digest: str
    capabilities: Capabilities

    async def run(self) -> None:
        """Receive until cancelled; raises only when it cannot go on."""
        ...

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand one chunk to the platform; raises a ``SendFailure``."""
        ...

    async def typing(self, address: Address) -> None:
        """Show once that an answer is being written; called again every ``typing_interval``."""
        ...


@runtime_checkable
class HasRoutes(Protocol):
    """A connector that serves HTTP itself."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes, mounted under ``/platforms/<platform>`` unless the connector is the web one."""
        ...


@runtime_checkable
class FetchesMedia(Protocol):
    """A connector that can get the files its messages refer to."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put the file into ``folder``, which is empty, and return its path; raises a ``FetchFailure``."""
        ...


class FetchFailure(MaestroError):
    """The base of what can go wrong with fetching a file."""

    public = "The file could not be fetched."
    patience = Patience.PLATFORM


class RetryableFetch(FetchFailure):
    """The platform did not give the file now; ``after`` is how long it asked us to wait, if it did."""

    public = "The file cannot be fetched now."
    retryable = True

    def __init__(self, message: str, after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = after


class PermanentFetch(FetchFailure):
    """The file is gone, too large or not for us: trying again is pointless."""

    public = "The file is not available."


async def attempt(connector: Connector, message: OutgoingMessage) -> "Receipt | SendFailure":
    """Send a chunk and return how it went as a value, so that the row can say it before anything else happens."""
    try:
        return await connector.send(message)
    except SendFailure as failure:
        return failure


class Scope(StrEnum):
    """What a permanent failure is about."""

    MESSAGE = "message"
    CHANNEL = "channel"
    ACCOUNT = "account"


class SendFailure(MaestroError):
    """The base of what can go wrong with a send; each subclass says whether the platform may have the message."""

    public = "The platform did not take the message."
    patience = Patience.PLATFORM
    surely_unsent = False


class NotDispatched(SendFailure):
    """Surely not sent; trying again is free."""

    public = "The platform could not be reached."
    retryable = True
    surely_unsent = True


class RetryableSend(SendFailure):
    """The platform asked to come back after ``retry_after``."""

    public = "The platform asked to try again."
    retryable = True
    surely_unsent = True

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = after


class AmbiguousSend(SendFailure):
    """The platform may or may not have it."""

    public = "It is unknown whether the platform has the message."
    retryable = True


class PermanentSend(SendFailure):
    """Trying again is pointless; ``scope`` says what is broken."""

    public = "The platform refused the message for good."
    surely_unsent = True

    def __init__(self, message: str, scope: Scope) -> None:
        super().__init__(message)
        self.scope = scope

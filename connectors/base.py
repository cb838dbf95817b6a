"""What a connector is: three methods, and what it may do besides; its context is re-exported from here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from starlette.routing import BaseRoute

from connectors.capabilities import Capabilities, Idempotency, LengthUnit, Markup, OnAmbiguous, Transport
from connectors.outcomes import (
    AccountRefused,
    AmbiguousSend,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    Scope,
    SendFailure,
    Unsettled,
)
from connectors.surroundings import ConnectorContext, ConnectorState, Identity, KnownChannel, Role, Upload
from maestro.domain.messages import Address, Attachment, Button, OutgoingMessage, Receipt, Report, Standing

__all__ = [
    "AccountRefused",
    "Acknowledges",
    "AmbiguousSend",
    "Button",
    "Capabilities",
    "CatchesUp",
    "Connector",
    "ConnectorContext",
    "ConnectorState",
    "Edits",
    "FetchFailure",
    "FetchesMedia",
    "HasRoutes",
    "Idempotency",
    "Identity",
    "KnownChannel",
    "LengthUnit",
    "Markup",
    "NotDispatched",
    "OnAmbiguous",
    "PermanentFetch",
    "PermanentSend",
    "Reconciles",
    "Renders",
    "Report",
    "RetryableFetch",
    "RetryableSend",
    "Role",
    "Scope",
    "SendFailure",
    "Standing",
    "Transport",
    "Unsettled",
    "Upload",
]


class Connector(Protocol):
    """One account on one platform; ``token_digest`` tells its token from others, empty where it has none."""

    platform: str
    account: str
    token_digest: str
    capabilities: Capabilities

    async def run(self) -> None:
        """Receive until cancelled; raises ``AccountRefused`` when only an operator can help.

        Connections that break are the connector's to mend. After anything else that it raises it is run again, after
        a pause that grows.
        """
        ...

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand one chunk to the platform under ``message.key``; raises a ``SendFailure``.

        With a ``filename`` the content, or what is at its ``path``, goes as a file of this name. Who presses a button
        says what ``ConnectorContext.pressed`` returns. It never tries twice by itself, unless the platform surely did
        not take it (docs/invariants.md: one layer retries). Mentions and previews of links are off.
        """
        ...

    async def typing(self, address: Address) -> None:
        """Show once that an answer is being written; called again every ``typing_interval``."""
        ...


@runtime_checkable
class Renders(Protocol):
    """A connector whose platform has a markup of its own: text is measured as it is rendered, and split before."""

    def render(self, text: str) -> str:
        """Return a chunk of Markdown as ``send`` writes it; a pure function that never fails."""
        ...


@runtime_checkable
class Reconciles(Protocol):
    """A connector that can look whether the platform has a message of ours."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for ``message.key`` among what came since ``message.tried_at``; None when it surely is not there.

        Raises ``Unsettled`` when nobody will ever know, another ``SendFailure`` when the platform cannot be asked now.
        """
        ...


@runtime_checkable
class Edits(Protocol):
    """A connector that can write a message of ours anew, so that an answer grows while it is written."""

    async def edit(self, message: OutgoingMessage) -> None:
        """Let the message that the platform knows as ``message.edits`` say this, formatted as ``send`` would.

        That it says so already is a success. Raises ``PermanentSend`` for a message that is gone or too old, and what
        ``send`` raises.
        """
        ...


@runtime_checkable
class Acknowledges(Protocol):
    """A connector that can show at once, at the message itself, that it was seen."""

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message of the inbox, nothing where none is set; again is harmless."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A connector that can take in what was written while nobody listened."""

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

"""The capabilities of a platform: a value that names every difference between platforms that other code depends on."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class LengthUnit(StrEnum):
    """The unit in which a platform counts the length of a message."""

    CODE_POINTS = "code points"
    UTF16 = "utf-16 units"


class Idempotency(StrEnum):
    """How a repeated send is kept from appearing twice: by a key, by a search for the message, or not at all."""

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


class Markup(StrEnum):
    """The markup of a platform's messages: Markdown, a markup of its own, or plain text."""

    MARKDOWN = "markdown"
    OWN = "own"
    PLAIN = "plain"


class PlatformTransport(StrEnum):
    """The way messages reach the connector; only webhooks need a public address."""

    SOCKET = "socket"
    POLLING = "polling"
    WEBHOOK = "webhook"


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a platform; lengths in ``unit``, intervals in seconds.

    ``native_window`` is how long the platform remembers the key of a message, None without limit. ``max_file_bytes`` is
    the size of the largest file to send, 0 if the platform accepts none. ``catches_up`` tells whether messages missed
    in an outage can be read later. ``on_ambiguous`` applies when neither a key nor a search settles an ambiguous send.
    ``max_buttons`` is the most buttons of a message, 0 for none. ``edit_interval`` is the least time between two edits
    while an answer streams, 0 without streaming.
    """

    max_length: int
    unit: LengthUnit
    typing_interval: float
    idempotency: Idempotency
    markup: Markup = Markup.MARKDOWN
    transport: PlatformTransport = PlatformTransport.SOCKET
    native_window: timedelta | None = None
    max_file_bytes: int = 0
    catches_up: bool = False
    on_ambiguous: OnAmbiguous = OnAmbiguous.HOLD
    max_buttons: int = 0
    edit_interval: float = 0

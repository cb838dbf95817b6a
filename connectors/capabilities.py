"""What a platform can do, as a value: every difference between platforms that the rest of Maestro must know of."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class LengthUnit(StrEnum):
    """How a platform counts the length of a message."""

    CODE_POINTS = "code points"
    UTF16 = "utf-16 units"


class Idempotency(StrEnum):
    """What a platform offers so that a repeated send is not seen twice."""

    NATIVE = "native"
    RECONCILE = "reconcile"
    NONE = "none"


class OnAmbiguous(StrEnum):
    """The rule for ambiguous sends, which the platform may or may not have.

    ``RESEND`` sends it again, so that it may be there twice; ``HOLD`` leaves it to an operator. ``AUTO`` resends what a
    user waits for and holds what no user waits for, such as a scheduled post.
    """

    AUTO = "auto"
    RESEND = "resend"
    HOLD = "hold"


class Markup(StrEnum):
    """What a platform's messages are written in: Markdown as models write it, a markup of its own, or plain text."""

    MARKDOWN = "markdown"
    OWN = "own"
    PLAIN = "plain"


class PlatformTransport(StrEnum):
    """How messages reach the connector; only webhooks need a public address."""

    SOCKET = "socket"
    POLLING = "polling"
    WEBHOOK = "webhook"


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a platform; lengths in ``unit``, intervals in seconds.

    ``native_window`` is how long the platform remembers the key of a message, None where it does so for ever.
    ``max_file_bytes`` is the size of the largest file to send, 0 where it takes none. ``catches_up`` says whether
    messages missed in an outage can be read later. ``on_ambiguous`` rules where neither a key nor a look settles what
    became of a message. ``max_buttons`` is how many buttons a message may have, 0 where it has none. ``edit_interval``
    is how often a message that grows may be written anew, 0 where answers are sent when they are whole.
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

"""Tells whether Slack sent a request: its signature is over the raw body and grows old."""

from connectors import posted

VERSION = "v0"
WINDOW_SECONDS = 300
"""How old a signature may be: an older one may be a recording that somebody plays again."""


def is_signed(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Tell whether Slack signed ``body`` within the last five minutes; takes as long for a wrong one as for another."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now - int(timestamp[:20])) > WINDOW_SECONDS:
        return False
    content = b":".join((VERSION.encode(), timestamp.encode(), body))
    return posted.is_signed(secret, content, signature, VERSION)

"""Tells whether Slack sent a request: its signature is over the raw body and grows old."""

import hashlib
import hmac

VERSION = b"v0"
WINDOW_SECONDS = 300
"""How old a signature may be: an older one may be a recording that somebody plays again."""


def is_signed(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Tell whether Slack signed ``body`` within the last five minutes; takes as long for a wrong one as for another."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now - int(timestamp[:20])) > WINDOW_SECONDS:
        return False
    base = b":".join((VERSION, timestamp.encode(), body))
    expected = VERSION + b"=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest().encode()
    return hmac.compare_digest(expected, signature.encode("utf-8", "surrogateescape"))

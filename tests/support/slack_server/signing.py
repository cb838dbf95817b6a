"""Signatures of requests that Slack sends, made by its own recipe."""

import hashlib
import hmac


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of ``X-Slack-Signature``."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()

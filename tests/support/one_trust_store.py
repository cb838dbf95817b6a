"""The certificates that httpx trusts, loaded once in each process: a Maestro that a test starts makes some clients."""

import os
import ssl
from functools import cache
from typing import Any

from httpx._transports import default

_Load = Any
"""httpx types its function for options that this passes on."""

load_anew: _Load = default.create_ssl_context  # type: ignore[attr-defined]


def share_trusted_certificates() -> None:
    """Let clients with default options have one context: to load the certificates takes 15 ms of CPU time."""
    default.create_ssl_context = _load_once  # type: ignore[attr-defined]


def _load_once(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    named = trust_env and (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"))
    if verify is True and cert is None and not named:
        return _default()
    context: ssl.SSLContext = load_anew(verify=verify, cert=cert, trust_env=trust_env)
    return context


@cache
def _default() -> ssl.SSLContext:
    context: ssl.SSLContext = load_anew(trust_env=False)
    return context

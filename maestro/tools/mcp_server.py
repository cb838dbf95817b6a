"""The configuration of an MCP server: its address or program, and the local names of its tools."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

MAX_NAME_CHARS = 64
MIN_SECRET_CHARS = 6
_HASH_CHARS = 8


@dataclass(frozen=True)
class McpServerSpec:
    """An MCP server: a program to start, if ``words`` is its command line, else an address.

    ``environment`` is the program's; ``headers`` are sent with every request to the address. ``idempotent`` has the
    server's names of tools that may be called again if it is unknown whether a call took effect.
    """

    name: str
    words: tuple[str, ...] = ()
    environment: Mapping[str, SecretStr] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    idempotent: frozenset[str] = frozenset()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to remove from logs; short ones are left, because redacting them makes logs unreadable."""
        values = [secret.get_secret_value() for secret in (*self.environment.values(), *self.headers.values())]
        return tuple(value for value in values if len(value) >= MIN_SECRET_CHARS)


def local_name(server: str, tool: str) -> str:
    """Return the name by which agents call a server's tool: every provider accepts it, and it never changes."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(tool.encode()).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"


def mask_secrets(secrets: tuple[str, ...], text: str) -> str:
    """Return a text with each secret replaced by asterisks."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text

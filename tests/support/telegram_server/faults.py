"""What can go wrong with a call of the Bot API."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One failure; ``stores`` says whether Telegram does what it was asked before it fails."""

    status: int = 200
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    cut: bool = False
    silent: bool = False
    stores: bool = False
    late: float = 0.0
    """Seconds after which it does all the same what it was asked."""

    @classmethod
    def limited(cls, seconds: int = 1) -> "Fault":
        """Answer 429 and ask to wait."""
        return cls(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})

    @classmethod
    def broken(cls, status: int = 502, *, stores: bool = False) -> "Fault":
        """Answer with an error of the server, and no JSON."""
        return cls(status=status, stores=stores)

    @classmethod
    def refused(cls, description: str, status: int = 400) -> "Fault":
        """Say no in these words."""
        return cls(status, description)

    @classmethod
    def migrated(cls, to: int) -> "Fault":
        """Say that the group goes on under another id."""
        said = "Bad Request: group chat was upgraded to a supergroup chat"
        return cls(400, said, {"migrate_to_chat_id": to})

    @classmethod
    def cut_before(cls) -> "Fault":
        """Reset the connection without having done anything."""
        return cls(cut=True)

    @classmethod
    def cut_after(cls) -> "Fault":
        """Do what was asked and reset the connection instead of saying so."""
        return cls(cut=True, stores=True)

    @classmethod
    def silence(cls, *, stores: bool) -> "Fault":
        """Never answer, having done what was asked or not."""
        return cls(silent=True, stores=stores)

    @classmethod
    def slow(cls, seconds: float) -> "Fault":
        """Take a while."""
        return cls(late=seconds)

"""What can go wrong with a call of the Web API."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One failure; ``stores`` says whether Slack does what it was asked before it fails."""

    status: int = 200
    error: str = ""
    needed: str = ""
    retry_after: int = 0
    cut: bool = False
    silent: bool = False
    stores: bool = False

    @classmethod
    def limited(cls, seconds: int = 1) -> "Fault":
        """Answer 429 and ask to wait."""
        return cls(status=429, error="ratelimited", retry_after=seconds)

    @classmethod
    def broken(cls, status: int = 503, *, stores: bool = False) -> "Fault":
        """Answer with an error of the server, and no JSON."""
        return cls(status=status, stores=stores)

    @classmethod
    def refused(cls, error: str, needed: str = "") -> "Fault":
        """Answer 200 with ``ok: false`` and this error, naming the scope that is ``needed``."""
        return cls(error=error, needed=needed)

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

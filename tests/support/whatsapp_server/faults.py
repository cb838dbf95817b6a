"""What can go wrong with a call of the Graph API."""

from dataclasses import dataclass

STATUSES = {190: 401, 0: 401, 10: 403, 131031: 403, 368: 403, 130429: 429, 131056: 400, 80007: 429, 4: 429}
"""The HTTP status of an error code, 400 where none is named."""


@dataclass(frozen=True)
class Fault:
    """One failure; ``stores`` says whether WhatsApp does what it was asked before it fails.

    With ``held`` the right answer comes, but only when the test lets it.
    """

    status: int = 200
    code: int = -1
    subcode: int = 0
    retry_after: str = ""
    cut: bool = False
    silent: bool = False
    held: bool = False
    stores: bool = False
    text: str = "<html>upstream</html>"
    """What it says where it has no code."""

    @classmethod
    def limited(cls, seconds: int = 1) -> "Fault":
        """Answer 429 and ask to wait."""
        return cls(status=429, code=130429, retry_after=str(seconds))

    @classmethod
    def broken(cls, status: int = 503, *, stores: bool = False) -> "Fault":
        """Answer with an error of the server, and no JSON."""
        return cls(status=status, stores=stores)

    @classmethod
    def refused(cls, code: int, subcode: int = 0) -> "Fault":
        """Answer with an error code, which quotes what nobody should keep."""
        return cls(status=STATUSES.get(code, 400), code=code, subcode=subcode)

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
    def late(cls) -> "Fault":
        """Do what was asked, tell of it by webhook, and answer when the test says so."""
        return cls(held=True, stores=True)

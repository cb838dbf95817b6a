"""How the REST interface is told to fail."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cut(StrEnum):
    """When the connection is cut, or nobody ever answers, instead of an answer."""

    NEVER = "never"
    BEFORE = "before"
    AFTER = "after"
    """What was asked for has been done."""
    HELD_BEFORE = "held before"
    HELD_AFTER = "held after"
    """What was asked for has been done, and nobody says so until the asker is gone."""


@dataclass(frozen=True)
class Fault:
    """What a request gets instead of its answer: a status with Discord's own ``code``, or a connection that is cut.

    With ``stored`` it is done all the same.
    """

    status: int = 500
    code: int = 0
    message: str = "scripted"
    headers: dict[str, str] = field(default_factory=dict)
    stored: bool = False
    cut: Cut = Cut.NEVER
    retry_after: float = 0.0

    @classmethod
    def limited(cls, seconds: float, *, cloudflare: bool = False) -> "Fault":
        """Ask to come back later; what Cloudflare says bears no ``Via`` header."""
        headers = {"Retry-After": str(seconds), **({} if cloudflare else {"Via": "1.1 google"})}
        return cls(status=429, headers=headers, retry_after=seconds)

    @classmethod
    def cut_after(cls) -> "Fault":
        """Do it, then cut the connection."""
        return cls(cut=Cut.AFTER, stored=True)

    @classmethod
    def held(cls, *, after: bool) -> "Fault":
        """Say nothing until the asker is gone, with or without doing it first."""
        return cls(cut=Cut.HELD_AFTER if after else Cut.HELD_BEFORE, stored=after)

    @property
    def does_it(self) -> bool:
        """Whether what was asked for is done."""
        return self.stored

    def body(self) -> dict[str, Any]:
        """Return Discord's description of an error."""
        told: dict[str, Any] = {"message": self.message, "code": self.code}
        return {**told, "retry_after": self.retry_after, "global": False} if self.status == 429 else told


@dataclass
class Scripted:
    """A fault for requests of one kind, as often as ``times`` says."""

    method: str
    kind: str
    fault: Fault
    times: int
    channel: int = 0
    skip: int = 0

    def serves(self, method: str, kind: str, channel: int) -> bool:
        """Say whether it is for this request; the first ``skip`` of its kind are spared."""
        fits = (self.method, self.kind) == (method, kind) and self.channel in (0, channel)
        if fits and self.skip > 0:
            self.skip -= 1
            return False
        return self.times > 0 and fits

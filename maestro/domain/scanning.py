"""What a search for secrets is asked and what it answers (specification 002, 8)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

REDACTED = "[redacted]"
"""What stands in the place of a secret."""

LOOK_AHEAD = 16_384
"""Characters beyond a limit that are scanned: a secret that is cut by it must be seen as a whole to be known."""


@dataclass(frozen=True, slots=True)
class ScanRules:
    """How to scan; read from the settings for every call, because they may change while Maestro runs.

    ``patterns`` are regular expressions of the operator's own. ``fail_mode`` says what becomes of a text that could
    not be scanned whole within ``timeout_ms``: ``open`` keeps what no finding covers, ``closed`` redacts all of it.
    """

    enabled: bool = True
    timeout_ms: int = 800
    fail_mode: Literal["open", "closed"] = "open"
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a text, in characters (code points): from ``start`` up to, but without, ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was found in a text: spans in rising order, apart from each other.

    ``error`` is empty, or says in a few words of ours why not everything could be looked at; it never quotes the text.
    """

    original: str
    spans: tuple[Span, ...] = ()
    error: str = ""

    @property
    def redacted(self) -> bool:
        """Say whether anything was found."""
        return bool(self.spans)

    @property
    def text(self) -> str:
        """The text with a mark in the place of each secret."""
        return redact(self.original, self.spans)


class SecretScanner(Protocol):
    """Finds secrets in texts; any number of threads may ask at once."""

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return what was found; a scanner that cannot go on says so in ``error`` or raises."""


def apart(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans in order, those that overlap or touch as one."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        elif span.start < span.end:
            joined.append(span)
    return tuple(joined)


def redact(text: str, spans: Iterable[Span]) -> str:
    """Return the text with one mark in the place of each span; the spans are in order and apart from each other."""
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], REDACTED]
        at = span.end
    return "".join([*parts, text[at:]])

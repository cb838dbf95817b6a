"""How a post becomes what is stored: secrets out first, then cut to size (docs/decisions.md: agent chat)."""

import unicodedata
from dataclasses import dataclass

from maestro.domain.scanning import LOOK_AHEAD, ScanResult, ScanRules, SecretScanner, Span, redact

TRUNCATED = " … [truncated]"
NOTE = " (Note: content redacted by scanner)"
_STEPS_BACK = 32
_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A text that may be stored, what was done to it, and why it could not all be scanned, if so."""

    text: str
    redacted: bool = False
    truncated: bool = False
    error: str = ""


def prepare(text: str, limit: int, scanner: SecretScanner, rules: ScanRules) -> Prepared:
    """Return a post as it is stored.

    Secrets are found in the whole text, which is then cut to ``limit`` characters, suffix included, without cutting a
    redaction, and scanned again; the note comes last, once. A redaction may make the text longer than the limit.
    """
    truncated = len(text) > limit
    kept = _edge(text, limit - len(TRUNCATED)) if truncated else len(text)
    first = scanner.scan(text[: limit + LOOK_AHEAD], rules)
    spans = [Span(span.start, min(span.end, kept)) for span in first.spans if span.start < kept]
    clean = redact(text[:kept], spans)
    # A scan that took too long would do so again, and a post would wait for twice the time it may.
    second = ScanResult(clean) if first.error else scanner.scan(clean, rules)
    redacted = bool(spans) or second.redacted
    cut = second.text + TRUNCATED if truncated else second.text
    return Prepared(noted(cut) if redacted else cut, redacted, truncated, first.error or second.error)


def noted(text: str) -> str:
    """Return the text with the note that something was taken out of it at its end, once."""
    return text if text.endswith(NOTE) else text + NOTE


def _edge(text: str, at: int) -> int:
    """Return the place to cut at: not within what people see as one character."""
    for place in range(at, max(at - _STEPS_BACK, 0), -1):
        if not _goes_on(text[place]) and text[place - 1] != _JOINER:
            return place
    return at


def _goes_on(character: str) -> bool:
    """Say whether a character is part of the one before: an accent, a vowel sign, a variant, a tone of skin, a tag."""
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
    )

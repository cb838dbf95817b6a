"""A scanner for tests that knows one secret."""

from maestro.domain.redaction import REDACTED, ScanResult, ScanRules, TextSpan

SECRET = "the-secret-of-these-tests"


class Marker:
    """Finds every ``SECRET``; with an ``error`` it says that it could not look at everything."""

    def __init__(self, error: str = "") -> None:
        self._error = error

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return where the secret is."""
        assert rules.enabled
        spans, at = [], text.find(SECRET)
        while at >= 0:
            spans.append(TextSpan(at, at + len(SECRET)))
            at = text.find(SECRET, at + 1)
        return ScanResult(text, tuple(spans), self._error)


def without(text: str) -> str:
    """Return a text without the secret."""
    return text.replace(SECRET, REDACTED)

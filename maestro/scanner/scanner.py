"""The scanner that Maestro ships: its own rules as plugins of detect-secrets, and the operator's patterns."""

import re
import time
from collections.abc import Callable, Iterator

import structlog

from maestro.domain.scanning import REDACTED, ScanResult, ScanRules, SecretScanner, Span, apart
from maestro.scanner.children import PatternChildren, PatternsFailed
from maestro.scanner.rules import OutOfTime, shipped

log = structlog.get_logger(__name__)

_MARK = re.compile(REDACTED.replace("[", r"\["))


class DetectSecretsScanner:
    """Finds secrets by our rules in this thread and by the operator's patterns in other processes.

    It has no global settings and heeds no comment in the text that asks not to be scanned. What was found before an
    error is told with the error, so a pattern that hangs does not switch the rules off.
    """

    def __init__(self) -> None:
        """Prepare the rules; the processes start when there are patterns."""
        self._rules = shipped()
        self._children = PatternChildren()

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return what was found until ``rules.timeout_ms`` were over."""
        deadline = time.monotonic() + rules.timeout_ms / 1000
        found: tuple[Span, ...] = ()
        try:
            found = self._rules.spans(text, deadline, rules.allow)
            if rules.patterns:
                matched = self._children.spans(text, rules.patterns, deadline)
                found = (*found, *_outside_marks(text, _not_allowed(text, matched, rules)))
        except OutOfTime as error:
            return ScanResult(text, error.found, "the text took too long")
        except PatternsFailed as error:
            return ScanResult(
                text, apart((*found, *_outside_marks(text, _not_allowed(text, error.found, rules)))), str(error)
            )
        return ScanResult(text, apart(found))

    def close(self) -> None:
        """End the processes at once; nobody has to, for they end with this one."""
        self._children.close()


class GuardedScanner:
    """A scanner whose errors cost nobody a post: they are logged, counted, and met as the rules say."""

    def __init__(self, scanner: SecretScanner, failed: Callable[[], None] = lambda: None) -> None:
        """Guard a scanner; ``failed`` is called for each text that could not be scanned whole, from any thread."""
        self._scanner = scanner
        self._failed = failed

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return what was found, and nothing where scanning is switched off; never raises."""
        if not rules.enabled or not text:
            return ScanResult(text)
        try:
            result = self._scanner.scan(text, rules)
        except Exception as error:  # noqa: BLE001 - it must not stop a post (docs/decisions.md: agent chat)
            result = ScanResult(text, (), type(error).__name__)
        if not result.error:
            return result
        # Operators search the log for this field. The text is not told: nobody knows what is in it.
        log.error("scanner.failed", scannerError=True, problem=result.error, fail_mode=rules.fail_mode)
        self._failed()
        return result if rules.fail_mode == "open" else ScanResult(text, (Span(0, len(text)),), result.error)


def _not_allowed(text: str, spans: tuple[Span, ...], rules: ScanRules) -> tuple[Span, ...]:
    return tuple(span for span in spans if not rules.allow.covers(text, span))


def _outside_marks(text: str, spans: tuple[Span, ...]) -> Iterator[Span]:
    """Return the spans without the marks in them: what was redacted once stays as it is."""
    marks = [match.span() for match in _MARK.finditer(text)]
    for span in spans:
        at = span.start
        for start, end in marks:
            if start < span.end and end > at:
                if at < start:
                    yield Span(at, start)
                at = end
        if at < span.end:
            yield Span(at, span.end)

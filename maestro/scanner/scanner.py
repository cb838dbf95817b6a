"""The scanner that Maestro ships: its own rules as plugins of detect-secrets, and the operator's patterns."""

import re
import time
from collections.abc import Callable, Iterator
from functools import cache

import structlog

from maestro.domain.redaction import REDACTED, AllowList, ScanResult, ScanRules, SecretScanner, TextSpan, merge_spans
from maestro.scanner.assignments import AssignmentPlugin, TablePlugin
from maestro.scanner.credentials import AddressPlugin, HeaderPlugin
from maestro.scanner.folding import BLANKED, TextFolder
from maestro.scanner.pattern_processes import PatternProcesses, PatternsFailed
from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.tokens import BlockPlugin, FormPlugin, TokenPlugin, token_table

WINDOW = 16_384
"""Characters scanned at a time, so that rules that rescan their input stay fast in a long text."""
OVERLAP = 4_096
"""Characters that two windows share; a longer secret is found by its beginning."""
_ROUNDS = 2
ALLOW_NOTHING = AllowList()

log = structlog.get_logger(__name__)

_MARK = re.compile(REDACTED.replace("[", r"\["))


class OutOfTime(Exception):
    """The scan reached its deadline before the end of the text."""

    def __init__(self, spans: tuple[TextSpan, ...]) -> None:
        """Store the findings made before the deadline."""
        super().__init__("out of time")
        self.spans = spans


class ShippedRules:
    """All rules of the scanner; stateless, so they are built once and used by any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Compile the patterns of all rules, which takes some milliseconds."""
        self._clock = clock
        self._folder = TextFolder()
        self.plugins: tuple[SpanPlugin, ...] = (
            TokenPlugin(token_table()),
            FormPlugin(),
            BlockPlugin(),
            AddressPlugin(),
            HeaderPlugin(),
            AssignmentPlugin(),
            TablePlugin(),
        )

    def find_spans(self, text: str, deadline: float, allow: AllowList = ALLOW_NOTHING) -> tuple[TextSpan, ...]:
        """Return the ranges of secrets outside the allow-list; raises OutOfTime when the clock passes the deadline."""
        spans: list[TextSpan] = []
        for offset in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
            for reading in self._folder.folded_forms(text[offset : offset + WINDOW]):
                for start, end in self._find_ranges(reading.data, deadline, spans):
                    span = reading.span(start, end)
                    span = TextSpan(span.start + offset, span.end + offset)
                    if not allow.covers(text, span):
                        spans.append(span)
        return merge_spans(spans)

    def _find_ranges(self, data: bytes, deadline: float, before: list[TextSpan]) -> Iterator[ByteRange]:
        """Yield the findings; then blank them and scan again, so that a scan of the redacted text finds nothing new."""
        for _ in range(_ROUNDS):
            ranges: list[ByteRange] = []
            for plugin in self.plugins:
                if self._clock() > deadline:
                    raise OutOfTime(merge_spans(before))
                ranges += [(start, end) for start, end in plugin.find_ranges(data) if start < end]
            if not ranges:
                return
            yield from ranges
            blanked = bytearray(data)
            for start, end in ranges:
                blanked[start:end] = BLANKED * (end - start)
            data = bytes(blanked)


@cache
def shipped_rules() -> ShippedRules:
    """Return the rules that Maestro ships, built once per process for posts and log lines."""
    return ShippedRules()


class DetectSecretsScanner:
    """Finds secrets: its rules run in the calling thread, the operator's patterns in other processes.

    The scanner has no global settings and ignores comments in a text that ask not to be scanned. Findings made before
    an error are returned with the error, so a pattern that hangs does not switch the rules off.
    """

    def __init__(self) -> None:
        """Build the rules; the processes start only when there are patterns."""
        self._rules = shipped_rules()
        self._children = PatternProcesses()

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return the findings made within the timeout ``rules.timeout_ms``."""
        deadline = time.monotonic() + rules.timeout_ms / 1000
        try:
            spans = self._rules.find_spans(text, deadline, rules.allow)
        except OutOfTime as error:
            return ScanResult(text, error.spans, "the scan of the text took too long")
        if not rules.patterns:
            return ScanResult(text, spans)
        problem = ""
        try:
            matched = self._children.find_spans(text, rules.patterns, deadline)
        except PatternsFailed as error:
            matched, problem = error.spans, str(error)
        matched = tuple(span for span in matched if not rules.allow.covers(text, span))
        return ScanResult(text, merge_spans((*spans, *_outside_marks(text, matched))), problem)

    def close(self) -> None:
        """End the processes at once; without this call they end with this process."""
        self._children.close()


class GuardedScanner:
    """A scanner that never raises: an error is logged and counted, and the fail mode decides about the text."""

    def __init__(self, scanner: SecretScanner, failed: Callable[[], None] = lambda: None) -> None:
        """Wrap a scanner; ``failed`` is called, from any thread, for each text that was not scanned completely."""
        self._scanner = scanner
        self._failed = failed

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return the findings, none where scanning is switched off; never raises."""
        if not rules.enabled or not text:
            return ScanResult(text)
        try:
            result = self._scanner.scan(text, rules)
        except Exception as error:  # noqa: BLE001 - a failed scan stops no post (docs/decisions.md: agent chat)
            result = ScanResult(text, (), type(error).__name__)
        if not result.error:
            return result
        # Operators search the log for scannerError. The scanned text is left out, because it may hold secrets.
        log.error("scanner.failed", scannerError=True, problem=result.error, fail_mode=rules.fail_mode)
        self._failed()
        return result if rules.fail_mode == "open" else ScanResult(text, (TextSpan(0, len(text)),), result.error)


def _outside_marks(text: str, spans: tuple[TextSpan, ...]) -> Iterator[TextSpan]:
    """Yield the parts of the spans that are outside of existing redaction marks."""
    marks = [match.span() for match in _MARK.finditer(text)]
    for span in spans:
        at = span.start
        for start, end in marks:
            if start < span.end and end > at:
                if at < start:
                    yield TextSpan(at, start)
                at = end
        if at < span.end:
            yield TextSpan(at, span.end)

"""Secret scanning: findings, the allow-list, and texts with a mark for each secret (docs/decisions.md: redaction)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Protocol

import re2  # type: ignore[import-untyped]  # re2 has no type hints

REDACTED = "[redacted]"
"""The mark in place of a secret."""

LOOK_AHEAD = 16_384
"""The characters scanned beyond a length limit: a secret that the limit would cut is recognised only as a whole."""

Redact = Callable[[str], str]
"""A function that returns a text with ``REDACTED`` in place of each secret; it adds no note to the text."""


@dataclass(frozen=True, slots=True, order=True)
class TextSpan:
    """A range of a text in characters (code points), from ``start`` up to but not including ``end``."""

    start: int
    end: int


ALLOW_PATTERN = "re:"
"""The prefix of a pattern in the allow-list; an entry without the prefix is a literal text."""
_PROGRAM_SIZE = 4_000
_ANY_FINDING = "Aa0-_/+=.:@#$!? é" * 4


@dataclass(frozen=True)
class AllowList:
    """The operator's exceptions from secret scanning: texts that are no secrets, and patterns of such texts.

    Patterns are regular expressions of RE2: the running time of RE2 grows only linearly with the text.
    """

    entries: tuple[str, ...] = ()

    def allows_finding(self, text: str, finding: TextSpan) -> bool:
        """Return whether a finding is allowed: it lies within an allowed text, or a pattern matches all of it."""
        start, end = finding.start, finding.end
        texts = (entry for entry in self.entries if not entry.startswith(ALLOW_PATTERN))
        if any(text.find(entry, max(0, end - len(entry)), start + len(entry)) >= 0 for entry in texts):
            return True
        return any(pattern.fullmatch(text[start:end]) for pattern in self._patterns)

    @cached_property
    def _patterns(self) -> tuple[Any, ...]:
        return tuple(_compile_entry(entry) for entry in self.entries if entry.startswith(ALLOW_PATTERN))


def allow_list_entry_problem(entry: str) -> str | None:
    """Return why an entry of the allow-list is not valid, None if it is."""
    if not entry.startswith(ALLOW_PATTERN):
        return None
    try:
        pattern = _compile_entry(entry)
    except re2.error:
        return "expected a regular expression in RE2 syntax after re: (no lookaround, no backreferences)"
    if pattern.programsize > _PROGRAM_SIZE:
        return "the pattern is too large; use fewer or smaller repetitions"
    if pattern.fullmatch(_ANY_FINDING):
        return "the pattern matches every finding; to turn the scanner off, set chat.scanner.enabled to false"
    return None


def _compile_entry(entry: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(entry.removeprefix(ALLOW_PATTERN), options)


@dataclass(frozen=True, slots=True)
class ScanRules:
    """The rules of a scan, read from the settings for every scan because they can change at run time.

    ``patterns`` are the operator's own regular expressions for secrets, ``allow`` the exceptions. ``fail_mode`` applies
    to a text that could not be scanned completely within ``timeout_ms``: ``open`` redacts only the findings so far,
    ``closed`` the whole text.
    """

    enabled: bool = True
    timeout_ms: int = 800
    fail_mode: Literal["open", "closed"] = "open"
    patterns: tuple[str, ...] = ()
    allow: AllowList = field(default_factory=AllowList)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The findings in a text, as sorted spans that neither overlap nor touch.

    ``error`` says why the text could not be scanned completely, empty if it was; it never quotes the text.
    """

    original: str
    spans: tuple[TextSpan, ...] = ()
    error: str = ""

    @property
    def redacted(self) -> bool:
        """Whether the scan found a secret."""
        return bool(self.spans)

    @property
    def text(self) -> str:
        """The text with ``REDACTED`` in place of each secret."""
        return redact_spans(self.original, self.spans)


class SecretScanner(Protocol):
    """A scanner that finds secrets in texts; many threads may use one scanner."""

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return the findings in a text; if the scan fails, the result has an ``error``, or an exception is raised."""


def merge_spans(spans: Iterable[TextSpan]) -> tuple[TextSpan, ...]:
    """Return the spans sorted, with spans that overlap or touch merged into one."""
    merged: list[TextSpan] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = TextSpan(merged[-1].start, max(merged[-1].end, span.end))
        elif span.start < span.end:
            merged.append(span)
    return tuple(merged)


def redact_spans(text: str, spans: Iterable[TextSpan]) -> str:
    """Return the text with ``REDACTED`` in place of each span; the spans must be sorted and must not overlap."""
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], REDACTED]
        at = span.end
    return "".join([*parts, text[at:]])


class TextKind(StrEnum):
    """The kinds of texts that can be scanned besides posts of #maestro, as the configuration chooses."""

    MEMORY = "memory"
    TOOLS = "tools"
    LOGS = "logs"
    PROMPTS = "prompts"
    OUTGOING = "outgoing"


def keep_text(text: str) -> str:
    """Return the text unchanged: the ``Redact`` function for texts that are not scanned."""
    return text


def build_redactor(scanner: SecretScanner, rules: ScanRules) -> Redact:
    """Return a function that redacts the secrets in a text.

    If a text could not be scanned completely, ``failMode`` decides whether only the findings or the whole text is
    redacted.
    """

    def redact(text: str) -> str:
        result = scanner.scan(text, rules)
        return REDACTED if result.error and rules.fail_mode == "closed" else result.text

    return redact if rules.enabled else keep_text


def redact_value(redact: Redact, key: str, value: str) -> str:
    """Return a value without secrets; it is scanned together with its key, which may mark it as a secret."""
    redacted, prefix = redact(f"{key}: {value}"), f"{key}: "
    return redacted.removeprefix(prefix) if redacted.startswith(prefix) else redact(value)

"""Secret scanning and redaction: findings as spans, the allow-list, and texts with a mark in place of each secret.

See docs/decisions.md: redaction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Protocol

import re2  # type: ignore[import-untyped]  # it comes without types

from maestro.domain.llm.prompts import PromptMessage

REDACTED = "[redacted]"
"""What stands in the place of a secret."""

LOOK_AHEAD = 16_384
"""Characters beyond a limit that are scanned: a secret that is cut by it must be seen as a whole to be known."""

Redact = Callable[[str], str]
"""Returns a text with a mark in the place of each secret; a post's note is not for these texts."""


@dataclass(frozen=True, slots=True, order=True)
class TextSpan:
    """A part of a text, in characters (code points): from ``start`` up to, but without, ``end``."""

    start: int
    end: int


ALLOW_PATTERN = "re:"
"""What an entry of the allow-list begins with that is a pattern; every other entry is the text itself."""
_PROGRAM_SIZE = 4_000
_ANY_FINDING = "Aa0-_/+=.:@#$!? é" * 4


@dataclass(frozen=True)
class AllowList:
    """What an operator knows to be no secret: texts in which nothing is one, and patterns of whole findings.

    Patterns are those of RE2, which takes time in proportion to the text, whatever the pattern says.
    """

    entries: tuple[str, ...] = ()

    def covers(self, text: str, finding: TextSpan) -> bool:
        """Say whether a finding may stay: it lies within an allowed text, or a pattern matches all of it."""
        if not self.entries:
            return False
        start, end = finding.start, finding.end
        if any(text.find(one, max(0, end - len(one)), start + len(one)) >= 0 for one in self._texts):
            return True
        return any(pattern.fullmatch(text[start:end]) for pattern in self._patterns)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.entries if not entry.startswith(ALLOW_PATTERN))

    @cached_property
    def _patterns(self) -> tuple[Any, ...]:
        return tuple(_compiled(entry) for entry in self.entries if entry.startswith(ALLOW_PATTERN))


def problem_of_allowed(entry: str) -> str | None:
    """Return why an entry cannot stand in an allow-list, or None."""
    if not entry.startswith(ALLOW_PATTERN):
        return None
    try:
        pattern = _compiled(entry)
    except re2.error:
        return "expected a regular expression as RE2 reads it behind re: (no lookaround, no backreferences)"
    if pattern.programsize > _PROGRAM_SIZE:
        return "is too large a pattern; use fewer or smaller repetitions"
    if pattern.fullmatch(_ANY_FINDING):
        return "matches every finding; to search for no secrets, set chat.scanner.enabled to false"
    return None


def _compiled(entry: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(entry.removeprefix(ALLOW_PATTERN), options)


@dataclass(frozen=True, slots=True)
class ScanRules:
    """How to scan; read from the settings for every call, because they may change while Maestro runs.

    ``patterns`` are regular expressions of the operator's own, ``allow`` what stays although it was found.
    ``fail_mode`` says what becomes of a text that could
    not be scanned whole within ``timeout_ms``: ``open`` keeps what no finding covers, ``closed`` redacts all of it.
    """

    enabled: bool = True
    timeout_ms: int = 800
    fail_mode: Literal["open", "closed"] = "open"
    patterns: tuple[str, ...] = ()
    allow: AllowList = field(default_factory=AllowList)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was found in a text: spans in rising order, apart from each other.

    ``error`` is empty, or says in a few words of ours why not everything could be looked at; it never quotes the text.
    """

    original: str
    spans: tuple[TextSpan, ...] = ()
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


def apart(spans: Iterable[TextSpan]) -> tuple[TextSpan, ...]:
    """Return spans in order, those that overlap or touch as one."""
    joined: list[TextSpan] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = TextSpan(joined[-1].start, max(joined[-1].end, span.end))
        elif span.start < span.end:
            joined.append(span)
    return tuple(joined)


def redact(text: str, spans: Iterable[TextSpan]) -> str:
    """Return the text with one mark in the place of each span; the spans are in order and apart from each other."""
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], REDACTED]
        at = span.end
    return "".join([*parts, text[at:]])


class TextKind(StrEnum):
    """What is scanned beside posts, if the configuration says so."""

    MEMORY = "memory"
    TOOLS = "tools"
    LOGS = "logs"
    PROMPTS = "prompts"
    OUTGOING = "outgoing"


def as_it_is(text: str) -> str:
    """Return the text; what is not in scope is not scanned."""
    return text


def redactor(scanner: SecretScanner, rules: ScanRules) -> Redact:
    """Return what takes secrets out of a text.

    One that could not be scanned is kept as far as nothing was found in it, or gives way as a whole, as ``failMode``
    says.
    """

    def redact(text: str) -> str:
        result = scanner.scan(text, rules)
        return REDACTED if result.error and rules.fail_mode == "closed" else result.text

    return redact if rules.enabled else as_it_is


def redacted_value(redact: Redact, key: str, value: str) -> str:
    """Return the value of a key without secrets: its name may be what tells that it is one."""
    named, name = redact(f"{key}: {value}"), f"{key}: "
    return named.removeprefix(name) if named.startswith(name) else redact(value)


def redacted_turns(messages: Sequence[PromptMessage], redact: Redact) -> tuple[PromptMessage, ...]:
    """Return the turns of a prompt without secrets; one that was changed no longer repeats a stored message."""
    return tuple(_turn(message, redact) for message in messages)


def _turn(message: PromptMessage, redact: Redact) -> PromptMessage:
    calls = tuple(call.model_copy(update={"arguments": redact(call.arguments)}) for call in message.tool_calls)
    content = redact(message.content)
    if content == message.content and calls == message.tool_calls:
        return message
    shared = message.stable if content[: message.stable] == message.content[: message.stable] else 0
    changed = {"content": content, "tool_calls": calls, "message_id": None, "stable": shared}
    return message.model_copy(update=changed)

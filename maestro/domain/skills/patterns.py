"""The patterns of skills: regular expressions that other people wrote, matched in time linear in the text.

Python's own ``re`` backtracks: one careless pattern, such as ``(a+)+$``, would hold a worker for hours. RE2 cannot: it
has no backreferences and no lookaround, bounds the memory of every pattern, and gives the same answer for the same text
on every machine, which a search that a clock cuts off does not. It is Google's, BSD-licensed, without dependencies,
0.6 MB, and comes as a wheel for every platform Maestro runs on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import re2  # type: ignore[import-untyped]  # it comes without types

PATTERN_CHARS = 500
PROGRAM_SIZE = 4_000
"""The most instructions a pattern may become: with the text a message is judged by, 1 second at the very worst."""


def _options() -> re2.Options:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True  # we only ask whether it matches, which is ten times faster
    options.max_mem = 1 << 20
    return options


@dataclass(frozen=True)
class Patterns:
    """Patterns that are compiled when they are first needed; letters match in either case unless ``(?-i)`` says no."""

    sources: Sequence[str]

    @cached_property
    def _compiled(self) -> Sequence[tuple[str, Any]]:
        options = _options()
        return [(source, re2.compile(source, options)) for source in self.sources if problem_of(source) is None]

    @cached_property
    def _any(self) -> Any | None:
        """All of them as one, because most messages match none; None where that becomes too large."""
        # An open \Q quotes whatever stands behind it.
        if len(self._compiled) < 2 or any(r"\Q" in source for source, _ in self._compiled):
            return None
        try:
            return re2.compile("|".join(f"(?:{source})" for source, _ in self._compiled), _options())
        except re2.error:
            return None

    def matching(self, text: bytes) -> tuple[str, ...]:
        """Return those that match somewhere in a text in UTF-8."""
        if self._any is not None and self._any.search(text) is None:
            return ()
        return tuple(source for source, compiled in self._compiled if compiled.search(text) is not None)


def problem_of(source: str) -> str | None:
    """Return why a text is no usable pattern, in a few words, or None."""
    if not source.strip():
        return "it is empty"
    if len(source) > PATTERN_CHARS:
        return f"it has more than {PATTERN_CHARS} characters"
    try:
        compiled = re2.compile(source.encode("utf-8", "replace").decode(), _options())
    except re2.error as error:
        return _reason(error)
    if compiled.programsize > PROGRAM_SIZE:
        return "it is too large; use fewer or smaller repetitions"
    if compiled.search(b"") is not None:
        return "it matches every message"
    return None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "invalid perl operator" in text or "invalid escape sequence" in text:
        return f"{text} (lookaround and backreferences are not supported)"
    return text or "it cannot be read"

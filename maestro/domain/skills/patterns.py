"""The patterns of skills: regular expressions that other people wrote, matched in time linear in the text.

Python's own ``re`` backtracks: one careless pattern, such as ``(a+)+$``, would hold a worker for hours. RE2 cannot: it
has no backreferences and no lookaround, bounds the memory of every pattern, and gives the same answer for the same text
on every machine, which a search that a clock cuts off does not. It is Google's, BSD-licensed, without dependencies,
0.6 MB, and comes as a wheel for every platform Maestro runs on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import re2  # type: ignore[import-untyped]  # it comes without types

PATTERN_CHARS = 500
PROGRAM_SIZE = 4_000
"""The most instructions a pattern may become: with the text a message is judged by, 1 second at the very worst."""
GROUP_MEMORY = 8 << 20
"""Bytes that many patterns may take which are searched for as one."""


def _options(memory: int = 1 << 20) -> re2.Options:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True  # we only ask whether it matches, which is ten times faster
    options.max_mem = memory
    return options


class _Group:
    """Patterns that are searched for as one, and half by half only where one of them matches: most messages have none.

    What finds several patterns at once in RE2 (``Set``) has no way to say that its memory was not enough: it would miss
    what each pattern by itself finds.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def matching(self, text: bytes) -> Iterator[str]:
        """Yield those that match somewhere in a text in UTF-8, in their order."""
        if self._all is not None and self._all.search(text) is None:
            return
        if len(self._sources) == 1:
            yield self._sources[0]
        for half in self._halves:
            yield from half.matching(text)

    @cached_property
    def _all(self) -> Any | None:
        """All of them as one; None where that cannot be."""
        if len(self._sources) == 1:
            return re2.compile(self._sources[0], _options())
        # An open \Q quotes whatever stands behind it.
        if any(r"\Q" in source for source in self._sources):
            return None
        try:
            return re2.compile("|".join(f"(?:{source})" for source in self._sources), _options(GROUP_MEMORY))
        except re2.error:  # it is too large, or two of them name a group alike
            return None

    @cached_property
    def _halves(self) -> Sequence["_Group"]:
        middle = len(self._sources) // 2
        return [_Group(half) for half in (self._sources[:middle], self._sources[middle:]) if middle]


@dataclass(frozen=True)
class Patterns:
    """Patterns that are compiled when they are first needed; letters match in either case unless ``(?-i)`` says no.

    They may be those of a skill, or of hundreds.
    """

    sources: Sequence[str]

    @cached_property
    def _usable(self) -> _Group:
        return _Group([source for source in self.sources if problem_of(source) is None])

    def matching(self, text: bytes) -> tuple[str, ...]:
        """Return those that match somewhere in a text in UTF-8, in the order of their sources."""
        return tuple(self._usable.matching(text))


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

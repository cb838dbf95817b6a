"""What is different between two versions of an agent, line by line, as people read it."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import chain

from pydantic import JsonValue

from maestro.domain.agents.versions import FieldChange
from maestro.domain.values import Value

AROUND = 2
"""Lines that stay the same and are shown before and after what is different."""
MOST_LINES = 2_000
"""Lines of a text that are compared one by one; longer ones are shown whole, before and after."""


class LineKind(StrEnum):
    """What became of a line; ``GAP`` stands for lines that stay and are not shown."""

    SAME = "same"
    GONE = "gone"
    NEW = "new"
    GAP = "gap"


class DiffLine(Value):
    """A line of a text, and what became of it."""

    kind: LineKind
    text: str


def lines_of(change: FieldChange, *, is_first: bool = False) -> tuple[DiffLine, ...]:
    """Return the lines of a field that went and that came, each beside those that stay around it.

    A list is compared entry by entry; what everybody has is called by that name. Before the first version was nothing.
    """
    before, after = [] if is_first else _lines(change.before), _lines(change.after)
    if max(len(before), len(after)) > MOST_LINES:
        return tuple(chain(_all(LineKind.GONE, before), _all(LineKind.NEW, after)))
    return tuple(_compared(before, after))


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    groups = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND)
    shown = 0
    for group in groups:
        if group[0][1] > shown:
            yield DiffLine(kind=LineKind.GAP, text="")
        for kind, begin, end, new_begin, new_end in group:
            if kind == "equal":
                yield from _all(LineKind.SAME, before[begin:end])
                continue
            yield from _all(LineKind.GONE, before[begin:end])
            yield from _all(LineKind.NEW, after[new_begin:new_end])
        shown = group[-1][2]
    if shown < len(before):
        yield DiffLine(kind=LineKind.GAP, text="")


def _all(kind: LineKind, lines: Sequence[str]) -> Iterator[DiffLine]:
    return (DiffLine(kind=kind, text=line) for line in lines)


def _lines(value: JsonValue) -> list[str]:
    """Return a value as lines; nothing, and an empty text, are no line at all."""
    if value is None:
        return ["(what everybody has)"]
    if isinstance(value, list):
        return [str(one) for one in value] or ["(none)"]
    return str(value).splitlines()

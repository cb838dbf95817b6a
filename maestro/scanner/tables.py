"""Secrets in tables: the head of a column names what stands in it."""

import re
from collections.abc import Iterator

from maestro.scanner.judgement import is_secret
from maestro.scanner.keywords import Kind, kind_of, words_of
from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.tokens import latin_pattern
from maestro.scanner.values import FoundValue

_HEADS = (b"pass", b"pwd", b"secret", b"token", b"key", b"cred", b"pw")
_SEPARATORS = (b"|", b"\t", b",", b";")
_MOST_ROWS = 500
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9 _\-]{1,30}")
_INSERT = (
    rb"(?i)\b(?:insert(?:\s+\w{1,12})?|replace)\s+into\s+[^\s(]{1,128}\s{0,4}\(([^()]{1,1000})\)\s{0,8}values\s{0,8}\("
)
_CELL = re.compile(
    rb"\s{0,8}(?:[bEN]?'((?:[^'\\\x01]|''|\\.){0,512}+)'|\"([^\"\x01]{0,512})\"|([^,()'\"\x01]{0,128}))\s{0,8}([,)])"
)
_NEXT_ROW = re.compile(rb"\s{0,4},\s{0,16}\(")
_TRIM = b" \t\r\n\"'`*"


class TablePlugin(SpanPlugin):
    """Finds the cells below the name of a secret, in Markdown, CSV, what is pasted from a spreadsheet, and in SQL."""

    secret_type = "Secret in a table"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare to look for what is inserted."""
        self._insert = latin_pattern(_INSERT)

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return the cells alone."""
        small = data.lower()
        if any(head in small for head in _HEADS):
            if b"into" in small:
                yield from self._inserted(data)
            if b"\n" in data:
                yield from _below_heads(data)

    def _inserted(self, data: bytes) -> Iterator[ByteRange]:
        over = 0
        for match in self._insert.finditer(data):
            if match.start() >= over:
                kinds = [kind_of(words_of(name)) for name in match[1].split(b",")]
                over = match.end()
                for _ in range(_MOST_ROWS if any(kinds) else 0):
                    places, over = _row(data, over, kinds)
                    yield from places
                    more = _NEXT_ROW.match(data, over)
                    if more is None:
                        break
                    over = more.end()


def _row(data: bytes, at: int, kinds: list[Kind | None]) -> tuple[list[ByteRange], int]:
    """Return the secrets of a row of values that begins here, and where it ends or is no more read."""
    places = []
    for kind in kinds:
        cell = _CELL.match(data, at)
        if cell is None:
            break
        at, group = cell.end(), next((number for number in (1, 2) if cell[number]), 0)
        if kind is not None and group and is_secret(kind, FoundValue(*cell.span(group), True, data), literal=True):
            places.append(cell.span(group))
        if cell[4] == b")":
            break
    return places, at


def _below_heads(data: bytes) -> Iterator[ByteRange]:
    at = 0
    rest: list[tuple[bytes, int, Kind]] = []
    rows = separators = 0
    for line in data.splitlines(keepends=True):
        heads = _heads(line)
        if heads:
            rest, rows = heads, 0
            separators = line.count(heads[0][0])
        elif rest and rows < _MOST_ROWS and line.count(rest[0][0]) == separators:
            rows += 1
            yield from _cells(data, at, line, rest)
        else:
            rest = []
        at += len(line)


def _heads(line: bytes) -> list[tuple[bytes, int, Kind]]:
    """Return the separator, the place of the column and what is in it, for each column of secrets; none in a row."""
    if len(line) > 1000:
        return []
    for separator in _SEPARATORS:
        cells = [cell.strip(_TRIM) for cell in line.split(separator)]
        if len(cells) > 1 and all(not cell or _NAME.fullmatch(cell) for cell in cells):
            kinds = [(separator, place, kind_of(words_of(cell))) for place, cell in enumerate(cells)]
            return [(separator, place, kind) for separator, place, kind in kinds if kind is not None]
    return []


def _cells(data: bytes, at: int, line: bytes, heads: list[tuple[bytes, int, Kind]]) -> Iterator[ByteRange]:
    cells = line.split(heads[0][0])
    for separator, place, kind in heads:
        cell = cells[place].rstrip(b"\n")
        start = at + sum(len(before) + len(separator) for before in cells[:place])
        start += len(cell) - len(cell.lstrip(_TRIM))
        found = FoundValue(start, start + len(cell.strip(_TRIM)), True, data)
        if found.start < found.end and is_secret(kind, found, literal=True):
            yield found.start, found.end

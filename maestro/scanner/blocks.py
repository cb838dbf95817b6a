"""Whole blocks of private keys: PEM, PGP, SSH and PuTTY, also those that were cut at either end."""

import re
from collections.abc import Iterator

from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.tokens import latin_pattern

_LABEL = (
    rb"[A-Z0-9 ]{0,40}(?:PRIVATE|SECRET) KEY(?: BLOCK)?|OpenVPN Static key V1|[A-Z0-9 ]{0,20}STATIC KEY[A-Z0-9 ]{0,8}"
)
_BEGIN = rb"-{4,5} {0,2}BEGIN (?:" + _LABEL + rb") {0,2}-{4,5}"
_END = rb"-{4,5} {0,2}END (?:" + _LABEL + rb")(?: {0,2}-{1,5})?"
_PUTTY = rb"PuTTY-User-Key-File-[0-9]"
_BODY_RUN = re.compile(rb"[A-Za-z0-9+/=]{16}|[0-9a-f]{16}")
_ANY_END = re.compile(rb"-{3,5} {0,2}END ")
_NEXT_BEGIN = re.compile(rb"-{4,5} {0,2}BEGIN ")
_LONGEST = 24_576
"""Bytes of the longest block: a key of 16,384 bits with its headers is half of that."""

# A line of a key, after what mail, diffs, comments and string literals put before it; and the headers within a block.
_LINE = re.compile(
    rb"(?:[ \t>|+#*\"'`;,/]|\\[nrt]|\x01)*+"
    rb"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject|x-[\w-]{1,20})\b[^\n]*"
    rb"|[A-Za-z0-9+/=]+(?:\\[nr\\]+[A-Za-z0-9+/=]+)*(?: [A-Za-z0-9+/=]{16,})*)?+"
    rb"(?:[ \t\"'`+;,.)\\]|\\[nrt])*+(?:\r?\n|\Z)"
)
_WORDS = re.compile(rb"[A-Za-z]{1,15}(?: [A-Za-z,.']{1,15})+|[a-z]{1,12}")
_HEXES = re.compile(rb"[0-9a-fA-F]+")


class BlockPlugin(SpanPlugin):
    """Finds private keys as whole blocks."""

    secret_type = "Private key block"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare the patterns."""
        self._begin = latin_pattern(_BEGIN, any_case=True)
        self._end = latin_pattern(_END, any_case=True)
        self._putty = latin_pattern(_PUTTY)

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return each block from its first mark to its last, or as far as it goes on."""
        if b"---" in data:
            whole = list(self._whole(data))
            yield from whole
            yield from self._tails(data, [end for _, end in whole])
        over = 0
        for match in self._putty.finditer(data) if b"PuTTY" in data else ():
            if match.start() >= over:
                over = max(_lines_end(data, match.start(), _PUTTY_LINE), match.end())
                yield match.start(), over

    def _whole(self, data: bytes) -> Iterator[ByteRange]:
        """Return blocks that begin here, also those that do not end."""
        over = 0
        for match in self._begin.finditer(data):
            if match.start() >= over:
                end = self._end_of(data, match.end())
                if end:
                    yield match.start(), end
                    over = end

    def _tails(self, data: bytes, ends: list[int]) -> Iterator[ByteRange]:
        """Return the ends of blocks without a beginning, with the lines of a key before them."""
        over = 0
        for match in self._end.finditer(data):
            if match.end() in ends:
                over = match.end()
                continue
            start = _first_line(data, match.start(), over)
            if start < match.start():
                yield start, match.end()
            over = match.end()

    def _end_of(self, data: bytes, body: int) -> int:
        """Return the end of the block with a body that begins here; 0 where it has no key."""
        stop = min(len(data), body + _LONGEST)
        other = _NEXT_BEGIN.search(data, body, stop)
        limit = other.start() if other else stop
        mark = _ANY_END.search(data, body, limit)
        if mark is not None:
            whole = self._end.search(data, mark.start())
            end = whole.end() if whole is not None and whole.start() == mark.start() else mark.end()
        else:
            end = _lines_end(data, body, _LINE)
        return end if _BODY_RUN.search(data, body, end) else 0


_PUTTY_LINE = re.compile(
    rb"[ \t>|]*(?:PuTTY-User-Key-File-\d|Encryption|Comment|Public-Lines|Private-Lines|Private-MAC|Private-Hash"
    rb"|Key-Derivation|Argon2-[A-Za-z]+)\b[^\n]*(?:\n|\Z)|[ \t>|]*[A-Za-z0-9+/=]+[ \t\r]*(?:\n|\Z)"
)


def _lines_end(data: bytes, start: int, line: "re.Pattern[bytes]") -> int:
    """Return where lines end that could be those of a key; empty lines count if more of the key follows."""
    at = end = start
    while at < len(data) and at - start < _LONGEST:
        match = line.match(data, at)
        cut = match is not None and match.end() == len(data) and b" " not in match[0]
        if match is None or match.end() == at or (_is_prose(match[0]) and not cut):
            break
        at = match.end()
        if match[0].strip():
            end = at - (len(match[0]) - len(match[0].rstrip()))
    return end


def _first_line(data: bytes, end: int, earliest: int) -> int:
    """Return the start of the lines of a key that ends here without its beginning."""
    at = first = data.rfind(b"\n", earliest, end) + 1 or earliest
    if not _is_prose(data[at:end]) and _BODY_RUN.search(data, at, end):
        return at
    while at > earliest:
        before = max(data.rfind(b"\n", earliest, at - 1) + 1, earliest)
        line = data[before:at]
        if not line.strip() or _LINE.fullmatch(line) is None or _is_prose(line):
            break
        at = first = before
    return first if _BODY_RUN.search(data, first, end) else end


def _is_prose(line: bytes) -> bool:
    """Say whether a line is words and not a part of a key."""
    text = line.strip(b" \t>|+#*\"'`;,./\\\r\n")
    return _WORDS.fullmatch(text) is not None and _HEXES.fullmatch(text) is None

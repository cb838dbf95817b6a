"""Finds where a value starts and ends after its name, in any language or format."""

import re
from dataclasses import dataclass

LONGEST = 256
"""The number of bytes of an unquoted value that are read before it is judged; ``whole_range`` adds the rest."""

_LEAD = re.compile(
    rb"[ \t]{0,16}(?:(?:!!?[A-Za-z]{1,12}|&[A-Za-z]{1,16})[ \t]{1,4})?(?:[|>][+\-]?[0-9]?[ \t]{0,4}\r?\n[ \t]{0,32})?"
    rb"(?:\*{1,3}(?=[^*\s])|~~(?=[^~\s]))?(?:<code>|<b>|[(\[{]{1,2}[ \t]?(?=[\"'`]))?"
)
_WRAPPED = re.compile(rb"(?:(?:new|await)[ \t])?(?:[A-Za-z_][A-Za-z0-9_.:$!]{0,40}\([ \t]{0,2}){1,2}(?=[\"'`])")
_QUOTE = re.compile(rb"(?:[bBrRuUfF@$]{1,2}(?=[\"']))?(\"\"\"|'''|```[a-z]{0,12}\s|[\"'`])")
_RUN = re.compile(rb"[^\s`\x01]{1,%d}" % LONGEST)
_CUT = re.compile(
    rb"\\{0,2}[\"'](?=[,;)\]}:\s\\]|$)|[,;](?=\s|[\"'{}]|[A-Za-z_][A-Za-z0-9_.\- ]{0,30}[=:])"
    rb"|&(?:amp|quot|lt|gt);|<(?=[/A-Za-z!])|\\[nrt](?=[A-Z_]{3,}=|\\|$)|[|](?=$)"
)
_NEXT_FIELD = re.compile(rb"&(?=[A-Za-z_][A-Za-z0-9_.\-]{0,30}=)")
_LONGEST_QUOTED = 4096
_REST = re.compile(rb"[^\s\"'`<>,;\x01]*")
_CLOSING = {b")": b"(", b"]": b"[", b"}": b"{", b">": b"<"}
_SENTENCE_ENDS = b".,;:"


@dataclass(frozen=True, slots=True)
class ValueSpan:
    """A value's position in a text; ``quoted`` means that quotes or the end of its line mark its end for certain."""

    start: int
    end: int
    quoted: bool
    data: bytes

    @property
    def value(self) -> bytes:
        return self.data[self.start : self.end]


def value_at(data: bytes, at: int, *, whole_line: bool = False) -> ValueSpan | None:
    """Return the value that begins at a position; with ``whole_line`` only the end of the line ends it."""
    in_form = data[at - 1 : at] == b"="  # "&" ends a value only after "=", because a password may contain "&"
    at = _match_end(_WRAPPED, data, _match_end(_LEAD, data, at))
    bold = data[at - 1 : at] == b"*"
    quote = _QUOTE.match(data, at)
    if quote is not None:
        return _quoted_value(data, quote[1], quote.end())
    run = _RUN.match(data, at)
    if run is None:
        return None
    end = run.end()
    if not whole_line:
        cuts = (pattern.search(data, at, end) for pattern in ((_CUT, _NEXT_FIELD) if in_form else (_CUT,)))
        end = min((cut.start() for cut in cuts if cut), default=end)
        while end > at and _ends_with_punctuation(data[at:end]):
            end -= 1
        end -= len(data[at:end]) - len(data[at:end].rstrip(b"*")) if bold else 0
    return ValueSpan(at, end, False, data) if end > at else None


def whole_range(value: ValueSpan) -> tuple[int, int]:
    """Return the full range of a value, of which only the beginning was read to judge it."""
    is_cut = not value.quoted and value.end - value.start >= LONGEST
    return value.start, _match_end(_REST, value.data, value.end) if is_cut else value.end


def _match_end(pattern: "re.Pattern[bytes]", data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return at if match is None else match.end()


def _quoted_value(data: bytes, quote: bytes, start: int) -> ValueSpan | None:
    """Return the text between quotes; without a closing quote, the text up to the first space."""
    mark = quote[:3] if len(quote) > 1 else quote
    line = len(data) if len(mark) > 1 or mark == b"`" else data.find(b"\n", start)
    limit = min(start + _LONGEST_QUOTED, len(data), line if line >= 0 else len(data))
    end = data.find(mark, start, limit + len(mark))
    while end > 0 and (skipped := _escaped_quote_length(data, start, end, mark)):
        end = data.find(mark, end + skipped, limit + len(mark))
    if end >= 0:
        inner = data[start:end]
        lead = len(inner) - len(inner.lstrip())
        return ValueSpan(start + lead, end - (len(inner) - len(inner.rstrip())), True, data) if inner.strip() else None
    run = _RUN.match(data, start)
    return None if run is None else ValueSpan(start, run.end(), False, data)


def _escaped_quote_length(data: bytes, start: int, end: int, mark: bytes) -> int:
    """Return the bytes to skip at a quote that is escaped, or doubled as in SQL and YAML; 0 at a closing quote."""
    if data[end - 1 : end] == b"\\" and data[end - 2 : end - 1] != b"\\":
        return 1
    doubled = mark == b"'" and end > start and data[end + 1 : end + 2] == mark
    return 2 if doubled else 0


def _ends_with_punctuation(value: bytes) -> bool:
    """Return whether the last byte belongs to the sentence around a value: a full stop, a comma, a bracket."""
    last = value[-1:]
    if last in _CLOSING:
        return value.count(_CLOSING[last]) < value.count(last)
    return last in _SENTENCE_ENDS or (last in b"\"'" and value.count(last) % 2 == 1)

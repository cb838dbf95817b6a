"""Finds tokens of providers by prefix or pattern, and whole blocks of private keys."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import re2  # type: ignore[import-untyped]  # re2 has no type stubs

from maestro.scanner.plugin import ByteRange, SpanPlugin, read_tables
from maestro.scanner.values import JUDGED, count_character_classes, has_digit, is_hex, is_joined_words, looks_random

_ALPHANUMERIC = re.compile(rb"[A-Za-z0-9]")
_TAIL = re.compile(rb"[A-Za-z0-9_\-]*={0,2}")
SHAM = re.compile(rb"(?i)x{5}|example|placeholder|your[_-]|(?:test|fake|dummy|sample)[_-]?(?:key|token)|redacted")
_LONGEST = 2048
"""The number of bytes of a token that are read before it is judged; this limits the cost of a text full of prefixes."""
_FEW = 6
"""A token with fewer different characters than this is a placeholder."""

_AMAZON = rb"\baws|amazon|\bs3\b|\x01{10}|a[ksbc][ic]a[a-z0-9]{16}"
_AZURE = rb"azure|account|storage|cosmos|windows\.net|service ?bus|event ?hub"
_AMAZON_CHARACTER = re.compile(rb"[A-Za-z0-9/+]")
_BASE64_CHARACTER = re.compile(rb"[A-Za-z0-9+/\-]")

_LABEL = (
    rb"[A-Z0-9 ]{0,40}(?:PRIVATE|SECRET) KEY(?: BLOCK)?|OpenVPN Static key V1|[A-Z0-9 ]{0,20}STATIC KEY[A-Z0-9 ]{0,8}"
)
_BEGIN = rb"-{4,5} {0,2}BEGIN (?:" + _LABEL + rb") {0,2}-{4,5}"
_END = rb"-{4,5} {0,2}END (?:" + _LABEL + rb")(?: {0,2}-{1,5})?"
_PUTTY = rb"PuTTY-User-Key-File-[0-9]"
_BODY_RUN = re.compile(rb"[A-Za-z0-9+/=]{16}|[0-9a-f]{16}")
_ANY_END = re.compile(rb"-{3,5} {0,2}END ")
_NEXT_BEGIN = re.compile(rb"-{4,5} {0,2}BEGIN ")
_LONGEST_BLOCK = 24_576
"""Bytes of the longest block: a key of 16,384 bits with its headers is half of that."""

# Matches a line or a header of a private key, also when it is quoted in a mail, diff, comment or string literal.
_LINE = re.compile(
    rb"(?:[ \t>|+#*\"'`;,/]|\\[nrt]|\x01)*+"
    rb"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject|x-[\w-]{1,20})\b[^\n]*"
    rb"|[A-Za-z0-9+/=]+(?:\\[nr\\]+[A-Za-z0-9+/=]+)*(?: [A-Za-z0-9+/=]{16,})*)?+"
    rb"(?:[ \t\"'`+;,.)\\]|\\[nrt])*+(?:\r?\n|\Z)"
)
_PROSE = re.compile(rb"[A-Za-z]{1,15}(?: [A-Za-z,.']{1,15})+|[a-z]{1,12}")
_HEXES = re.compile(rb"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class TokenKind:
    """A kind of token: its prefix, and the pattern of the rest.

    ``body`` is a pattern without overlapping alternatives, so that matching never goes back. ``whole`` tokens have one
    length and are found only with no letter or digit next to them; for other kinds the adjoining characters count as
    part of the token. ``needs_no_boundary`` kinds may follow a letter or a digit, because nothing else has their
    prefix.
    """

    prefix: str
    body: str
    whole: bool = False
    digits: bool = False

    @property
    def needs_no_boundary(self) -> bool:
        """Whether the prefix alone identifies the token."""
        return not self.whole and len(self.prefix) > 3 and self.prefix[-1] in "_-."


def token_table() -> Sequence[TokenKind]:
    """Read ``tokens.txt``: the prefix, the pattern of the rest and the options of each kind of token."""
    lines = Path(__file__).with_name("tokens.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [TokenKind(row[0], row[1], "whole" in row, "digits" in row) for row in rows]


def compile_latin_pattern(pattern: bytes, *, any_case: bool = False) -> "re2._Regexp":
    """Return a pattern for folded text; its search takes time linear in the length of the text."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = not any_case
    options.log_errors = False
    return re2.compile(pattern, options)


class TokenPlugin(SpanPlugin):
    """Finds tokens of the kinds in a table."""

    secret_type = "Token of a provider"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self, table: Iterable[TokenKind]) -> None:
        """Compile one pattern of all prefixes in the table."""
        kinds: dict[bytes, list[tuple[TokenKind, re.Pattern[bytes]]]] = {}
        for token in table:
            end = r"(?![A-Za-z0-9])" if token.whole else ""
            kinds.setdefault(token.prefix.encode(), []).append((token, re.compile((token.body + end).encode())))
        prefixes = sorted(kinds, key=len, reverse=True)
        self._any = compile_latin_pattern(b"|".join(map(re2.escape, prefixes)))
        # A long prefix may begin with the shorter prefix of another kind, so both kinds are tried.
        self._kinds = {
            prefix: [(shorter, *kind) for shorter in prefixes if prefix.startswith(shorter) for kind in kinds[shorter]]
            for prefix in prefixes
        }

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of tokens, including adjoining characters that may belong to them."""
        done = 0
        for match in self._any.finditer(data):
            start = match.start()
            if start >= done and (end := self._find_token_end(data, start, match[0])):
                yield start, end
                done = end

    def _find_token_end(self, data: bytes, start: int, longest_prefix: bytes) -> int:
        """Return the position at which the token ends; 0 where no token begins."""
        free = start == 0 or _ALPHANUMERIC.match(data, start - 1) is None
        for prefix, token, body in self._kinds[longest_prefix]:
            if free or token.needs_no_boundary:
                match = body.match(data, start + len(prefix), start + _LONGEST)
                if match is not None and is_generated_token(match[0][:JUDGED], token):
                    tail = None if token.whole else _TAIL.match(data, match.end())
                    return match.end() if tail is None else tail.end()
        return 0


def is_generated_token(body: bytes, token: TokenKind) -> bool:
    """Return whether a token's body is generated, neither an example in documentation nor the name of a branch."""
    if token.digits and not has_digit(body) and not looks_random(body):
        return False
    return len(set(body)) >= _FEW and SHAM.search(body) is None and not is_joined_words(body)


def _is_mixed_and_random(value: bytes) -> bool:
    return count_character_classes(value) >= 3 and looks_random(value)


_JUDGES: Mapping[str, Callable[[bytes], bool]] = {
    "varied": lambda value: len(set(value)) > 7,
    "random": _is_mixed_and_random,
    "bot": lambda value: _is_mixed_and_random(value.partition(b":")[2]),
}


class FormPlugin(SpanPlugin):
    """Finds tokens by patterns that need no prefix, secret halves of Amazon key pairs, and Azure account keys."""

    secret_type = "Token of a known form"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        self._forms = [
            (
                form["clue"].encode(),
                compile_latin_pattern(form["pattern"].encode()),
                re.compile(f"[{form['alphabet']}]".encode()),
                _JUDGES[form["judge"]],
            )
            for form in read_tables("patterns.toml")["forms"]
        ]
        self._amazon_secrets = compile_latin_pattern(rb"[A-Za-z0-9/+]{40}")
        self._amazon = compile_latin_pattern(_AMAZON, any_case=True)
        self._azure = compile_latin_pattern(_AZURE, any_case=True)
        self._azure_keys = compile_latin_pattern(rb"[A-Za-z0-9+/]{86}==")

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges that match a pattern and adjoin no further character of its alphabet."""
        for clue, pattern, beside, holds in self._forms:
            for match in pattern.finditer(data) if clue in data else ():
                if stands_alone(data, match.span(), beside) and holds(match[0]):
                    yield match.span()
        for match in self._amazon_secrets.finditer(data) if self._amazon.search(data) else ():
            value = match[0]
            judged = stands_alone(data, match.span(), _AMAZON_CHARACTER) and _is_mixed_and_random(value)
            if judged and not is_hex(value) and value.count(b"/") < 6 and not SHAM.search(value):
                yield match.span()
        for match in self._azure_keys.finditer(data) if self._azure.search(data) else ():
            if stands_alone(data, match.span(), _BASE64_CHARACTER) and _is_mixed_and_random(match[0]):
                yield match.span()


def stands_alone(data: bytes, span: ByteRange, beside: "re.Pattern[bytes]") -> bool:
    """Return whether no further character of the value's alphabet adjoins the value."""
    start, end = span
    if start and data[start - 1 : start] == b"+" and data[max(start - 2, 0) : start - 1] in b"\n":
        return beside.match(data, end) is None  # A plus sign at the start of a line comes from a diff.
    if start and beside.match(data, start - 1):
        return False
    if start and _ALPHANUMERIC.match(data, start) and _ALPHANUMERIC.match(data, start - 1):
        return False
    return beside.match(data, end) is None


class BlockPlugin(SpanPlugin):
    """Finds private keys as whole blocks."""

    secret_type = "Private key block"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        self._begin = compile_latin_pattern(_BEGIN, any_case=True)
        self._end = compile_latin_pattern(_END, any_case=True)
        self._putty = compile_latin_pattern(_PUTTY)

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield each block from its begin mark to its end mark, or to the end of its key lines."""
        if b"---" in data:
            blocks = list(self._find_begun_blocks(data))
            yield from blocks
            done, ends = 0, {end for _, end in blocks}
            for match in self._end.finditer(data):
                if match.end() not in ends:  # Without a begin mark, the block is the key lines before the end mark.
                    start = _key_lines_start(data, match.start(), done)
                    if start < match.start():
                        yield start, match.end()
                done = match.end()
        done = 0
        for match in self._putty.finditer(data) if b"PuTTY" in data else ():
            if match.start() >= done:
                done = max(_key_lines_end(data, match.start(), _PUTTY_LINE), match.end())
                yield match.start(), done

    def _find_begun_blocks(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the blocks with a begin mark, including those without an end mark."""
        done = 0
        for match in self._begin.finditer(data):
            if match.start() >= done and (end := self._find_block_end(data, match.end())):
                yield match.start(), end
                done = end

    def _find_block_end(self, data: bytes, body: int) -> int:
        """Return the end of the block with a body that begins at a position; 0 if the block contains no key."""
        stop = min(len(data), body + _LONGEST_BLOCK)
        other = _NEXT_BEGIN.search(data, body, stop)
        limit = other.start() if other else stop
        mark = _ANY_END.search(data, body, limit)
        if mark is not None:
            whole = self._end.search(data, mark.start())
            end = whole.end() if whole is not None and whole.start() == mark.start() else mark.end()
        else:
            end = _key_lines_end(data, body, _LINE)
        return end if _BODY_RUN.search(data, body, end) else 0


_PUTTY_LINE = re.compile(
    rb"[ \t>|]*(?:PuTTY-User-Key-File-\d|Encryption|Comment|Public-Lines|Private-Lines|Private-MAC|Private-Hash"
    rb"|Key-Derivation|Argon2-[A-Za-z]+)\b[^\n]*(?:\n|\Z)|[ \t>|]*[A-Za-z0-9+/=]+[ \t\r]*(?:\n|\Z)"
)


def _key_lines_end(data: bytes, start: int, line: "re.Pattern[bytes]") -> int:
    """Return the end of the lines that may belong to a key; an empty line belongs to it if more of the key follows."""
    at = end = start
    while at < len(data) and at - start < _LONGEST_BLOCK:
        match = line.match(data, at)
        cut = match is not None and match.end() == len(data) and b" " not in match[0]
        if match is None or match.end() == at or (_is_prose(match[0]) and not cut):
            break
        at = match.end()
        if match[0].strip():
            end = at - (len(match[0]) - len(match[0].rstrip()))
    return end


def _key_lines_start(data: bytes, end: int, earliest: int) -> int:
    """Return the start of the key lines before an end mark without a begin mark."""
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
    """Return whether a line consists of words and is no part of a key."""
    text = line.strip(b" \t>|+#*\"'`;,./\\\r\n")
    return _PROSE.fullmatch(text) is not None and _HEXES.fullmatch(text) is None

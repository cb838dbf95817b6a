"""Tokens of providers: those with a prefix, and those that are known by their form, such as JWTs."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import re2  # type: ignore[import-untyped]  # it comes without types

from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.rule_files import pattern_tables, token_rows
from maestro.scanner.shapes import LOOKED_AT, classes, has_digit, is_hex, is_joined, is_random

_WORD = re.compile(rb"[A-Za-z0-9]")
_TAIL = re.compile(rb"[A-Za-z0-9_\-]*={0,2}")
SHAM = re.compile(rb"(?i)x{5}|example|placeholder|your[_-]|(?:test|fake|dummy|sample)[_-]?(?:key|token)|redacted")
_LONGEST = 2048
"""Bytes that are read of a token before it is judged, so that a text of prefixes alone costs no more than others."""
_FEW = 6
"""A token with fewer different characters than this is a placeholder."""

_AMAZON = rb"\baws|amazon|\bs3\b|\x01{10}|a[ksbc][ic]a[a-z0-9]{16}"
_AZURE = rb"azure|account|storage|cosmos|windows\.net|service ?bus|event ?hub"
_BASE64 = re.compile(rb"[A-Za-z0-9+/\-]")
_ALNUM = re.compile(rb"[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Token:
    """One kind of token: how it begins, and what follows.

    ``body`` is a pattern without choices that overlap: it reads on, character by character, and never back. ``whole``
    tokens have one length and nothing glued to them; of the others what is glued on is taken too. ``glued`` ones may
    follow a letter or a digit, because nothing else has their prefix.
    """

    prefix: str
    body: str
    whole: bool = False
    digits: bool = False

    @property
    def glued(self) -> bool:
        """Say whether the prefix alone tells it from anything else."""
        return not self.whole and len(self.prefix) > 3 and self.prefix[-1] in "_-."


def token_table() -> Sequence[Token]:
    """Return the kinds of tokens that are known."""
    return [Token(row[0], row[1], "whole" in row, "digits" in row) for row in token_rows()]


def latin_pattern(pattern: bytes, *, any_case: bool = False) -> "re2._Regexp":
    """Return a pattern for folded text; its search takes time linear in the length of the text."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = not any_case
    options.log_errors = False
    return re2.compile(pattern, options)


class TokenPlugin(SpanPlugin):
    """Finds the tokens of a table."""

    secret_type = "Token of a provider"  # noqa: S105 - a name

    def __init__(self, table: Iterable[Token]) -> None:
        """Prepare to look for every prefix of the table at once."""
        kinds: dict[bytes, list[tuple[Token, re.Pattern[bytes]]]] = {}
        for token in table:
            end = r"(?![A-Za-z0-9])" if token.whole else ""
            kinds.setdefault(token.prefix.encode(), []).append((token, re.compile((token.body + end).encode())))
        prefixes = sorted(kinds, key=len, reverse=True)
        self._any = latin_pattern(b"|".join(map(re2.escape, prefixes)))
        # What begins with a long prefix may also be a token of a shorter one.
        self._kinds = {
            prefix: [(shorter, *kind) for shorter in prefixes if prefix.startswith(shorter) for kind in kinds[shorter]]
            for prefix in prefixes
        }

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return each token with what is glued to it."""
        over = 0
        for match in self._any.finditer(data):
            start = match.start()
            if start >= over:
                end = self._end(data, start, match[0])
                if end:
                    yield start, end
                    over = end

    def _end(self, data: bytes, start: int, found: bytes) -> int:
        """Return where the token that begins here ends; 0 where there is none."""
        free = start == 0 or _WORD.match(data, start - 1) is None
        for prefix, token, body in self._kinds[found]:
            if free or token.glued:
                match = body.match(data, start + len(prefix), start + _LONGEST)
                if match is not None and _is_drawn(match[0][:LOOKED_AT], token):
                    return match.end() if token.whole else _end_of(_TAIL.match(data, match.end()), match.end())
        return 0


def _end_of(match: "re.Match[bytes] | None", otherwise: int) -> int:
    return otherwise if match is None else match.end()


def _is_drawn(body: bytes, token: Token) -> bool:
    """Say whether a machine drew it: it is no example of documentation and no name, such as of a branch."""
    if token.digits and not has_digit(body) and not is_random(body):
        return False
    return len(set(body)) >= _FEW and SHAM.search(body) is None and not is_joined(body)


def _varied(value: bytes) -> bool:
    return len(set(value)) > 7


def _mixed(value: bytes) -> bool:
    """Say whether small letters, capitals and digits are in it."""
    return classes(value) >= 3 and is_random(value)


def _bot(value: bytes) -> bool:
    return _mixed(value.partition(b":")[2])


_JUDGES: Mapping[str, Callable[[bytes], bool]] = {"varied": _varied, "random": _mixed, "bot": _bot}


class FormPlugin(SpanPlugin):
    """Finds what has one of the forms, and the secret halves of Amazon's pairs of keys."""

    secret_type = "Token of a known form"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare the forms."""
        self._forms = [
            (
                form["clue"].encode(),
                latin_pattern(form["pattern"].encode()),
                re.compile(f"[{form['alphabet']}]".encode()),
                _JUDGES[form["judge"]],
            )
            for form in pattern_tables()["forms"]
        ]
        self._halves = latin_pattern(rb"[A-Za-z0-9/+]{40}")
        self._amazon = latin_pattern(_AMAZON, any_case=True)
        self._azure = latin_pattern(_AZURE, any_case=True)
        self._accounts = latin_pattern(rb"[A-Za-z0-9+/]{86}==")

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return what has a form and nothing of its alphabet beside it."""
        for clue, pattern, beside, holds in self._forms:
            for match in pattern.finditer(data) if clue in data else ():
                if _alone(data, match.span(), beside) and holds(match[0]):
                    yield match.span()
        if self._amazon.search(data):
            yield from self._of_amazon(data)
        if self._azure.search(data):
            for match in self._accounts.finditer(data):
                if _alone(data, match.span(), _BASE64) and _mixed(match[0]):
                    yield match.span()

    def _of_amazon(self, data: bytes) -> Iterator[ByteRange]:
        beside = re.compile(rb"[A-Za-z0-9/+]")
        for match in self._halves.finditer(data):
            value = match[0]
            if (
                _alone(data, match.span(), beside)
                and _mixed(value)
                and not is_hex(value)
                and value.count(b"/") < 6
                and not SHAM.search(value)
            ):
                yield match.span()


def _alone(data: bytes, place: ByteRange, beside: "re.Pattern[bytes]") -> bool:
    start, end = place
    if start and data[start - 1 : start] == b"+" and data[max(start - 2, 0) : start - 1] in b"\n":
        return beside.match(data, end) is None  # the sign of a line that a diff adds
    if start and (beside.match(data, start - 1) or (_ALNUM.match(data, start) and _ALNUM.match(data, start - 1))):
        return False
    return beside.match(data, end) is None

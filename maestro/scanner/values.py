"""Finds where the value after a name begins and ends, and judges its form: words, random characters, a placeholder."""

import re
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase

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

JUDGED = 80
"""The number of bytes of a value that are judged: more than enough to recognise a secret."""

_LETTERS = re.compile(rb"[A-Za-z]+")
_CASES = re.compile(rb"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+")
_VOWELS = re.compile(rb"[aeiouy]")
# For each letter from a to z, the letters that follow it in words: these are 98 % of the pairs in English and code.
_FOLLOWERS = """
abcdfgiklmnprstuvwxyz abcdefijlmoprstuy acdefhiklmnoprstuvy abcdefgilmnoprstuvy abcdefghiklmnopqrstuvwxy
acdefilnorstuy acefghilmnoprstu adeilmnorstuy abcdefgklmnoprstvxz aeosu aegilnostuw abcdefiklmnopstuvy
abcdeilmopstuy abcdefghijklmnoprstuvy abcdefgiklmnoprstuvwxy acdefhiklmnoprstuy u abcdefgiklmnoprstuvwy
acdefghiklmnopqrstuvwy abcdefhilmnoprstuvwyz abcdefgilmnoprst aeio adehilnorst acefipt abcdefilmnopst aeio
"""


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


def find_value(data: bytes, position: int, *, whole_line: bool = False) -> ValueSpan | None:
    """Return the value that begins at a position; with ``whole_line`` only the end of the line ends it."""
    in_form = (
        data[position - 1 : position] == b"="
    )  # "&" ends a value only after "=", because a password may contain "&"
    position = _match_end(_WRAPPED, data, _match_end(_LEAD, data, position))
    bold = data[position - 1 : position] == b"*"
    quote = _QUOTE.match(data, position)
    if quote is not None:
        return _quoted_value(data, quote[1], quote.end())
    run = _RUN.match(data, position)
    if run is None:
        return None
    end = run.end()
    if not whole_line:
        cuts = (pattern.search(data, position, end) for pattern in ((_CUT, _NEXT_FIELD) if in_form else (_CUT,)))
        end = min((cut.start() for cut in cuts if cut), default=end)
        while end > position and _ends_with_punctuation(data[position:end]):
            end -= 1
        end -= len(data[position:end]) - len(data[position:end].rstrip(b"*")) if bold else 0
    return ValueSpan(position, end, False, data) if end > position else None


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


def build_letter_pairs(followers: str) -> frozenset[tuple[int, int]]:
    rows = zip(ascii_lowercase, followers.split(), strict=True)
    return frozenset((ord(first), ord(second)) for first, row in rows for second in row)


_PAIRS = build_letter_pairs(_FOLLOWERS)
_LOWER = re.compile(rb"[a-z]")
_UPPER = re.compile(rb"[A-Z]")
_DIGIT = re.compile(rb"[0-9]")
_SIGN = re.compile(rb"[!@#$%^&*+=?~|\\]")
_TURN = re.compile(rb"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_SEPARATOR = re.compile(rb"[_\-. :/]")
_CASE_TURN = re.compile(rb"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[a-z])")
_UUID = re.compile(rb"\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?")
_JOINTS = re.compile(rb"[_\-./:#]+")
_HEX = re.compile(rb"(?:[0-9a-f]{16,}|[0-9A-F]{16,})")

_PLACEHOLDER = re.compile(
    rb"(?i)(?:[x*.\-_#?\xff\x01\x20]|\\[nrt])*|[$%&!]?[{(<\[%].*|\$[A-Za-z_][A-Za-z_0-9]*|%[A-Z_]+%|%[sdr]|@[A-Z_]+@"
    rb"|.*(?:example|placeholder|redacted|xxxx|\*\*\*\*|changeme|change[_-]me|insert[_-]|dummy|your[_-]|<[a-z_ -]+>).*"
    rb"|.{0,12}\.\.\..{0,6}|&#?\w+;.*"
    rb"|(?:your|my|the|some|enter|new|old|a)?[_-]?"
    rb"(?:strong|real|own|secure|super|actual|db|database|user|admin|client|api|app|access|auth|secret|private|bearer)?"
    rb"[_-]?(?:pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|access|secret|private)?[_-]?key|credentials?)"
    rb"(?:[_-]?here|[_-]?goes[_-]?here|[_-]?value)?"
)
_NO_VALUE = re.compile(
    rb"(?i)(?:none|null|nil|true|false|undefined|nan|empty|blank|unset|yes|no|on|off|n/?a|tbd|todo|required|optional"
    rb"|missing|invalid|incorrect|wrong|expired|unknown|default|string|str|text|bytes?|int(?:eger)?|number|bool(?:ean)?"
    rb"|object|array|list|dict|map|any|void|char|varchar|uuid|hidden|masked|secret|confidential|encrypted|hashed"
    rb"|plain(?:text)?|value|test|testing|field|input|label|name|username|user|email|admin|root|guest|basic|bearer"
    rb"|digest|oauth2?|jwt|csrf|saml|otp|totp|hmac|api|apikey|hello|world|localhost|stdin|prompt|ask|env|file|vault"
    rb"|keyring|keychain|manager|reset|forgot|change|update|confirm|show|hide|save|cancel|submit|login|logout|signin"
    rb"|register|remember|strong|weak|short|long|min|max|length|error|failed|success|ok|valid|verified|granted|denied"
    rb"|revoked|rotated|leaked|here|below|above|attached|it|this|that|the|same|different|not|is|are|was|has|must|should"
    rb"|will|can|may|for|from|with|and|or|but|stored|sent|changed|set|kept|needed|used|created|deleted|updated|lost)"
)
_HARMLESS = re.compile(
    rb"(?i)\d{4}-\d\d?-\d\d?(?:[T ].*)?|\d{1,2}:\d\d.*|v?\d+(?:\.\d+)+(?:[-+][\w.]+){0,2}"
    rb"|\d+(?:\.\d+)?(?:[kmgt]i?b?|[smhdwy]|ms|px|em|rem|chars?|bytes?|bits?|x|%|st|nd|rd|th|fa)|\d+-\d+|0x[0-9a-f]{40}|(?:sha\d+|md5|blake\w+)[:\-].*"
    rb"|arn:.*|[a-z][a-z0-9+.\-]*://.*|[a-z]:\\.*|(?:file|env|vault|ssm|op|secret|keyring|data):[^\s]*"
    rb"|[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)+"
)


def is_placeholder(value: bytes) -> bool:
    """Return whether a value is a placeholder for a secret: a variable, stars, a word of documentation."""
    return _PLACEHOLDER.fullmatch(value) is not None or _NO_VALUE.fullmatch(value.rstrip(b".!?,;:")) is not None


def is_known_harmless(value: bytes) -> bool:
    """Return whether a value is a date, a version, a number with a unit, a labelled digest, an address or a path."""
    if _HARMLESS.fullmatch(value) or value.startswith((b"~/", b"./", b"../")):
        return True
    return value.count(b"/") >= (1 if value.startswith(b"/") else 2) and share_of_words(value) > 0.5


def is_uuid(value: bytes) -> bool:
    return _UUID.fullmatch(value) is not None


def is_hex(value: bytes) -> bool:
    """Return whether a value is 16 or more hexadecimal digits in one case."""
    return _HEX.fullmatch(value) is not None


def count_character_classes(value: bytes) -> int:
    """Return how many of four character classes a value contains: lower case, upper case, digits, other signs."""
    return sum(pattern.search(value) is not None for pattern in (_LOWER, _UPPER, _DIGIT, _SIGN))


def has_digit(value: bytes) -> bool:
    return _DIGIT.search(value) is not None


def has_sign(value: bytes) -> bool:
    """Return whether a value contains a sign that no identifier, path or host name has."""
    return _SIGN.search(value) is not None


def has_letter(value: bytes) -> bool:
    return _LETTERS.search(value) is not None


def share_of_words(value: bytes) -> float:
    """Return the fraction of a value that reads like words, from 0 to 1."""
    value = value[:JUDGED]
    letters = sum(len(part) for run in _LETTERS.findall(value) for part in _CASES.findall(run) if _is_word(part))
    punctuation = sum(value.count(sign) for sign in b"_-./: ")
    return letters / max(len(value) - punctuation, 1)


def _is_word(part: bytes) -> bool:
    """Return whether a run of letters may consist of words: by its vowels and its pairs of letters."""
    size, small = len(part), part.lower()
    if size < 3 or not 0.15 * size <= len(_VOWELS.findall(small)) <= 0.75 * size:
        return False
    return sum(pair not in _PAIRS for pair in pairwise(small)) <= size // 7


def is_joined_words(value: bytes) -> bool:
    """Return whether a value consists of words and numbers joined by signs, like a branch or topic name."""
    parts = [part for part in _JOINTS.split(value) if len(part) > 3 and not part.isdigit()]
    if _JOINTS.search(value) is None or not all(part.isalpha() for part in parts):
        return False
    return sum(len(part) for part in parts if share_of_words(part) > 0.7) >= 0.6 * sum(map(len, parts))


def has_unusual_case_mix(value: bytes) -> bool:
    """Return whether a value mixes lower and upper case in an order that no words or names have."""
    if len(value) < 8 or not _LOWER.search(value) or not _UPPER.search(value):
        return False
    words = share_of_words(value)
    return words < 0.6 or (words < 0.8 and len(_CASE_TURN.findall(value)) >= len(value) / 3)


def looks_random(value: bytes) -> bool:
    """Return whether a value looks generated: letters and digits in no order, or letters that form no word.

    The thresholds separate 2,000 identifiers from 3,000 random values of each length and alphabet.
    """
    value = value[:JUDGED]
    size = len(value)
    if has_digit(value):
        kinds, turns = len(set(value)), len(_TURN.findall(value))
        return has_letter(value) and kinds > 5 and (turns >= max(3, size / 6) or share_of_words(value) < 0.6)
    if size < 12:
        return False
    words = 0.25 if _SEPARATOR.search(value) else 0.5
    return len(set(value)) > 7 and share_of_words(value) < words

"""Finds passwords, keys and tokens assigned to a name: in configuration, code, commands, sentences and tables."""

import re
from collections.abc import Iterator

from maestro.scanner.judgement import (
    NAME_STEMS,
    Kind,
    classify_secret_name,
    is_secret,
    is_secret_in_prose,
    looks_like_phrase,
    split_into_words,
)
from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.tokens import compile_latin_pattern
from maestro.scanner.values import ValueSpan, find_value, looks_random, whole_range

_CLOSE = rb"(?:\\?[\"'`]|[*_\]]){0,4}"
_GAP = rb"[ \t]{0,24}"
_SIGN = rb"(?::=|=>|->|\+=|\?=|={1,3}|!=|<<<|::?|\|)"

ASSIGNED = re.compile(
    _CLOSE
    + _GAP
    + rb"(?::[ \t]{0,2}[&'?]?[A-Za-z_][A-Za-z0-9_<>\[\].|? ]{0,32}(?:[ \t]{1,3}=(?![=>])|=(?=[ \t\"'`]))|"
    + _SIGN
    + rb")(?:[*_]{1,3}(?=[ \t]))?"
    + _GAP
)
DECLARED = re.compile(rb"[ \t]{1,4}(?:\*?[A-Za-z\[\]]{2,12}[ \t]{0,4}:?=|by[ \t]lazy[ \t]{0,2}\{)[ \t]{0,4}(?=[\"'`])")
ELEMENT = re.compile(rb"[\"']?(?:\s[^<>\n]{0,120})?>\s{0,4}(?:<!\[CDATA\[)?([^<\x01]{1,1024}?)\s{0,4}(?:\]\]>)?(?=<)")
PAIRED = re.compile(
    rb"(?i)\\?[\"'`]?(?:</[A-Za-z:]{1,20}>|(?:\s[^<>\n]{0,80})?>)?\s{0,4}[,{]?\s{0,40}(?:-\s)?"
    rb"(?:[a-z_]{1,20}[ \t]{0,8}[=:][^\n]{0,80}\n\s{0,20}){0,3}"
    rb"(?:<(?:value|string)>\s{0,4}(?=[^<])"
    rb"|\\?[\"']?(?:value|val|content|default|default_value|data|stringvalue|plaintext)\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4})"
)
PASSED = re.compile(
    rb"(?:\\?[\"'`]\s{0,4}\]?\s{0,2},\s{0,8}|\(\s{0,4})(?:(?:default|value|val)\s?=\s?)?(?=[bru]?\\?[\"'])"
)
OPTION = re.compile(rb"[ \t]{1,4}")
SQL = re.compile(rb"(?i)[ \t]{1,4}(?:by[ \t]{1,4})?(?=[\"'])")
SAID = re.compile(
    _CLOSE + rb"(?:[ \t][A-Za-z0-9 \t()'/,@.\-]{0,60}?)??"
    rb"(?:[ \t](?:is|was|are|to|as|equals?|ist|sind|lautet|lauten|est|sont|es|son|e|jest|je|zijn|ar|er|on"
    rb"|reads|will be|now)"
    rb"(?:[ \t](?:now|still|just|set to|currently))?(?:[ \t]{0,2}[:=]|(?=\s))|[ \t][:=]|[:=](?=\s)|:"
    rb"|[ \t]{1,2}(?:(?:for|of|on|at|in)[ \t][A-Za-z0-9_.\-]{1,30}|\([^()\n]{1,30}\))="
    rb"|[ \t]{0,2}(?:\xff{1,2}|-{1,2}>?|\xff>)[ \t])"
    rb"\s{0,4}"
    rb"(?:```[a-z]{0,12}\s)?(?:\r?\n){0,2}[ \t]{0,8}"
)
BELOW = re.compile(
    _CLOSE + rb"(?:[^\n:=]{0,40}[:=]|[ \t](?:below|follows|attached)\.?)?[ \t]{0,4}"
    rb"(?:\r?\n){1,3}(?:```[a-z]{0,12}\s{1,4})?[ \t>]{0,8}"
)
ALONE = re.compile(rb"[\"'`]{0,3}[ \t.]{0,4}(?:\r?\n|$)")
NEXT = re.compile(rb",?[ \t]{1,2}(?:[0-9][ \t])?")
PARTICLE = re.compile(rb"[ \t]{0,2}\xff{1,4}[ \t:=]{0,3}")
LINE_STARTS = re.compile(
    rb"(?:^|\n|\\n)[ \t>+]{0,8}(?:-[ \t])?(?:export[ \t]+|set[ \t]+|setx[ \t]+|\$env:|ENV[ \t]+|ARG[ \t]+"
    rb"|local[ \t]+|readonly[ \t]+)?$"
)
WALLET = re.compile(
    _CLOSE + rb"[ \t]{0,4}[A-Za-z() ]{0,30}(?:[:=]|is|\n)\s{0,8}[\"'`]{0,3}"
    rb"((?:(?:[0-9]{1,2}[.):]?\s)?[a-z]{3,10}[\s,]{1,3}){10,24}[a-z]{3,10})(?![a-z])"
)
SPACED = re.compile(
    rb"[a-z]{4}(?: [a-z]{4}){3}(?![ \-]?[A-Za-z0-9])|[a-z]{3,10}(?: [a-z]{3,10}){3,23}(?=[.!]?[ \t]*(?:\n|$))"
)
"""Several words without quotes: an application password, or a pass phrase up to the end of its line."""

PHRASE_NAME = re.compile(rb"(?i)[ \-_]{0,1}(?:recovery[ \-_]|backup[ \-_])?(?:phrase|words)\b")
"""The second part of a name such as "seed phrase" or "recovery words", which announces the words of a wallet."""

_LONGEST_NAME = 48
_NAME_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$"
_NAME_GOES_ON = re.compile(rb"[A-Za-z0-9_\-]{0,48}(?:\.[A-Za-z_][A-Za-z0-9_\-]{0,30}){0,2}")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PLAIN_WORD = re.compile(rb"(?:[a-z]{1,11}|[A-Z][a-z]{0,6})[.,;:!?)]{0,2}(?:\s|$)")
"""A short unquoted word, which is never taken for a secret in a sentence; most words after a name are of this form."""

_PROSE_FORMS = ((SAID, True), (BELOW, True), (PARTICLE, True), (NEXT, False))
_STATEMENT_FOLLOWS = re.compile(rb"[ \t]{1,2}(?:is|was)[ \t]|[ \t]{0,2}[:=][ \t]")
_TYPES = ("string", "str", "var", "let", "const", "val", "auto", "char", "final", "static", "def", "text", "varchar")
_UNRELATED = re.compile(
    rb"(?i)[.,;][ \t]+(?=\S+[ \t]*[:=])|[.;][ \t]"
    rb"|(?:^|[ \t\"'\-_.])(?:checksum|digest|etag|hash|sha[0-9]*|md5|crc[0-9a-z]*|cursor|ids?|codes?|commit|version"
    rb"|image|arn|colou?r|size|status|session|parent|key|token)[\"'`]{0,2}[ \t]{0,2}[:=]"
)
"""Text that separates a name from an unrelated value: a sentence ends, or a label begins."""
_VERBS = ("pass", "pwd", "auth", "keys", "tokens")
_PAIRS = rb"(?i)(?:value|val|content|default|data|plaintext)\\?[\"']?\s{0,4}(?:=>|[:=])|<(?:value|string)>"
"""A fast pre-check: every text in which ``PAIRED`` finds a value matches this pattern."""
_PORT_AND_PATH = re.compile(rb":[0-9]{1,5}/")
_RESOURCE = re.compile(
    rb"arn:[a-z-]{3,10}:[^\s\"']{0,100}$|::$|(?:projects|secrets|vaults?)/[^\s\"']{0,100}$|://[^\s\"'/?#&;,]{0,100}$"
)

_HEADS = (b"pass", b"pwd", b"secret", b"token", b"key", b"cred", b"pw")
_CELL_SEPARATORS = (b"|", b"\t", b",", b";")
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


class AssignmentPlugin(SpanPlugin):
    """Finds the values of names that announce a secret, such as ``db_password``."""

    secret_type = "Assigned secret"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        """Compile the pattern of the names to search for."""
        self._stems = compile_latin_pattern(NAME_STEMS, any_case=True)
        self._pairs = compile_latin_pattern(_PAIRS)

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of the values; each name is read once, even if it contains several word stems."""
        done = 0
        paired = self._pairs.search(data) is not None
        known: dict[tuple[bytes, bytes], tuple[list[str], Kind | None]] = {}
        for match in self._stems.finditer(data):
            if match.start() < done:
                continue
            start, done = expand_name(data, match.start(), match.end())
            name = (find_word_before(data, start), data[start:done])
            if name not in known:
                words = list_name_words(*name)
                known[name] = (words, classify_secret_name(words))
            words, kind = known[name]
            if kind is None or names_resource(data, (start, done), kind):
                continue
            value = _find_value(data, (start, done), (kind, words), paired=paired)
            if value is not None:
                yield value
                done = max(done, value[1])


def names_resource(data: bytes, name: ByteRange, kind: Kind) -> bool:
    """Return whether a name is part of the longer name of a cloud resource, an image, a type or a host."""
    start, end = name
    if data[end : end + 1] == b":" and b"." in data[start:end] and _PORT_AND_PATH.match(data, end):
        return True
    if kind is not Kind.PASSWORD and data[start - 1 : start] == b"/" and data[max(start - 2, 0) : start - 1].isalnum():
        return True
    before = data[max(0, start - 120) : start]
    return (b"/" in before or b":" in before) and _RESOURCE.search(before) is not None


def expand_name(data: bytes, start: int, end: int) -> ByteRange:
    """Return the range of the whole name around a word stem."""
    before = data[max(0, start - _LONGEST_NAME) : start]
    begin = start - (len(before) - len(before.rstrip(_NAME_SIGNS)))
    match = _NAME_GOES_ON.match(data, end)
    finish = end if match is None else match.end()
    phrase = PHRASE_NAME.match(data, finish)
    return begin, finish if phrase is None else phrase.end()


def find_word_before(data: bytes, start: int) -> bytes:
    """Return the word that stands before a name, as in "API key"; empty where there is none."""
    if data[start - 1 : start] not in (b" ", b"\t", b"-"):
        return b""
    before = data[max(0, start - 22) : start - 1]
    word = before[len(before.rstrip(_LETTERS)) :][-20:]
    return word if len(word) > 1 else b""


def list_name_words(word_before: bytes, name: bytes) -> list[str]:
    """Return the words of a name; a one-word name gets the word before it, unless that is a variable's type."""
    words, first = split_into_words(name), word_before.decode().lower()
    alone = not first or name[:1] in (b"-", b".") or first in _TYPES or b"_" in name
    return words if alone else [first, *words]


def _find_value(data: bytes, name: ByteRange, meaning: tuple[Kind, list[str]], *, paired: bool) -> ByteRange | None:
    """Return the range of the secret that belongs to a name, None if there is none."""
    kind, words = meaning
    if kind is Kind.PHRASE:
        wallet = WALLET.match(data, name[1])
        if wallet is not None and "passphrase" not in words:
            return wallet.span(1)
    tried: set[int] = set()
    assigned = _find_assigned(data, name, (kind, paired), tried)
    return assigned or _find_in_prose(data, name, (kind, words), tried)


def _find_assigned(data: bytes, name: ByteRange, context: tuple[Kind, bool], tried: set[int]) -> ByteRange | None:
    """Return the value that an assignment gives to a name; ``tried`` collects positions where no secret begins."""
    kind, paired = context
    if data[max(0, name[0] - 1) : name[0]] in (b"<", b":", b'"', b"'", b"-"):
        element = ELEMENT.match(data, name[1])
        if element is not None:
            content = ValueSpan(*element.span(1), True, data)
            return whole_range(content) if is_secret(kind, content, literal=True) else None
    for pattern in _value_patterns(data, name, kind, paired=paired):
        match = pattern.match(data, name[1])
        if match is not None and match.end() not in tried:
            tried.add(match.end())
            # The name begins its line, or follows a keyword of a shell or an .env file, such as ``export``.
            begins_line = LINE_STARTS.search(data, max(0, name[0] - 24), name[0]) is not None
            whole_line = pattern is ASSIGNED and match[0] == b"=" and begins_line
            value = _assigned_value(data, match.end(), kind, whole_line=whole_line)
            if value is None or _closes_earlier_quote(data, name, match.end(), value):
                continue
            if is_secret(kind, value, literal=whole_line or value.quoted):
                return whole_range(value)
    return None


def _assigned_value(data: bytes, at: int, kind: Kind, *, whole_line: bool) -> ValueSpan | None:
    """Return the value that begins at a position, or the several words that form a pass phrase."""
    spaced = SPACED.match(data, at) if kind in (Kind.PASSWORD, Kind.PHRASE) else None
    if spaced is not None and looks_like_phrase(spaced[0], kind):
        return ValueSpan(*spaced.span(), True, data)
    return find_value(data, at, whole_line=whole_line)


def _value_patterns(data: bytes, name: ByteRange, kind: Kind, *, paired: bool) -> Iterator["re.Pattern[bytes]"]:
    if paired:
        yield PAIRED
    yield from (PASSED, ASSIGNED, DECLARED)
    if data[name[0] : name[0] + 1] == b"-" and data[max(0, name[0] - 1) : name[0]] in b" \t\n\"'`":
        yield OPTION
    if kind is Kind.PASSWORD:
        yield SQL


def _find_in_prose(data: bytes, name: ByteRange, meaning: tuple[Kind, list[str]], tried: set[int]) -> ByteRange | None:
    """Return the value that a sentence gives to a name, as in "the password is ..."."""
    kind, words = meaning
    if not _is_noun_in_prose(data, name, words):
        return None
    for pattern, introduced in _PROSE_FORMS:
        match = pattern.match(data, name[1])
        if match is not None and match.end() not in tried:
            tried.add(match.end())
            if _PLAIN_WORD.match(data, match.end()) or _UNRELATED.search(data, name[1], match.end()):
                continue
            value = find_value(data, match.end())
            if value is None or (pattern is BELOW and not is_on_line_below(data, name, value)):
                continue
            if _closes_earlier_quote(data, name, match.end(), value):
                continue
            if is_secret_in_prose(kind, value, words, introduced=introduced):
                return whole_range(value)
    return None


def is_on_line_below(data: bytes, name: ByteRange, value: ValueSpan) -> bool:
    """Return whether a value is alone on the line below an unquoted name; ``KeyError: 'password'`` is quoted."""
    return ALONE.match(data, value.end) is not None and data[name[1] : name[1] + 1] not in (b"'", b'"')


def _is_noun_in_prose(data: bytes, name: ByteRange, words: list[str]) -> bool:
    """Return whether a sentence uses the name as a noun, not as a verb or as part of random text or Base64."""
    text = data[name[0] : name[1]]
    if words[-1] in _VERBS and len(split_into_words(text)) == 1 and _STATEMENT_FOLLOWS.match(data, name[1]) is None:
        return False
    return not looks_random(text) and data[max(0, name[0] - 1) : name[0]] not in (b"+", b"/", b"=")


def _closes_earlier_quote(data: bytes, name: ByteRange, at: int, value: ValueSpan) -> bool:
    """Return whether the quote before a value closes a quote that opened before the name, so that there is no value."""
    quote = data[value.start - 1 : value.start]
    if not value.quoted or len(quote) != 1 or quote not in b"\"'`" or quote in data[name[1] : at]:
        return False
    line = data.rfind(b"\n", max(0, name[0] - 512), name[0]) + 1
    return data.count(quote, line, name[0]) % 2 == 1


class TablePlugin(SpanPlugin):
    """Finds secrets in table columns named like "password", in Markdown, CSV, spreadsheet text and SQL inserts."""

    secret_type = "Secret in a table"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        self._insert = compile_latin_pattern(_INSERT)

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of the cells that contain a secret."""
        small = data.lower()
        if any(head in small for head in _HEADS):
            if b"into" in small:
                yield from self._find_inserted(data)
            if b"\n" in data:
                yield from _find_below_heads(data)

    def _find_inserted(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the secrets among the values of SQL inserts."""
        done = 0
        for match in self._insert.finditer(data):
            if match.start() >= done:
                kinds = [classify_secret_name(split_into_words(name)) for name in match[1].split(b",")]
                done = match.end()
                for _ in range(_MOST_ROWS if any(kinds) else 0):
                    ranges, done = _read_row(data, done, kinds)
                    yield from ranges
                    more = _NEXT_ROW.match(data, done)
                    if more is None:
                        break
                    done = more.end()


def _read_row(data: bytes, at: int, kinds: list[Kind | None]) -> tuple[list[ByteRange], int]:
    """Return the secrets of the row of values that begins at a position, and the position at which the row ends."""
    ranges = []
    for kind in kinds:
        cell = _CELL.match(data, at)
        if cell is None:
            break
        at, group = cell.end(), next((number for number in (1, 2) if cell[number]), 0)
        if kind is not None and group and is_secret(kind, ValueSpan(*cell.span(group), True, data), literal=True):
            ranges.append(cell.span(group))
        if cell[4] == b")":
            break
    return ranges, at


def _find_below_heads(data: bytes) -> Iterator[ByteRange]:
    """Yield the secrets in the rows below each table head with a secret column."""
    at = 0
    columns: list[tuple[bytes, int, Kind]] = []
    rows = separators = 0
    for line in data.splitlines(keepends=True):
        head = _secret_columns(line)
        if head:
            columns, rows = head, 0
            separators = line.count(head[0][0])
        elif columns and rows < _MOST_ROWS and line.count(columns[0][0]) == separators:
            rows += 1
            yield from _find_in_cells(data, at, line, columns)
        else:
            columns = []
        at += len(line)


def _secret_columns(line: bytes) -> list[tuple[bytes, int, Kind]]:
    """Return separator, column index and kind of secret of each secret column; empty if the line is no table head."""
    if len(line) > 1000:
        return []
    for separator in _CELL_SEPARATORS:
        cells = [cell.strip(_TRIM) for cell in line.split(separator)]
        if len(cells) > 1 and all(not cell or _NAME.fullmatch(cell) for cell in cells):
            kinds = enumerate(classify_secret_name(split_into_words(cell)) for cell in cells)
            return [(separator, column, kind) for column, kind in kinds if kind is not None]
    return []


def _find_in_cells(data: bytes, at: int, line: bytes, columns: list[tuple[bytes, int, Kind]]) -> Iterator[ByteRange]:
    cells = line.split(columns[0][0])
    for separator, column, kind in columns:
        cell = cells[column].rstrip(b"\n")
        start = at + sum(len(before) + len(separator) for before in cells[:column])
        start += len(cell) - len(cell.lstrip(_TRIM))
        value = ValueSpan(start, start + len(cell.strip(_TRIM)), True, data)
        if value.start < value.end and is_secret(kind, value, literal=True):
            yield value.start, value.end

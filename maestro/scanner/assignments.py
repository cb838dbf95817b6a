"""Passwords, keys and tokens that are given to a name, in configuration, code, commands and sentences."""

import re
from collections.abc import Iterator

from maestro.scanner.judgement import is_secret, is_secret_in_prose
from maestro.scanner.keywords import Kind, kind_of, stems, words_of
from maestro.scanner.plugin import Place, SpanPlugin
from maestro.scanner.values import Found, value_at

_LONGEST_NAME = 48
_NAME_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$"
_NAME_GOES_ON = re.compile(rb"[A-Za-z0-9_\-]{0,48}(?:\.[A-Za-z_][A-Za-z0-9_\-]{0,30}){0,2}")
_WORD_BEFORE = re.compile(rb"([A-Za-z]{2,20})[ \t\-]$")

_CLOSE = rb"(?:\\?[\"'`]|[*_\])}]){0,4}"
_GAP = rb"[ \t]{0,24}"
_SIGN = rb"(?::=|=>|->|\+=|\?=|={1,3}|!=|::?|\|)"

_ASSIGNED = re.compile(
    _CLOSE
    + _GAP
    + rb"(?::[ \t]{0,2}[&'?]?[A-Za-z_][A-Za-z0-9_<>\[\].|? ]{0,32}[ \t]{0,3}=(?![=>])|"
    + _SIGN
    + rb")"
    + _GAP
)
_DECLARED = re.compile(rb"[ \t]{1,4}\*?[A-Za-z\[\]]{2,12}[ \t]{0,4}:?=[ \t]{0,4}(?=[\"'`])")
_ELEMENT = re.compile(rb"(?:\s[^<>\n]{0,120})?>\s{0,4}(?:<!\[CDATA\[)?([^<\x01]{1,1024}?)\s{0,4}(?:\]\]>)?(?=<)")
_PAIRED = re.compile(
    rb"(?i)\\?[\"'`]?(?:</[A-Za-z:]{1,20}>)?\s{0,4},?\s{0,40}(?:-\s)?(?:<(?:value|string)>\s{0,4}(?=[^<])"
    rb"|\\?[\"']?(?:value|val|content|default|default_value|data|stringvalue|plaintext)\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4})"
)
_PASSED = re.compile(rb"(?:\\?[\"'`]\s{0,4}\]?\s{0,2},\s{0,8}|\(\s{0,4})(?:[A-Za-z_]{1,20}\s?=\s?)?(?=[bru]?\\?[\"'`])")
_OPTION = re.compile(rb"[ \t]{1,4}")
_SQL = re.compile(rb"(?i)[ \t]{1,4}(?:by[ \t]{1,4})?(?=[\"'])")
_ENVIRONMENT = re.compile(rb"[ \t]{1,4}(?=[^\s=:])")
_SAID = re.compile(
    _CLOSE + rb"(?:[ \t][A-Za-z0-9 \t()'/,@._\-]{0,60}?)?"
    rb"(?:[ \t](?:is|was|are|to|as|equals?|ist|est|es|e|reads|will be|now)"
    rb"(?:[ \t](?:now|still|just|set to|currently))?(?:[ \t]{0,2}[:=]|(?=\s))|[:=]"
    rb"|[ \t]{0,2}(?:\xff{1,2}|-{1,2}>?|\xff>)[ \t])"
    rb"\s{0,4}"
    rb"(?:```[a-z]{0,12}\s)?(?:\r?\n){0,2}[ \t]{0,8}"
)
_BELOW = re.compile(
    _CLOSE + rb"(?:[^\n:=]{0,40}[:=]|[ \t](?:below|follows|attached)\.?)?[ \t]{0,4}"
    rb"(?:\r?\n){1,3}(?:```[a-z]{0,12}\s{1,4})?[ \t>]{0,8}"
)
_ALONE = re.compile(rb"[\"'`]{0,3}[ \t.]{0,4}(?:\r?\n|$)")
_NEXT = re.compile(rb"[ \t]{1,2}|\xff{1,2}")
_LINE_STARTS = re.compile(
    rb"(?:^|\n|\\n)[ \t>+]{0,8}(?:-[ \t])?(?:export[ \t]+|set[ \t]+|setx[ \t]+|\$env:|ENV[ \t]+|ARG[ \t]+"
    rb"|local[ \t]+|readonly[ \t]+)?$"
)
_WORDS_AHEAD = re.compile(
    _CLOSE + rb"[ \t]{0,4}(?:[A-Za-z() ]{0,30})(?:[:=]|is|\n)\s{0,8}[\"'`]{0,3}"
    rb"((?:(?:[0-9]{1,2}[.):]?\s)?[a-z]{3,10}[\s,]{1,3}){2,24}[a-z]{3,10})(?![a-z])"
)
_VERBS = ("pass", "pwd", "auth", "keys", "tokens")
_RESOURCE = re.compile(rb"arn:[a-z-]{3,10}:[^\s\"']{0,100}$|::$|(?:projects|secrets|vaults?)/[^\s\"']{0,100}$")


class AssignmentPlugin(SpanPlugin):
    """Finds the values of names that mean a secret."""

    secret_type = "Assigned secret"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare to look for every name."""
        self._stems = stems()

    def places(self, data: bytes) -> Iterator[Place]:
        """Return the values alone; a name is read once, whatever part of it was found."""
        over = 0
        for match in self._stems.finditer(data):  # type: ignore[attr-defined]
            if match.start() < over:
                continue
            start, over = _name_around(data, match.start(), match.end())
            words = _words(data, start, over)
            kind = kind_of(words)
            if kind is None or _RESOURCE.search(data, max(0, start - 120), start):
                continue
            found = _found(data, (start, over), kind, words)
            if found is not None:
                yield found
                over = max(over, found[1])


def _name_around(data: bytes, start: int, end: int) -> Place:
    before = data[max(0, start - _LONGEST_NAME) : start]
    begin = start - (len(before) - len(before.rstrip(_NAME_SIGNS)))
    match = _NAME_GOES_ON.match(data, end)
    return begin, end if match is None else match.end()


def _words(data: bytes, start: int, end: int) -> list[str]:
    """Return the words of a name, and the one that stands before it, as in "API key"."""
    before = _WORD_BEFORE.search(data, max(0, start - 24), start)
    words = words_of(data[start:end])
    return [before[1].decode().lower(), *words] if before and data[start : start + 1] not in b"-." else words


def _found(data: bytes, name: Place, kind: Kind, words: list[str]) -> Place | None:
    if kind is Kind.PHRASE:
        ahead = _WORDS_AHEAD.match(data, name[1])
        if ahead is not None and _is_wallet(ahead[1], words):
            return ahead.span(1)
    return _assigned(data, name, kind) or _told(data, name, kind, words)


def _is_wallet(value: bytes, words: list[str]) -> bool:
    return len(re.findall(rb"[a-z]+", value)) >= 11 and "passphrase" not in words


def _assigned(data: bytes, name: Place, kind: Kind) -> Place | None:
    """Return the value that an assignment gives to a name."""
    element = _ELEMENT.match(data, name[1])
    if element is not None and data[max(0, name[0] - 1) : name[0]] in (b"<", b":", b'"', b"'", b"-"):
        found = Found(*element.span(1), True, data)
        return _place(found) if is_secret(kind, found, literal=True) else None
    for pattern in _patterns(data, name, kind):
        match = pattern.match(data, name[1])
        if match is not None:
            whole = (
                pattern is _ASSIGNED
                and match[0] == b"="
                and _LINE_STARTS.search(data, max(0, name[0] - 24), name[0]) is not None
            )
            value = value_at(data, match.end(), whole_line=whole)
            if value is None or _closes(data, name, match.end(), value):
                continue
            if is_secret(kind, value, literal=whole or value.quoted):
                return _place(value)
    return None


def _patterns(data: bytes, name: Place, kind: Kind) -> Iterator["re.Pattern[bytes]"]:
    """Return the ways in which a name of this form may be given a value."""
    yield from (_PAIRED, _PASSED, _ASSIGNED, _DECLARED)
    if data[name[0] : name[0] + 1] == b"-" and data[max(0, name[0] - 1) : name[0]] in b" \t\n\"'`":
        yield _OPTION
    if kind is Kind.PASSWORD:
        yield _SQL


def _told(data: bytes, name: Place, kind: Kind, words: list[str]) -> Place | None:
    """Return the value that a sentence gives to a name."""
    if words[-1] in _VERBS and len(words_of(data[name[0] : name[1]])) == 1:
        return None
    for pattern, said in ((_SAID, True), (_BELOW, True), (_NEXT, False)):
        match = pattern.match(data, name[1])
        if match is not None:
            value = value_at(data, match.end())
            if value is None or (pattern is _BELOW and _ALONE.match(data, value.end) is None):
                continue
            if is_secret_in_prose(kind, value, words, said=said) and not _closes(data, name, match.end(), value):
                return _place(value)
    return None


def _closes(data: bytes, name: Place, at: int, value: Found) -> bool:
    """Say whether the quote before a value closes one that opened before the name: then there is no value."""
    quote = data[value.start - 1 : value.start]
    if not value.quoted or len(quote) != 1 or quote not in b"\"'`" or quote in data[name[1] : at]:
        return False
    line = data.rfind(b"\n", max(0, name[0] - 512), name[0]) + 1
    return data.count(quote, line, name[0]) % 2 == 1


def _place(found: Found) -> Place:
    return found.start, found.end

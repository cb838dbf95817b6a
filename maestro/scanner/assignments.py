"""Passwords, keys and tokens that are given to a name, in configuration, code, commands and sentences."""

import re
from collections.abc import Iterator

from maestro.scanner.grammar import (
    ALONE,
    ASSIGNED,
    BELOW,
    DECLARED,
    ELEMENT,
    LINE_STARTS,
    NEXT,
    OPTION,
    PAIRED,
    PARTICLE,
    PASSED,
    PHRASE_NAME,
    SAID,
    SPACED,
    SQL,
    WALLET,
)
from maestro.scanner.judgement import is_phrase, is_secret, is_secret_in_prose
from maestro.scanner.keywords import Kind, kind_of, stems, words_of
from maestro.scanner.plugin import Place, SpanPlugin
from maestro.scanner.shapes import is_random
from maestro.scanner.values import Found, value_at, whole

_LONGEST_NAME = 48
_NAME_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$"
_NAME_GOES_ON = re.compile(rb"[A-Za-z0-9_\-]{0,48}(?:\.[A-Za-z_][A-Za-z0-9_\-]{0,30}){0,2}")
_WORD_BEFORE = re.compile(rb"([A-Za-z]{2,20})[ \t\-]$")

_WAYS_TO_SAY = ((SAID, True), (BELOW, True), (PARTICLE, True), (NEXT, False))
_SAID_AT_ONCE = re.compile(rb"[ \t]{1,2}(?:is|was)[ \t]|[ \t]{0,2}[:=][ \t]")
_TYPES = ("string", "str", "var", "let", "const", "val", "auto", "char", "final", "static", "def", "text", "varchar")
_VERBS = ("pass", "pwd", "auth", "keys", "tokens")
_RESOURCE = re.compile(
    rb"arn:[a-z-]{3,10}:[^\s\"']{0,100}$|::$|(?:projects|secrets|vaults?)/[^\s\"']{0,100}$|://[^\s\"'/?#&;,]{0,100}$"
)


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
            if kind is None or _is_resource(data, start, kind):
                continue
            found = _found(data, (start, over), kind, words)
            if found is not None:
                yield found
                over = max(over, found[1])


def _is_resource(data: bytes, start: int, kind: Kind) -> bool:
    """Say whether a name is part of a longer one: of a resource in a cloud, of an image, of a type."""
    if kind is not Kind.PASSWORD and data[start - 1 : start] == b"/" and data[max(start - 2, 0) : start - 1].isalnum():
        return True
    return _RESOURCE.search(data, max(0, start - 120), start) is not None


def _name_around(data: bytes, start: int, end: int) -> Place:
    before = data[max(0, start - _LONGEST_NAME) : start]
    begin = start - (len(before) - len(before.rstrip(_NAME_SIGNS)))
    match = _NAME_GOES_ON.match(data, end)
    finish = end if match is None else match.end()
    phrase = PHRASE_NAME.match(data, finish)
    return begin, finish if phrase is None else phrase.end()


def _words(data: bytes, start: int, end: int) -> list[str]:
    """Return the words of a name, and the one that stands before it, as in "API key"."""
    before = _WORD_BEFORE.search(data, max(0, start - 24), start)
    words = words_of(data[start:end])
    if before is None or data[start : start + 1] in b"-." or before[1].decode().lower() in _TYPES:
        return words
    return [before[1].decode().lower(), *words]


def _found(data: bytes, name: Place, kind: Kind, words: list[str]) -> Place | None:
    if kind is Kind.PHRASE:
        wallet = WALLET.match(data, name[1])
        if wallet is not None and "passphrase" not in words:
            return wallet.span(1)
    tried: set[int] = set()
    return _assigned(data, name, kind, tried) or _told(data, name, kind, words, tried)


def _assigned(data: bytes, name: Place, kind: Kind, tried: set[int]) -> Place | None:
    """Return the value that an assignment gives to a name; ``tried`` is told where no value begins that is a secret."""
    if data[max(0, name[0] - 1) : name[0]] in (b"<", b":", b'"', b"'", b"-"):
        element = ELEMENT.match(data, name[1])
        if element is not None:
            found = Found(*element.span(1), True, data)
            return whole(found) if is_secret(kind, found, literal=True) else None
    for pattern in _patterns(data, name, kind):
        match = pattern.match(data, name[1])
        if match is not None and match.end() not in tried:
            tried.add(match.end())
            alone = pattern is ASSIGNED and match[0] == b"=" and _begins_line(data, name[0])
            value = _value(data, match.end(), kind, alone=alone)
            if value is None or _closes(data, name, match.end(), value):
                continue
            if is_secret(kind, value, literal=alone or value.quoted):
                return whole(value)
    return None


def _begins_line(data: bytes, start: int) -> bool:
    """Say whether a name is the first thing of its line, or what an .env file or a shell has before it."""
    return LINE_STARTS.search(data, max(0, start - 24), start) is not None


def _value(data: bytes, at: int, kind: Kind, *, alone: bool) -> Found | None:
    """Return the value that begins here, or the words in a row that are one."""
    spaced = SPACED.match(data, at) if kind in (Kind.PASSWORD, Kind.PHRASE) else None
    if spaced is not None and is_phrase(spaced[0], kind):
        return Found(*spaced.span(), True, data)
    return value_at(data, at, whole_line=alone)


def _patterns(data: bytes, name: Place, kind: Kind) -> Iterator["re.Pattern[bytes]"]:
    """Return the ways in which a name of this form may be given a value."""
    yield from (PAIRED, PASSED, ASSIGNED, DECLARED)
    if data[name[0] : name[0] + 1] == b"-" and data[max(0, name[0] - 1) : name[0]] in b" \t\n\"'`":
        yield OPTION
    if kind is Kind.PASSWORD:
        yield SQL


def _told(data: bytes, name: Place, kind: Kind, words: list[str], tried: set[int]) -> Place | None:
    """Return the value that a sentence gives to a name."""
    written = data[name[0] : name[1]]
    if words[-1] in _VERBS and len(words_of(written)) == 1 and _SAID_AT_ONCE.match(data, name[1]) is None:
        return None
    if is_random(written):
        return None
    if name[0] and data[name[0] - 1 : name[0]] in b"+/=":  # a piece of Base64 reads like anything
        return None
    for pattern, said in _WAYS_TO_SAY:
        match = pattern.match(data, name[1])
        if match is not None and match.end() not in tried:
            tried.add(match.end())
            value = value_at(data, match.end())
            if value is None or (pattern is BELOW and ALONE.match(data, value.end) is None):
                continue
            if is_secret_in_prose(kind, value, words, said=said) and not _closes(data, name, match.end(), value):
                return whole(value)
    return None


def _closes(data: bytes, name: Place, at: int, value: Found) -> bool:
    """Say whether the quote before a value closes one that opened before the name: then there is no value."""
    quote = data[value.start - 1 : value.start]
    if not value.quoted or len(quote) != 1 or quote not in b"\"'`" or quote in data[name[1] : at]:
        return False
    line = data.rfind(b"\n", max(0, name[0] - 512), name[0]) + 1
    return data.count(quote, line, name[0]) % 2 == 1

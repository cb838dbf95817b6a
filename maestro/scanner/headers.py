"""Secrets that programs log in with: headers of HTTP, cookies, and the options of commands."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator, Mapping

from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.rule_files import pattern_tables
from maestro.scanner.shapes import classes, has_digit, is_harmless, is_hex, is_mixed, is_placeholder, is_random, is_uuid
from maestro.scanner.tokens import latin_pattern

_COOKIE = rb"(?i)\bcookie[\"'`]{0,2}\s{0,2}[:=]\s{0,2}[\"'`]?([^\r\n\"\x01]{8,})"
_CRUMB = re.compile(rb"(?i)([\w.\-]*(?:sess|auth|token|sid|jwt|remember|csrf|xsrf|login|key)[\w.\-]*)=([^;\s\"']{12,})")
_ASSIGNMENT = re.compile(rb"[A-Za-z_]{2,40}=")


def _is_credential(value: bytes) -> bool:
    return not is_placeholder(value) and (_is_key(value) or is_login(value))


def _is_key(value: bytes) -> bool:
    if is_placeholder(value) or is_harmless(value):
        return False
    return is_random(value) or is_hex(value) or is_uuid(value)


def is_login(value: bytes) -> bool:
    """Say whether it is a name and a password in Base64, as Basic authentication sends them."""
    try:
        url_safe = b"_" in value or b"-" in value
        decoded = b64decode(value + b"=" * (-len(value) % 4), altchars=b"-_" if url_safe else None)
    except Error:
        return False
    return b":" in decoded and all(32 <= byte < 127 for byte in decoded)


def is_chosen(value: bytes) -> bool:
    """Say whether a person may have chosen it as a password: it is no word, variable, path or date."""
    value = value.rstrip(b",;.)")
    if is_placeholder(value) or is_harmless(value) or value.startswith((b"$", b"<", b"{", b"/")):
        return False
    return is_mixed(value) or (classes(value) >= 2 and (has_digit(value) or classes(value) >= 3))


def is_strong(value: bytes) -> bool:
    """Say whether it looks like a password although nothing calls it one."""
    value = value.rstrip(b",;.)")
    if _ASSIGNMENT.match(value):  # a name with its value beside it, which other rules judge
        return False
    return is_chosen(value) and len(value) >= 6 and (classes(value) >= 3 or is_random(value) or is_mixed(value))


_JUDGES: Mapping[str, Callable[[bytes], bool]] = {
    "credential": _is_credential,
    "login": is_login,
    "key": _is_key,
    "chosen": is_chosen,
    "strong": is_strong,
}


class HeaderPlugin(SpanPlugin):
    """Finds what follows the names of headers and options that carry secrets."""

    secret_type = "Secret in a header or an option"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare the patterns."""
        self._logins = [
            ([clue.encode() for clue in way["clues"]], latin_pattern(way["pattern"].encode()), _JUDGES[way["judge"]])
            for way in pattern_tables()["logins"]
        ]
        self._cookie = latin_pattern(_COOKIE)

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return the secrets alone, without the names and schemes before them."""
        small = data.lower()
        for clues, pattern, holds in self._logins:
            for match in pattern.finditer(data) if any(clue in small for clue in clues) else ():
                if holds(match[1]):
                    yield match.span(1)
        if b"cookie" in small:
            yield from self._cookies(data)

    def _cookies(self, data: bytes) -> Iterator[ByteRange]:
        for match in self._cookie.finditer(data):
            for crumb in _CRUMB.finditer(data, *match.span(1)):
                if _is_key(crumb[2]) and len(crumb[2]) >= 16:
                    yield crumb.span(2)

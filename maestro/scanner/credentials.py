"""Finds secrets with which programs log in: headers, cookies, command options, and parts of addresses."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator, Mapping

from maestro.scanner.plugin import ByteRange, SpanPlugin, read_tables
from maestro.scanner.tokens import compile_latin_pattern
from maestro.scanner.values import (
    count_character_classes,
    has_digit,
    has_unusual_case_mix,
    is_hex,
    is_known_harmless,
    is_placeholder,
    is_uuid,
    looks_random,
)

_COOKIE = rb"(?i)\bcookie[\"'`]{0,2}\s{0,2}[:=]\s{0,2}[\"'`]?([^\r\n\"\x01]{8,})"
_CRUMB = re.compile(rb"(?i)([\w.\-]*(?:sess|auth|token|sid|jwt|remember|csrf|xsrf|login|key)[\w.\-]*)=([^;\s\"']{12,})")
_ASSIGNMENT = re.compile(rb"[A-Za-z_]{2,40}=")

_SCHEME = rb"[A-Za-z][A-Za-z0-9+.\-]{1,24}://"
_RUN = re.compile(rb"[^\s\"'`\x01]{0,2048}")
_STOP = re.compile(rb"[:@/?#\\]")
_PORT = re.compile(rb"[0-9]{1,5}(?:([/?#])|[,;)\]}>|]|\.(?![A-Za-z0-9])|$)")
_HOST_NAME = re.compile(rb"(?i)localhost|[^.]+(?:\.[^.]+)+|\[.*")
_LAST_OF_PASSWORD = re.compile(rb"[^/?#=&@]{2,64}(?=@)")
_HOST = re.compile(rb"@(?=[A-Za-z0-9.\-_\[\xff%$<{]{1,253})")
_HOSTED = re.compile(
    rb"(?i)@(?:localhost|[a-z0-9\-]+(?:\.[a-z0-9\-]+)+|\[[0-9a-f:.]+\]|[a-z0-9\-]+(?=:[0-9]))(?::[0-9]{1,5})?"
)
_ANY_HOST = re.compile(rb"(?i)@(?=[a-z0-9\-]+(?:[.:/]|$))")
_PATH = re.compile(rb"[/?#]")
_BARE = rb"[A-Za-z0-9][A-Za-z0-9._\-]{0,40}:"
_BARE_REST = re.compile(rb"[^\s\"'`<>@:/\x01]{6,64}")

_QUERY = (
    rb"(?i)[?&;#](?:[a-z0-9]+[_\-.])*(?:access[_-]?token|auth[_-]?token|refresh[_-]?token|id[_-]?token|token|api[_-]?key"
    rb"|apikey|app[_-]?key|access[_-]?key|secret|client[_-]?secret|password|passwd|pwd|pass|sig|signature|x-amz-signature"
    rb"|x-amz-security-token|x-goog-signature|auth|key|code|jwt|session[_-]?(?:id|token)?|sid|sas|hmac|credential)"
    rb"=([^\s&#\"'<>`\x01]{6,})"
)
_LOOSE = (b"key=", b"code=", b"auth=", b"session", b"sid=", b"sig", b"token=")


def _is_header_key(value: bytes) -> bool:
    if is_placeholder(value) or is_known_harmless(value):
        return False
    return looks_random(value) or is_hex(value) or is_uuid(value)


def looks_like_login(value: bytes) -> bool:
    """Return whether a value is Base64 of a user name and a password, as in Basic authentication."""
    try:
        url_safe = b"_" in value or b"-" in value
        decoded = b64decode(value + b"=" * (-len(value) % 4), altchars=b"-_" if url_safe else None)
    except Error:
        return False
    return b":" in decoded and all(32 <= byte < 127 for byte in decoded)


def may_be_chosen_password(value: bytes) -> bool:
    """Return whether a person may have chosen a value as a password: it is no word, variable, path or date."""
    value = value.rstrip(b",;.)")
    if is_placeholder(value) or is_known_harmless(value) or value.startswith((b"$", b"<", b"{", b"/")):
        return False
    return has_unusual_case_mix(value) or (
        count_character_classes(value) >= 2 and (has_digit(value) or count_character_classes(value) >= 3)
    )


def looks_like_password(value: bytes) -> bool:
    """Return whether a value looks like a password even where no name announces one."""
    value = value.rstrip(b",;.)")
    if _ASSIGNMENT.match(value):  # The rules in assignments.py judge values of assignments.
        return False
    return (
        may_be_chosen_password(value)
        and len(value) >= 6
        and (count_character_classes(value) >= 3 or looks_random(value) or has_unusual_case_mix(value))
    )


_JUDGES: Mapping[str, Callable[[bytes], bool]] = {
    "credential": lambda value: not is_placeholder(value) and (_is_header_key(value) or looks_like_login(value)),
    "login": looks_like_login,
    "key": _is_header_key,
    "chosen": may_be_chosen_password,
    "strong": looks_like_password,
}


class HeaderPlugin(SpanPlugin):
    """Finds the values of headers and command options that carry secrets."""

    secret_type = "Secret in a header or an option"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        self._logins = [
            (
                [clue.encode() for clue in rule["clues"]],
                compile_latin_pattern(rule["pattern"].encode()),
                _JUDGES[rule["judge"]],
            )
            for rule in read_tables("patterns.toml")["logins"]
        ]
        self._cookie = compile_latin_pattern(_COOKIE)

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of the secrets, without the header's name and scheme before them."""
        small = data.lower()
        for clues, pattern, holds in self._logins:
            for match in pattern.finditer(data) if any(clue in small for clue in clues) else ():
                if holds(match[1]):
                    yield match.span(1)
        for match in self._cookie.finditer(data) if b"cookie" in small else ():
            for crumb in _CRUMB.finditer(data, *match.span(1)):
                if _is_header_key(crumb[2]) and len(crumb[2]) >= 16:
                    yield crumb.span(2)


class AddressPlugin(SpanPlugin):
    """Finds the secret parts of addresses."""

    secret_type = "Secret in an address"  # noqa: S105 - the name of a rule, not a secret

    def __init__(self) -> None:
        self._scheme = compile_latin_pattern(_SCHEME)
        self._bare = compile_latin_pattern(_BARE)
        self._webhooks = compile_latin_pattern(
            "|".join(read_tables("patterns.toml")["addresses"]["webhooks"]).encode(), any_case=True
        )
        self._query = compile_latin_pattern(_QUERY)

    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of passwords, of secret webhook paths, and of query values that are keys."""
        if b"@" in data:
            yield from self._find_logins(data)
        if b"/" in data:
            for match in self._webhooks.finditer(data):
                yield match.span(match.lastindex)
        if b"=" in data:
            for match in self._query.finditer(data):
                # A value that begins after a semicolon ends at the next one, as in a database's connection string.
                value = match[1].partition(b";")[0] if match[0][:1] == b";" else match[1]
                if _is_query_key(data[match.start() : match.start(1)].lower(), value):
                    yield match.start(1), match.start(1) + len(value)

    def _find_logins(self, data: bytes) -> Iterator[ByteRange]:
        done = 0
        for match in self._scheme.finditer(data):
            if match.start() >= done and (secret := find_secret_of_login(data, match.end())) is not None:
                yield secret
                done = secret[1]
        for match in self._bare.finditer(data):
            if (secret := find_secret_of_bare_login(data, match.start(), match.end())) is not None:
                yield secret


def find_secret_of_login(data: bytes, at: int) -> ByteRange | None:
    """Return the range of the password, or of a user name that is a token, after the ``://`` of an address."""
    match = _RUN.match(data, at)
    run = b"" if match is None else match[0]
    stop = _STOP.search(run)
    if stop is None or stop[0] not in (b":", b"@"):
        return None
    user, start = run[: stop.start()], stop.end()
    if stop[0] == b":" and _is_port(run, start, user):
        return None
    token = (at, at + stop.start()) if len(user) >= 16 and (looks_random(user) or is_hex(user)) else None
    if stop[0] == b"@":
        return token
    end = find_end_of_password(run, start)
    if end <= start:
        return None
    password = run[start:end]
    sham = is_placeholder(password) and not mixes_character_classes(password)
    if sham or password == user or len(password) < 3:
        return token
    return (at if token else at + start, at + end)


def _is_port(run: bytes, start: int, before: bytes) -> bool:
    """Return whether digits after a colon are a port, not the beginning of a password, as in ``2024.Winter!x``.

    No host follows a port, except in a list of hosts. Where a path follows the digits, they are a password only if the
    text after the colon looks chosen by a person and the text before the colon is no host.
    """
    port = _PORT.match(run, start)
    if port is None:
        return False
    if port[1] is None:
        path = _PATH.search(run, start)
        value, at, _ = run[start : path.start() if path else len(run)].rpartition(b"@")
        return not at or (_HOST_NAME.fullmatch(before) is not None and count_character_classes(value) < 3)
    rest = _LAST_OF_PASSWORD.match(run, port.end())
    if rest is None or _HOST_NAME.fullmatch(before):
        return True
    return _HOSTED.match(run, rest.end()) is None or count_character_classes(rest[0]) < 3


def find_end_of_password(run: bytes, start: int) -> int:
    """Return where a password ends: at the last ``@`` before the path if a host follows, else at the last ``@``.

    Passwords in addresses often contain unescaped ``@``, ``/``, ``?`` and ``#``.
    """
    path = _PATH.search(run, start)
    last = run.rfind(b"@", start, path.start() if path else len(run))
    if last > 0 and (path is None or _HOSTED.match(run, last)):
        return last if _HOST.match(run, last) else 0
    hosts = [match.start() for match in _ANY_HOST.finditer(run, start)]
    return hosts[-1] if hosts else 0


def mixes_character_classes(value: bytes) -> bool:
    """Return whether a possible placeholder mixes letters with digits or signs, so that a person may have chosen it."""
    return count_character_classes(value) >= 3 and not value.startswith((b"$", b"<", b"{", b"[", b"%"))


def find_secret_of_bare_login(data: bytes, start: int, at: int) -> ByteRange | None:
    """Return the range of the password in ``user:password@host`` if the password looks like one."""
    if start and data[start - 1 : start] in (b"/", b"@", b":", b"=", b"."):
        return None
    password = _BARE_REST.match(data, at)
    if password is None or _HOSTED.match(data, password.end()) is None:
        return None
    return password.span() if count_character_classes(password[0]) >= 3 and not is_placeholder(password[0]) else None


def _is_query_key(name: bytes, value: bytes) -> bool:
    if is_placeholder(value):
        return False
    if b"pass" in name or b"pwd" in name or b"secret" in name:
        return count_character_classes(value) >= 2
    least = 20 if any(loose in name for loose in _LOOSE) and b"_token" not in name else 12
    return len(value) >= least and (looks_random(value) or is_hex(value))

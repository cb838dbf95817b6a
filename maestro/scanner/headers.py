"""Secrets in what programs say to log in: headers of HTTP, cookies, and the options of commands."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator

from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.shapes import classes, has_digit, is_harmless, is_hex, is_mixed, is_placeholder, is_random, is_uuid
from maestro.scanner.tokens import latin_pattern

_BLANK = rb"(?:\s|\\[nrt]){0,4}"
_AUTHORIZATION = (
    rb"(?i)\b(?:proxy-)?authorization[\"'`\]\)]{0,3}"
    + _BLANK
    + rb"(?:=>|[:=,]|\bis\b)"
    + _BLANK
    + rb"(?:[bfru]?[\"'`]{0,3})(?:(?:Bearer|Token|Basic|ApiKey|Api-Key|SSWS|GenieKey|Key|Bot|OAuth|Apikey|GoogleLogin"
    rb"|Splunk|Negotiate|Digest|Hawk|JWT|PRIVATE-TOKEN|DPoP|PVEAPIToken|NexusToken|discogs)[ :=]{1,3}"
    rb"(?:(?:token|key|auth|access_token|api_key)=[\"']?)?)?([^\s\"'`<>,;\\\x01]{8,})"
)
_SCHEMED = rb"(?i)\b(?:Bearer|SSWS|GenieKey)(?: |%20|:|=|: )\s?[\"'`]?([A-Za-z0-9._~+/\-:|]{12,}={0,2})"
_BASIC = rb"(?i)\bBasic (?:[\"'`])?([A-Za-z0-9+/_\-]{8,}={0,2})"
_HEADER = (
    rb"(?i)\b(?:(?:x|api|private|job|deploy|circle|gitlab|vault|consul|dd|cf|ocp|fastly|okta|rapidapi|goog|amz|shopify)"
    rb"[-_][a-z0-9\-_]{0,40}?(?:token|key|secret|auth|password|signature|apikey|authorization|credential)s?|apikey|api-key)"
    rb"[\"'`\]\)]{0,3}\s{0,2}(?:=>|[:=,])\s{0,2}[\"'`]{0,1}([^\s\"'`<>,;\\\x01]{8,})"
)
_COOKIE = rb"(?i)\bcookie[\"'`]{0,2}\s{0,2}[:=]\s{0,2}[\"'`]?([^\r\n\"\x01]{8,})"
_CRUMB = re.compile(rb"(?i)([\w.\-]*(?:sess|auth|token|sid|jwt|remember|csrf|xsrf|login|key)[\w.\-]*)=([^;\s\"']{12,})")
_ASSIGNMENT = re.compile(rb"[A-Za-z_]{2,40}=")
_USER = (
    rb"(?:\s(?:-u|-U|--user|--proxy-user|--creds?|--username|--auth|-a)[= ]?[\"']?)"
    rb"(?:[A-Za-z0-9._@\\+\-]{0,64})[:%][\"']?([^\s\"'`\x01]{3,256})"
)
_SHORT = (
    rb"(?i)\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass|docker login|podman login|helm registry login|oc login"
    rb"|az login|mongo|mongosh|mongodump|psql|sqlcmd|bcp|isql|redis-cli|ldapsearch|ldapadd|ldapmodify|htpasswd|winexe"
    rb"|cf login|ibmcloud login|npm login|jarsigner|snmpwalk|ipmitool|mosquitto_pub|mosquitto_sub|useradd|usermod|zip"
    rb"|unzip|7za?|unrar|rar|xfreerdp)\b[^\n\x01]{0,200}?\s(?:-p|-P|-w|-a|-k|/p:|/pass:|-storepass|-keypass)[= ]?[\"']?"
    rb"([^\s\"'`\-\x01][^\s\"'`\x01]{3,128})"
)
_PAIR = (
    rb"(?i)\b(?:HTTPBasicAuth|HTTPDigestAuth|BasicAuth|basic_auth|PasswordAuthentication|NetworkCredential|PlainAuth"
    rb"|UsernamePasswordCredentials|mysqli_connect|login|set_?basic_?auth|auth|credentials?|authenticate|withBasicAuth"
    rb"|signIn(?:WithEmailAndPassword)?|getConnection|getToken|connect|httpBasic|createUser)"
    rb"\s{0,2}[=:(]{1,2}\s{0,2}[(\[{]?(?:\s{0,2}[\"'`][^\"'`\n\x01]{0,256}[\"'`]\s{0,2},){1,3}\s{0,2}[\"'`]"
    rb"([^\"'`\n\x01]{4,256})[\"'`]"
)
_QUOTED = (
    rb"(?i)\b(?:identified\s+(?:with\s+[\w\"'`]+\s+)?(?:by|as)(?:\s+password)?|ConvertTo-SecureString(?:\s+-String)?)"
    rb"\s+[\"']([^\"'\n\x01]{4,256})[\"']"
)
_PGPASS = rb"(?m)^\s{0,4}[A-Za-z0-9.*_\-]+:(?:[0-9]{2,5}|\*):[A-Za-z0-9*_\-]+:[A-Za-z0-9*._\-]+:([^\s\x01]{3,256})$"
_NAME_AND_PASSWORD = (
    rb"(?i)\b(?:(?:user(?:name)?|uname|login|account) ?[/&+] ?(?:pw|pwd|pass(?:word)?)|log[io]n|log in|sign in|creds?"
    rb"|credentials|zugangsdaten|logindaten|identifiants|credenciales|credenciais|credenziali)(?:\s(?:are|is|as|with|for))?(?:\s[^\n:/|,]{0,23}?)?(?:\s|[:=])\s{0,2}[\"'`]?[A-Za-z0-9._@\-]{1,40}[\"'`]?"
    rb"(?:\s?[:/|]\s?|\s(?:and|with|pw|pass|und|et|y|e)\s)[\"'`]?([^\s\"'`\x01]{6,128})"
)
_OF_COMMAND = (
    rb"(?i)(?:\bnet user [^\s\x01]{1,64} |\bopenssl\s[^\n\x01]{0,200}?\s-k |--from-literal[= ][\"']?[\w.\-]{1,64}="
    rb"|(?:jdbc:oracle:(?:thin|oci8?):|sqlplus (?:-\w+ ){0,3})[^\s/@\x01]{1,64}/)"
    rb"[\"']?([^\s\"'`\x01@]{3,256})"
)
_CHPASSWD = (
    rb"(?i)echo\s+(?:-n\s+)?[\"']?[a-z0-9._\-]{1,32}:([^\s\"'|\x01]{3,128})[\"']?\s*\|"
    rb"\s*(?:sudo\s+)?(?:chpasswd|base64)"
)
_PIPED = (
    rb"(?i)echo\s+(?:-n\s+)?[\"']?([^\s\"'|$\x01]{6,256})[\"']?\s*\|[^\n]{0,80}"
    rb"(?:password-stdin|passwd|sudo -S|with-token|login)"
)


def _is_credential(value: bytes) -> bool:
    return not is_placeholder(value) and (_is_key(value) or is_login(value))


def _is_key(value: bytes) -> bool:
    if is_placeholder(value) or is_harmless(value):
        return False
    return is_random(value) or is_hex(value) or is_uuid(value)


def is_login(value: bytes) -> bool:
    """Say whether it is a name and a password in Base64, as Basic authentication sends them."""
    try:
        said = b64decode(value + b"=" * (-len(value) % 4), altchars=b"-_" if b"_" in value or b"-" in value else None)
    except Error:
        return False
    return b":" in said and all(32 <= byte < 127 for byte in said)


def is_chosen(value: bytes) -> bool:
    """Say whether somebody may have chosen it as a password: it is no word, variable, path or date."""
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


_WAYS: tuple[tuple[tuple[bytes, ...], bytes, Callable[[bytes], bool]], ...] = (
    ((b"authorization",), _AUTHORIZATION, _is_credential),
    ((b"basic ",), _BASIC, is_login),
    ((b"bearer", b"ssws", b"geniekey"), _SCHEMED, _is_key),
    ((b"key", b"token", b"secret", b"auth", b"password", b"signature", b"credential"), _HEADER, _is_key),
    ((b" -u", b" --user", b" --proxy-user", b" --cred", b" --auth", b" -a"), _USER, is_chosen),
    ((b" -p", b" -w", b" -a", b" -k", b" /p", b" -storepass"), _SHORT, is_chosen),
    (
        (b"auth", b"credential", b"mysqli", b"login", b"signin", b"connect", b"gettoken", b"createuser"),
        _PAIR,
        is_chosen,
    ),
    ((b"identified", b"securestring"), _QUOTED, is_chosen),
    ((b"net user ", b"openssl", b"from-literal", b"oracle:", b"sqlplus"), _OF_COMMAND, is_chosen),
    ((b":",), _PGPASS, is_chosen),
    (
        (b"login", b"logon", b"log in", b"sign in", b"cred", b"user", b"uname", b"account", b"zugang", b"identif"),
        _NAME_AND_PASSWORD,
        is_strong,
    ),
    ((b"echo",), _CHPASSWD, is_chosen),
    ((b"echo",), _PIPED, is_chosen),
)
"""What must be in a text in small letters, the pattern, and what its group must be like."""


class HeaderPlugin(SpanPlugin):
    """Finds what follows the names of headers and options that carry secrets."""

    secret_type = "Secret in a header or an option"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare the patterns."""
        self._ways = [(clues, latin_pattern(pattern), holds) for clues, pattern, holds in _WAYS]
        self._cookie = latin_pattern(_COOKIE)

    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return the secrets alone, without the names and schemes before them."""
        small = data.lower()
        for clues, pattern, holds in self._ways:
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

"""Tokens of providers: those with a prefix, and those that are known by their form, such as JWTs."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import re2  # type: ignore[import-untyped]  # it comes without types

from maestro.scanner.plugin import ByteRange, SpanPlugin
from maestro.scanner.shapes import LOOKED_AT, classes, has_digit, is_hex, is_joined, is_random

_WORD = re.compile(rb"[A-Za-z0-9]")
_TAIL = re.compile(rb"[A-Za-z0-9_\-]*={0,2}")
SHAM = re.compile(rb"(?i)x{5}|example|placeholder|your[_-]|(?:test|fake|dummy|sample)[_-]?(?:key|token)|redacted")
_LONGEST = 2048
"""Bytes that are read of a token before it is judged, so that a text of prefixes alone costs no more than others."""
_FEW = 6
"""A token with fewer different characters than this is somebody's drawing of a token."""

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
    """Read the kinds of tokens that are known, one a line: prefix, body, and what else is known of it."""
    text = Path(__file__).with_name("tokens.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [Token(row[0], row[1], "whole" in row, "digits" in row) for row in rows]


def latin_pattern(pattern: bytes, *, any_case: bool = False) -> "re2._Regexp":
    """Return a pattern for folded text, whose search takes time in proportion to the text, whatever it says."""
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
    """Say whether a machine drew it: nobody wrote it down as an example, and it is no name, such as of a branch."""
    if token.digits and not has_digit(body) and not is_random(body):
        return False
    return len(set(body)) >= _FEW and SHAM.search(body) is None and not is_joined(body)


class Form(NamedTuple):
    """What every such token has in it, the pattern, which bytes may not stand next to it, and what else must hold."""

    clue: bytes
    pattern: bytes
    beside: bytes
    holds: Callable[[bytes], bool]


def _always(value: bytes) -> bool:
    return len(set(value)) > 7


def _mixed(value: bytes) -> bool:
    """Say whether small letters, capitals and digits are in it."""
    return classes(value) >= 3 and is_random(value)


def _bot(value: bytes) -> bool:
    return _mixed(value.partition(b":")[2])


_FORMS = (
    # JSON Web Tokens, signed or encrypted, also cut; the header is JSON and begins so.
    Form(b"eyJ", rb"eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*){0,3}", rb"A-Za-z0-9_\-", _always),
    # Telegram bots
    Form(b":", rb"\b[0-9]{8,10}:[A-Za-z0-9_\-]{35}", rb"A-Za-z0-9_\-", _bot),
    # Discord bots: the id in base64, a time, a signature
    Form(b".", rb"[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,38}", rb"A-Za-z0-9_\-", _mixed),
    Form(b"mfa.", rb"mfa\.[A-Za-z0-9_\-]{84}", rb"A-Za-z0-9_\-", _mixed),
    # Azure: secrets of applications, and keys with the mark of their service in them
    Form(b"Q~", rb"[A-Za-z0-9_~.\-]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}", rb"A-Za-z0-9_~", _always),
    Form(
        b"=",
        rb"[A-Za-z0-9+/_\-]{30,85}(?:AzFu|AzCa|\+AMC|\+ASt|\+ARm|\+ABa|ACDb|AIoT|APIM|\+ASb|\+AEh|\+AIo|AzEG)"
        rb"[A-Za-z0-9+/_\-]{5,9}={1,2}",
        rb"A-Za-z0-9+/",
        _mixed,
    ),
    Form(b"A", rb"[A-Za-z0-9+/]{42}(?:AzSe|\+ACR)[A-D][A-Za-z0-9+/]{5}", rb"A-Za-z0-9+/", _mixed),
    Form(b"JQQJ99", rb"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{8,}AZDO[A-Za-z0-9]{4}", rb"A-Za-z0-9", _always),
    Form(b"JQQJ9", rb"[A-Za-z0-9]{30,60}JQQJ9[A-Za-z0-9]{10,30}", rb"A-Za-z0-9", _always),
    Form(b"kubeadm", rb"[a-z0-9]{6}\.[a-z0-9]{16}", rb"A-Za-z0-9", _always),
    # Mailchimp, Mailgun, Firebase messaging, Terraform, kubeadm, 1Password, New Relic, Salesforce, Twitter, Asana
    Form(b"-us", rb"[0-9a-f]{32}-us[0-9]{1,2}", rb"A-Za-z0-9", _always),
    Form(b"-", rb"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}", rb"A-Za-z0-9\-", _always),
    Form(b"AAAA", rb"AAAA[A-Za-z0-9_\-]{7}:[A-Za-z0-9_\-]{100,}", rb"A-Za-z0-9_\-", _always),
    Form(b".atlasv1.", rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}", rb"A-Za-z0-9", _always),
    Form(b".atlasv1.", rb"[A-Za-z0-9_\-]{8,}\.atlasv1\.[A-Za-z0-9_\-=]{40,}", rb"A-Za-z0-9", _always),
    Form(
        b"A3-",
        rb"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
        rb"A-Za-z0-9_\-",
        _always,
    ),
    Form(b"NRAL", rb"[0-9a-f]{36}NRAL", rb"A-Za-z0-9", _always),
    Form(b"00D", rb"00D[A-Za-z0-9]{12,15}![A-Za-z0-9_.]{60,}", rb"A-Za-z0-9", _mixed),
    Form(b"AAAA", rb"AAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{60,}", rb"A-Za-z0-9", _always),
    Form(b"/", rb"[0-9]/[0-9]{12,}(?:/[0-9]{12,})?:[0-9a-f]{32}", rb"A-Za-z0-9/", _always),
    Form(b".apps.secret", rb"\b[0-9]{6,}-[0-9a-z]{32}\.apps\.secret", rb"A-Za-z0-9", _always),
    # Adyen, Twilio's pairs, Facebook's applications, WeChat and the like
    Form(b"AQE", rb"AQE[a-z][A-Za-z0-9+/=]{60,}-[A-Za-z0-9+/=]{30,}-[^\s\"']{10,}", rb"A-Za-z0-9", _always),
    Form(b"AC", rb"\bAC[a-f0-9]{32}[:/|, ]{1,3}[a-f0-9]{32}", rb"A-Za-z0-9", _always),
    Form(b"|", rb"\b[0-9]{13,17}\|[A-Za-z0-9_\-]{27,}", rb"A-Za-z0-9_\-", _mixed),
    # A private key in Base64, whole or the part of it that came through
    Form(
        b"MII",
        rb"MII[A-Za-z0-9+/]{1,5}(?:IBAAKC|gIBADANBgkqhkiG9w0BAQEFAASC|wIBAAJ|QIBAAJ|IBVAIBADANBg|IBADAN)[A-Za-z0-9+/\s\\]{16,}={0,2}",
        rb"A-Za-z0-9+/",
        _always,
    ),
    Form(
        b"",
        rb"(?:MHcCAQEEI|MHQCAQEEI|MIGkAgEBBD|MIHcAgEBBEI|MIGHAgEAMBMGByqGSM49|MC4CAQAwBQYDK2Vw|MIG2AgEAMBAGByqGSM49)[A-Za-z0-9+/]{20,}={0,2}",
        rb"A-Za-z0-9+/",
        _always,
    ),
    Form(b"b3BlbnNzaC1rZXktdjE", rb"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/\s\\]{40,}={0,2}", rb"A-Za-z0-9+/", _always),
    Form(
        b"LS0tLS1CRUdJTi",
        rb"LS0tLS1CRUdJTi(?:BSU0EgUFJJVkFURS|BQUklWQVRF|BFQyBQUklWQVRF|BPUEVOU1NIIFBSSVZBVEU|BFTkNSWVBURUQg"
        rb"|BEU0EgUFJJVkFURS|BQR1AgUFJJVkFURS)[A-Za-z0-9+/\s\\]{16,}={0,2}",
        rb"A-Za-z0-9+/",
        _always,
    ),
)


class FormPlugin(SpanPlugin):
    """Finds what has one of the forms, and the secret halves of Amazon's pairs of keys."""

    secret_type = "Token of a known form"  # noqa: S105 - a name

    def __init__(self) -> None:
        """Prepare the forms."""
        self._forms = [
            (form.clue, latin_pattern(form.pattern), re.compile(b"[" + form.beside + b"]"), form.holds)
            for form in _FORMS
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

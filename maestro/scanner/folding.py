"""Text as the rules read it: one byte a character, look-alikes as what they look like, with the way back."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape

from maestro.domain.scanning import REDACTED, Span

_PAIRS = """
аa вb еe кk мm нh оo рp сc тt уy хx іi јj ѕs ԁd ԛq ԝw һh гr ьb АA ВB ЕE КK МM НH ОO РP СC ТT УY ХX ІI ЈJ ЅS ЗZ ӀI ӏl
ԌG ҮY ԜW ԚQ
αa βb γy εe ιi κk νv οo ρp τt υu χx ωw ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX ϳj ϲc ͿJ ϹC
ոn սu օo ցg հh զq յj լl ւi ԼL ՍU ՕO Տs
ıi ɑa ɡg ɩi ɪI ʀR ʟL ɴN ᴀA ᴄC ᴅD ᴇE ᴊJ ᴋK ᴍM ᴏO ᴘP ᴛT ᴜU ᴠV ᴡW ᴢZ ʙB ɢG ʜH ʏY ꜱS øo ØO łl ŁL đd ĐD ħh ĦH ɵo
‐- ‑- ‒- –- −- ﹣- ⁃- ˗- ➖- ˍ_ ＿_ ‘' ’' ‚' ‛' ′' ʼ' ʹ' “" ”" „" ‟" ″" «" »" 「" 」" 『" 』"
∶: ꞉: ː: ׃: ︓: ﹕: ⁄/ ∕/ ⧸/
。. 、, ․. 、, ꞊= ═= ゠= →= ⇒= ➜= ➡= ⟶= 【[ 】] ∗* ∣| ؛; ،, ‹< ›> ︰:
"""

BLANKED = b"\x01"
"""Stands for what is redacted already; no rule reads across it."""
OTHER = "\xff"
"""Stands for every character that looks like no ASCII character."""

_MARK = REDACTED.encode()
_UNSEEN = ("Mn", "Me", "Cf")
_NOT_ASCII = re.compile("[^\x00-\x7f]+(?:[\x00-\x7f]{1,4}[^\x00-\x7f]+)*")
_ESCAPE = re.compile(
    rb"\\(?:u00[0-7][0-9A-Fa-f]|x[0-7][0-9A-Fa-f]|[nrt]|[!-/:-@\[-`{-~])"
    rb"|%[2-7][0-9A-Fa-f]|&(?:#\d{2,3}|#[xX][2-7][0-9A-Fa-f]|amp|quot|apos|lt|gt);"
)
_BLANKS = {"n": b"\n", "r": b"\n", "t": b" "}


def _table(pairs: str) -> dict[str, str]:
    return {pair[0]: pair[1] for pair in pairs.split()}


ALIKE = _table(_PAIRS)
"""What a character looks like; full-width and mathematical ones are known by their decomposition."""

FOREIGN_WORDS = {
    "пароль": "passwd",
    "пароля": "passwd",
    "паролем": "passwrd",
    "парола": "passwd",
    "гасло": "passw",
    "лозинка": "passwrd",
    "токен": "token",
    "секрет": "secret",
    "ключ": "skey",
    "κωδικός": "passwrd",
    "κωδικος": "passwrd",
    "συνθηματικό": "pass_phrase",
    "סיסמה": "passw",
    "סיסמא": "passw",
    "كلمة المرور": "pass_phrase",
    "كلمة السر": "passwords",
    "رمز": "pwd",
    "密码": "pw",
    "密碼": "pw",
    "口令": "pw",
    "密钥": "pw",
    "密鑰": "pw",
    "令牌": "pw",
    "秘钥": "pw",
    "パスワード": "passw",
    "暗証番号": "pswd",
    "トークン": "skey",
    "シークレット": "secret",
    "비밀번호": "pswd",
    "암호": "pw",
    "토큰": "pw",
    "पासवर्ड": "passwrd",
    "รหัสผ่าน": "password",
}
"""An English word of the same length for each, so that no place in the text moves."""

_FOREIGN = re.compile("|".join(sorted(FOREIGN_WORDS, key=len, reverse=True)), re.IGNORECASE)
_FOREIGN_STARTS = re.compile("[" + "".join(word[0] for word in FOREIGN_WORDS) + "]", re.IGNORECASE)
"""How a foreign word begins: most texts that are not ASCII have only a dash or an accent, and no such letter."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Bytes to search, and where in the original each of them begins and ends; None where byte n is character n."""

    data: bytes
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None

    def span(self, start: int, end: int) -> Span:
        """Return a part of the bytes, which is not empty, as a part of the original."""
        if self.starts is None or self.ends is None:
            return Span(start, end)
        return Span(self.starts[start], self.ends[end - 1])


class Folder(dict[int, str | None]):
    """Folds texts; it remembers what it decided about a character, so one is kept for many texts."""

    def __missing__(self, code: int) -> str | None:
        """Decide what a character looks like: an ASCII character, nothing, or nothing we know."""
        self[code] = folded = _look(chr(code))
        return folded

    def readings(self, text: str) -> Iterator[Folded]:
        """Return the text as it stands and, where it has escapes, as it reads without them."""
        plain = self._plain(text)
        yield plain
        if b"\\" in plain.data or b"%" in plain.data or b"&" in plain.data:
            unescaped = _unescaped(plain)
            if unescaped is not None:
                yield unescaped

    def _plain(self, text: str) -> Folded:
        if text.isascii():
            return Folded(text.encode().replace(_MARK, BLANKED * len(_MARK)))
        known = _FOREIGN.sub(_known, text) if _FOREIGN_STARTS.search(text) else text
        folded = _NOT_ASCII.sub(self._look_alike, known)
        data = folded.encode("latin-1").replace(_MARK, BLANKED * len(_MARK))
        if len(folded) == len(text):
            return Folded(data)
        starts = [place for place, character in enumerate(text) if self[ord(character)] is not None]
        return Folded(data, starts, [start + 1 for start in starts])

    def _look_alike(self, run: "re.Match[str]") -> str:
        return run[0].translate(self)


def _look(character: str) -> str | None:
    if character.isascii():
        return character
    if unicodedata.category(character) in _UNSEEN or character in "\u115f\u1160\u3164\uffa0\u2800":
        return None
    if character in ALIKE:
        return ALIKE[character]
    if character.isspace():
        return " "
    letters = "".join(c for c in unicodedata.normalize("NFKD", character) if unicodedata.category(c) not in _UNSEEN)
    if len(letters) != 1:
        return OTHER
    return letters if letters.isascii() else ALIKE.get(letters, OTHER)


@cache
def _meanings() -> Mapping[str, str]:
    """Return the English of foreign words by their folded forms: a Greek word may end in another letter in capitals."""
    return {word.casefold(): english for word, english in FOREIGN_WORDS.items()}


def _known(match: "re.Match[str]") -> str:
    """Return an English word of the same length for a foreign one, so that no place moves.

    Letters have more forms than two, such as the Greek sigma at the end of a word, and the pattern matches them all.
    """
    return _meanings().get(match[0].casefold(), match[0])


def _unescaped(plain: Folded) -> Folded | None:
    """Return the bytes without escapes; None where there are none."""
    parts: list[bytes] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(plain.data):
        parts += [plain.data[at : match.start()], _meant(match[0].decode())]
        starts += [*range(at, match.start()), match.start()]
        ends += [*range(at + 1, match.start() + 1), match.end()]
        at = match.end()
    if not parts:
        return None
    size = len(plain.data)
    starts += range(at, size)
    ends += range(at + 1, size + 1)
    if plain.starts is not None and plain.ends is not None:
        first, last = plain.starts, plain.ends
        starts, ends = [first[place] for place in starts], [last[place - 1] for place in ends]
    return Folded(b"".join([*parts, plain.data[at:]]), starts, ends)


def _meant(escape: str) -> bytes:
    """Return the one byte that an escape stands for."""
    if escape.startswith("%"):
        return bytes([int(escape[1:], 16)])
    if escape.startswith("&"):
        return unescape(escape).encode("latin-1", "replace")[:1]
    if escape[1] in "ux" and len(escape) > 2:
        return bytes([int(escape[2:], 16)])
    return _BLANKS.get(escape[1], escape[1].encode())

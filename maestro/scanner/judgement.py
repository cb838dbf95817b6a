"""Decides which kind of secret a name announces, and whether a value is a secret or only a word, a variable or code."""

import re
from enum import Enum, auto
from itertools import pairwise

from maestro.scanner.plugin import word_set
from maestro.scanner.values import (
    JUDGED,
    ValueSpan,
    count_character_classes,
    has_digit,
    has_letter,
    has_sign,
    has_unusual_case_mix,
    is_hex,
    is_joined_words,
    is_known_harmless,
    is_placeholder,
    is_uuid,
    looks_random,
    share_of_words,
)

_CODE = re.compile(
    rb"[&*!(@]{0,2}[A-Za-z_$][A-Za-z0-9_$]*(?:(?:\.|->|::|\?\.|!\.)[A-Za-z_$][A-Za-z0-9_$]*)*[?!]?(?:[(\[{<].*)?[;,)]*",
    re.DOTALL,
)
_PROGRAM = re.compile(
    rb"=>|\}\)|\)\{|\);|&&|\|\||\(\)|\]\.|\)\.|\)\]|\?[\"']|[\"'][+:]|\+[\"']|^[A-Za-z_][A-Za-z0-9_]{0,40}=[\"'\[A-Za-z]"
)
_UUID_WITHIN = re.compile(rb"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])")
_FIELD = re.compile(rb"([a-z][A-Za-z0-9_.\-]{4,40}|[A-Z][A-Z0-9_]{4,40})=")
_NUMBER = re.compile(rb"[0-9]{3}")
_STRUCTURE = re.compile(rb"\.|->|::|[(\[{<]")
_CONSTANT = re.compile(rb"[A-Z]{2,}(?:_[A-Z]{2,})+")
_WORDS = re.compile(rb"[A-Za-z]{2,12}(?:[ \-_.][A-Za-z]{2,12}){2,23}")
_APP_PASSWORD = re.compile(rb"[a-z]{4} [a-z]{4} [a-z]{4} [a-z]{4}")
_INTERPOLATED = re.compile(rb"\$\{[^}]*\}|\{\{.*\}\}|\$\([^)]*\)|%\([a-z_]+\)s|#\{[^}]*\}|\{[a-z_.]*\}")


class Kind(Enum):
    """The kind of secret that a name announces: chosen by a person, several words, generated, or perhaps generated."""

    PASSWORD = auto()
    PHRASE = auto()
    SECRET = auto()
    MAYBE = auto()


_OPEN = ("public", "publishable", "no", "hash")
_SECRET_ENDS = ("secret", "apikey", "accesskey", "secretkey", "authtoken", "accesstoken")

NAME_STEMS = (
    rb"pass|pwd|(?:\b|_)pw(?:\b|_)|psw|contrase|senha|kennwort|parol|haslo|heslo|wachtwoord|lozinka|losenord"
    rb"|salasana|jelszo|sifre|adgangskode|mot de passe|mdp|clave|kata sandi|geslo|parool|mat khau|paswoord"
    rb"|secret|token|key|cred|bearer|auth|jwt|bip39|recovery|wallet|\bpat\b|psk|mnemonic|seed|sas|dsn|webhook|requirepass|geheim|schluessel"
    rb"|connection|bindpw|rootpw|pepper|salt"
)
_SPLIT = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def split_into_words(name: bytes) -> list[str]:
    """Return the words of an identifier in lower case, for example of ``api_key`` or ``apiKey``."""
    return [word.decode().lower() for word in _SPLIT.findall(name)]


def classify_secret_name(words: list[str]) -> Kind | None:
    """Return the kind of secret that a name announces; its last relevant word decides, with the words around it."""
    kind, end = None, 0
    for start in range(len(words)):
        for width in (3, 2, 1):
            announced = _kind_of_words(words, start, width)
            if announced is not None:
                kind, end = announced, start + width
                break
    return None if any(word in word_set("not_behind") for word in words[end : end + 3]) else kind


def _kind_of_words(words: list[str], start: int, width: int) -> Kind | None:
    """Return the kind that the ``width`` words at a position announce, given the word before them."""
    if start + width > len(words):
        return None
    word, before = "".join(words[start : start + width]), words[start - 1] if start else ""
    if word in word_set("phrases"):
        return Kind.PHRASE
    if word in word_set("passwords"):
        return Kind.PASSWORD
    if word in word_set("secrets"):
        harmless = before in _OPEN or (word == "token" and before in word_set("no_token"))
        return None if harmless else Kind.SECRET
    return _kind_of_word(word, before) if width == 1 else None


def _kind_of_word(word: str, before: str) -> Kind | None:
    if word in ("key", "keys"):
        if before in word_set("key_of"):
            return Kind.SECRET
        return None if len(before) < 2 or before in word_set("no_key") else Kind.MAYBE
    if word in ("auth", "salt", "seed"):
        return Kind.MAYBE
    if word.endswith(("password", "passwd", "passphrase")):
        return Kind.PASSWORD
    return Kind.SECRET if word.endswith(_SECRET_ENDS) else None


def is_unmistakable_name(words: list[str]) -> bool:
    """Return whether the name contains a word or a pair that always means a secret, such as "access token"."""
    secrets = ("key", "token", "secret", "password", "credential", "credentials")
    return any(first in word_set("two_words") and second in secrets for first, second in pairwise(words)) or any(
        word in ("apikey", "password", "passwd", "secret", "passphrase") for word in words
    )


_STOP_WORDS = frozenset(
    b"""
    the a an is are was we you i to of for in on at by or and must be not no your our it this that with from as can
    will should has have please enter password token key secret invalid required wrong use do least characters
    """.split()
)
_LONGEST_PHRASE = 256
_LEAST = {Kind.PASSWORD: 4, Kind.PHRASE: 4, Kind.SECRET: 8, Kind.MAYBE: 16}
_LEAST_IN_PROSE = {Kind.PASSWORD: 5, Kind.PHRASE: 5, Kind.SECRET: 12, Kind.MAYBE: 16}
"""Bytes of the shortest value that may be a secret in a sentence; ``_LEAST`` is the same for an assignment."""


def is_secret(kind: Kind, candidate: ValueSpan, *, literal: bool) -> bool:
    """Return whether an assigned value is a secret; ``literal``: it is quoted or in an .env file, so it is no code."""
    value = candidate.value[:JUDGED]
    if len(value) < _LEAST[kind]:
        return False
    if b" " in value or kind is Kind.PHRASE:
        if candidate.quoted and kind is Kind.PASSWORD and _is_spaced_password(value):
            return True
        return (kind is not Kind.MAYBE and looks_like_phrase(candidate.value[:_LONGEST_PHRASE], kind)) or (
            kind is Kind.PHRASE and b" " not in value and is_secret(Kind.PASSWORD, candidate, literal=literal)
        )
    if (
        is_placeholder(value)
        or is_known_harmless(value)
        or looks_like_template(value)
        or (not candidate.quoted and looks_like_expression(value, literal=literal))
    ):
        return False
    if kind is Kind.PASSWORD:
        return looks_like_chosen_password(value, literal=literal, quoted=candidate.quoted)
    if kind is Kind.SECRET:
        return looks_like_key(value, literal=literal)
    return len(value) >= 16 and (looks_random(value) or is_hex(value)) and not _is_row_id(value)


def is_secret_in_prose(kind: Kind, candidate: ValueSpan, words: list[str], *, introduced: bool) -> bool:
    """Return whether a value in a sentence is a secret; ``introduced``: the word "is" or a sign stands before it."""
    value = candidate.value[:JUDGED]
    if len(value) < _LEAST_IN_PROSE[kind] or kind is Kind.MAYBE:
        return False
    if b" " in value:
        return candidate.quoted and introduced and looks_like_phrase(candidate.value[:_LONGEST_PHRASE], kind)
    if is_placeholder(value) or is_known_harmless(value) or looks_like_template(value) or looks_like_expression(value):
        return False
    if kind is Kind.SECRET:
        return _is_key_in_prose(value, words, introduced=introduced)
    return _is_password_in_prose(value, introduced=introduced, quoted=candidate.quoted)


def _is_row_id(value: bytes) -> bool:
    """Return whether a value is the id of a row, a message or a cache entry: a UUID, a number or a short hash."""
    return is_uuid(value) or (is_hex(value) and len(value) < 32) or is_joined_words(_UUID_WITHIN.sub(b"uuid", value))


def _is_password_in_prose(value: bytes, *, introduced: bool, quoted: bool) -> bool:
    size, mix = len(value), count_character_classes(value)
    if quoted and mix >= 2 and has_digit(value):
        return True
    if size < 6 or looks_like_identifier(value):
        return False
    if introduced:
        return value.isdigit() or (mix >= 2 and (has_digit(value) or has_sign(value))) or has_unusual_case_mix(value)
    return (mix >= 3 and has_digit(value)) or (size >= 12 and looks_random(value))


def _is_key_in_prose(value: bytes, words: list[str], *, introduced: bool) -> bool:
    if (
        introduced
        and words[-1] == "secret"
        and count_character_classes(value) == 4
        and not looks_like_identifier(value)
    ):
        return True
    if not looks_random(value):
        return False
    size = len(value)
    if is_uuid(value) or is_hex(value):
        return (introduced or is_unmistakable_name(words)) and size >= 20
    return count_character_classes(value) >= 3 or size >= 20 or (introduced and size >= 16)


def looks_like_expression(value: bytes, *, literal: bool = False) -> bool:
    """Return whether an unquoted value is an expression: a name, a dotted name or a call."""
    field = _FIELD.match(value)
    if field is not None and share_of_words(field[1]) > 0.5:
        return True
    if _CODE.fullmatch(value) is None:
        # Passwords may contain operators of code, so a random mix of all character classes is not code.
        return _PROGRAM.search(value) is not None and not (count_character_classes(value) == 4 and looks_random(value))
    if _STRUCTURE.search(value) is None:
        return not has_digit(value) and share_of_words(value) > 0.6 and (not literal or not value.isalnum())
    return share_of_words(_STRUCTURE.split(value.replace(b".", b"_"))[0]) > 0.5 or share_of_words(value) > 0.6


def looks_like_phrase(value: bytes, kind: Kind) -> bool:
    """Return whether several words are a pass phrase, a wallet's recovery words or a mailbox's application password."""
    if _APP_PASSWORD.fullmatch(value):
        return kind is Kind.PASSWORD and sum(word not in _STOP_WORDS for word in value.split()) == 4
    if _WORDS.fullmatch(value) is None:
        return False
    words = re.split(rb"[ \-_.]", value.lower())
    if any(word in _STOP_WORDS for word in words):
        return False
    return (
        len(words) >= (3 if kind is Kind.PHRASE else 4)
        and kind is not Kind.SECRET
        and value == value.lower()
        and len(words) == len(set(words))
    )


def _is_spaced_password(value: bytes) -> bool:
    """Return whether a few words are a password with spaces: they contain a number and form no sentence."""
    words = value.split(b" ")
    if len(words) > 5 or is_placeholder(value) or is_known_harmless(value) or looks_like_template(value):
        return False
    if any(word.lower().strip(b".,:;!?()") in _STOP_WORDS for word in words):
        return False
    return has_digit(value) and (
        has_sign(value) or re.search(rb"\b[0-9]{3,}\b|[a-z][0-9]|[0-9][a-z]", value) is not None
    )


def looks_like_template(value: bytes) -> bool:
    return _INTERPOLATED.search(value) is not None


def looks_like_identifier(value: bytes) -> bool:
    """Return whether the value is itself a constant or the name of a secret, as in ``getenv("DB_PASSWORD")``."""
    if _CONSTANT.fullmatch(value):
        return True
    if has_sign(value) or _NUMBER.search(value):
        return False
    return classify_secret_name(split_into_words(value)) is not None and share_of_words(value) > 0.7


def looks_like_chosen_password(value: bytes, *, literal: bool, quoted: bool) -> bool:
    size = len(value)
    if size < 4 or (looks_like_identifier(value) and (not has_digit(value) or not literal)):
        return False
    if has_digit(value):
        return has_letter(value) or size >= 5
    if has_sign(value):
        return True
    if looks_random(value) or has_unusual_case_mix(value):
        return True
    return literal and size >= 6 and value.isalpha() and value not in (value.upper(), value.title()) and not quoted


def looks_like_key(value: bytes, *, literal: bool) -> bool:
    size = len(value)
    if size < 8 or not has_letter(value):
        return False
    if is_uuid(value) or is_hex(value) or looks_random(value):
        return True
    if has_sign(value.rstrip(b"=")) and has_digit(value):
        return not looks_like_identifier(value)
    return (
        literal
        and (has_digit(value) or size >= 12)
        and share_of_words(value) < 0.7
        and not looks_like_identifier(value)
    )

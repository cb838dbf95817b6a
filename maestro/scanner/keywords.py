"""The kind of secret that a value's name announces: a password, a pass phrase, a generated secret, or none."""

import re
from enum import Enum, auto
from itertools import pairwise

from maestro.scanner.rule_files import word_set
from maestro.scanner.tokens import latin_pattern


class Kind(Enum):
    """The kind of secret that a name announces: chosen by a person, several words, generated, or perhaps generated."""

    PASSWORD = auto()
    PHRASE = auto()
    SECRET = auto()
    MAYBE = auto()


_OPEN = ("public", "publishable", "no", "hash")
_SECRET_ENDS = ("secret", "apikey", "accesskey", "secretkey", "authtoken", "accesstoken")

_STEMS = (
    rb"pass|pwd|(?:\b|_)pw(?:\b|_)|psw|contrase|senha|kennwort|parol|haslo|heslo|wachtwoord|lozinka|losenord"
    rb"|salasana|jelszo|sifre|adgangskode|mot de passe|mdp|clave|kata sandi|geslo|parool|mat khau|paswoord"
    rb"|secret|token|key|cred|bearer|auth|jwt|bip39|recovery|wallet|\bpat\b|psk|mnemonic|seed|sas|dsn|webhook|requirepass|geheim|schluessel"
    rb"|connection|bindpw|rootpw|pepper|salt"
)
_SPLIT = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def name_stem_pattern() -> object:
    """Return the pattern of word stems, in any case; every name of a secret contains at least one of them."""
    return latin_pattern(_STEMS, any_case=True)


def words_of(name: bytes) -> list[str]:
    """Return the words of an identifier in lower case, for example of ``api_key`` or ``apiKey``."""
    return [word.decode().lower() for word in _SPLIT.findall(name)]


def secret_kind(words: list[str]) -> Kind | None:
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


def is_unmistakable(words: list[str]) -> bool:
    """Return whether the name contains a word or a pair that always means a secret, such as "access token"."""
    secrets = ("key", "token", "secret", "password", "credential", "credentials")
    return any(first in word_set("two_words") and second in secrets for first, second in pairwise(words)) or any(
        word in ("apikey", "password", "passwd", "secret", "passphrase") for word in words
    )

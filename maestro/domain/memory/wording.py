"""Words in every script, for comparing what was written and for finding it again."""

import re
import unicodedata

MOST_WORDS = 32
"""How many words of a query are looked for; each takes two looks into the index."""

MOST_CHARS = 4_000
"""How much of a query is read; who pastes a whole page looks for what it begins with."""

NO_BLANKS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese, Chinese
    "\U00020000-\U0003ffff"
)
"""Characters of scripts that put no blanks between words."""

_UNSPACED = re.compile(f"([{NO_BLANKS}])")
_RUN = re.compile(f"[{NO_BLANKS}]+|[^{NO_BLANKS}]+")
_BETWEEN = re.compile(r"[\s!\"$-&(-*,\-./:-@\[-^`{-~\x00-\x1f\x7f¡«»¿\u2000-\u206f\u3000-\u303f\ud800-\udfff]+")
_SAME = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "−": "-", "\x00": " "})


def plain(text: str) -> str:
    """Return the text with one form for what looks the same: wide letters, ligatures, apostrophes."""
    return unicodedata.normalize("NFKC", text).translate(_SAME)


def spaced(text: str) -> str:
    """Return the text with blanks around every character of a script that has none between words."""
    return _UNSPACED.sub(r" \1 ", text)


def indexed(text: str) -> str:
    """Return a text as the index is given it: in one form, without case, its words apart."""
    return " ".join(spaced(plain(text).casefold()).split())


def wanted(query: str) -> tuple[str, ...]:
    """Return what to look for, each once: words, and of scripts without blanks every two characters together.

    ``C++``, ``C#``, ``what's`` and ``snake_case`` are words. Nothing is left of a text without letters and digits.
    """
    text = plain(query[:MOST_CHARS]).casefold()
    found = [piece for word in _BETWEEN.split(text) for run in _RUN.findall(word) for piece in _pieces(run)]
    told = [piece.strip("'") for piece in found if any(map(str.isalnum, piece))]
    return tuple(dict.fromkeys(told))[:MOST_WORDS]


def _pieces(run: str) -> list[str]:
    if not _UNSPACED.match(run):
        return [run]
    return [" ".join(run[at : at + 2]) for at in range(max(1, len(run) - 1))]

"""Secrets that are written so that a program does not see them: folded text finds them, the original is redacted."""

import random
import time

import pytest

from maestro.domain.redaction import redact_spans
from maestro.scanner.plugin import TextFolder
from maestro.scanner.scanner import ShippedRules
from tests.support.secret_corpus import draw

CYRILLIC = str.maketrans("aeopcxAEOPCXHKMTB", "аеорсхАЕОРСХНКМТВ")
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
BOLD = {**{ord("a") + n: 0x1D41A + n for n in range(26)}, **{ord("A") + n: 0x1D400 + n for n in range(26)}}


@pytest.fixture(scope="module")
def rules() -> ShippedRules:
    return ShippedRules()


def token(seed: int = 1) -> str:
    return draw(random.Random(seed), "ghp_{A36}")


def joined(separator: str, text: str) -> str:
    return separator.join(text)


@pytest.mark.parametrize(
    "hidden",
    [
        joined("\u200b", token()),
        joined("\u00ad", token()),
        joined("\ufe0f", token()),
        joined("\u202a", token()),
        joined("\u0301", token()),
        token().translate(CYRILLIC),
        token().translate(FULL_WIDTH),
        token().translate(BOLD),
        token().replace("_", "\\_"),
        token().replace("_", "%5F"),
        token().replace("_", "&#95;"),
        token().replace("_", "\\u005f"),
    ],
)
def test_a_hidden_token_is_gone_whole(rules: ShippedRules, hidden: str) -> None:
    text = f"see {hidden} there"
    assert redact_spans(text, rules.find_spans(text, time.monotonic() + 60)) == "see [redacted] there"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("пароль: {0}", "пароль: [redacted]"),
        ("密码：{0}", "密码：[redacted]"),
        ("パスワードは {0}", "パスワードは [redacted]"),
        ("비밀번호는 {0}", "비밀번호는 [redacted]"),
        ("p\u0430ssword={0}", "p\u0430ssword=[redacted]"),
        ("“password”: “{0}”", "“password”: “[redacted]”"),
    ],
)
def test_names_in_other_alphabets_count(rules: ShippedRules, text: str, clean: str) -> None:
    said = text.format("Xy7kq2Lm" + "9Q")
    assert redact_spans(said, rules.find_spans(said, time.monotonic() + 60)) == clean


@pytest.mark.parametrize("word", ["κωδικόσ", "ΚΩΔΙΚΌΣ", "парᲂль", "ᲃекрет"])
def test_every_form_of_a_letter_is_known(rules: ShippedRules, word: str) -> None:
    said = f"{word}: {token()}"
    assert redact_spans(said, rules.find_spans(said, time.monotonic() + 60)) == f"{word}: [redacted]"


def test_a_text_without_a_secret_stays_as_it_is(rules: ShippedRules) -> None:
    text = "Забули пароль? Натисніть тут 🙂 – ｆｕｌｌ width, a\u200bb, caf\u00e9, C:\\new\\table, 100%25 &amp; more"
    assert not rules.find_spans(text, time.monotonic() + 60)


def test_places_lead_back_to_the_original() -> None:
    text = "a\u200bé\\_Я%41"
    plain, unescaped = TextFolder().list_folded_forms(text)
    assert plain.data == b"ae\\_\xff%41"
    assert [plain.original_range(n, n + 1).start for n in range(4)] == [0, 2, 3, 4]
    assert unescaped.data == b"ae_\xffA"
    assert (unescaped.original_range(2, 3).start, unescaped.original_range(2, 3).end) == (3, 5)
    assert (unescaped.original_range(4, 5).start, unescaped.original_range(4, 5).end) == (6, 9)

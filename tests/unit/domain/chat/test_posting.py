"""What becomes of a post before it is stored: secrets out, cut to size, the note once."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maestro.domain.agent_chat import NOTE, TRUNCATED, scan_post
from maestro.domain.redaction import LOOK_AHEAD, ScanResult, ScanRules, TextSpan, merge_spans, redact_spans
from maestro.scanner.scanner import DetectSecretsScanner
from tests.support.secret_corpus import MARKED, draw

LIMIT = 4096
RULES = ScanRules(timeout_ms=60_000)


@pytest.fixture(scope="module")
def scanner() -> Iterator[DetectSecretsScanner]:
    made = DetectSecretsScanner()
    yield made
    made.end_processes()


class Nothing:
    """Finds nothing, and says what it was asked."""

    def __init__(self, error: str = "") -> None:
        self.asked: list[str] = []
        self.error = error

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        self.asked.append(text)
        return ScanResult(text, (), self.error)


def token(seed: int = 1) -> str:
    return draw(random.Random(seed), "ghp_{A36}")


def test_a_short_post_stays_as_it_is() -> None:
    assert scan_post("hello", LIMIT, Nothing(), RULES).text == "hello"
    assert scan_post("x" * LIMIT, LIMIT, Nothing(), RULES).text == "x" * LIMIT


def test_a_long_post_is_cut_to_the_limit_suffix_included() -> None:
    prepared = scan_post("x" * (LIMIT + 1), LIMIT, Nothing(), RULES)
    assert prepared.text == "x" * (LIMIT - len(TRUNCATED)) + TRUNCATED
    assert len(prepared.text) == LIMIT
    assert prepared.truncated
    assert not prepared.redacted


@pytest.mark.parametrize(
    "whole", ["e\u0301", "👨\u200d👩\u200d👧", "👍🏽", "❤\ufe0f", "कि", "🏴\U000e0067\U000e0062\U000e007f"]
)
def test_a_cut_leaves_no_half_of_what_people_see_as_one(whole: str) -> None:
    for before in range(len(whole)):
        text = "x" * (100 - len(TRUNCATED) - before) + whole + "y" * 100
        kept = scan_post(text, 100, Nothing(), RULES).text.removesuffix(TRUNCATED)
        assert kept.rstrip("xy") in ("", whole)


def test_a_secret_is_gone_and_noted(scanner: DetectSecretsScanner) -> None:
    assert scan_post(f"use {token()} now", LIMIT, scanner, RULES).text == f"use [redacted] now{NOTE}"


def test_two_secrets_make_one_note(scanner: DetectSecretsScanner) -> None:
    text = scan_post(f"use {token(1)} or {token(2)}", LIMIT, scanner, RULES).text
    assert text == f"use [redacted] or [redacted]{NOTE}"


def test_a_text_that_ends_in_the_note_is_not_noted_twice(scanner: DetectSecretsScanner) -> None:
    assert scan_post(f"use {token()}{NOTE}", LIMIT, scanner, RULES).text == f"use [redacted]{NOTE}"
    assert scan_post(f"use [redacted]{NOTE}", LIMIT, scanner, RULES).text == f"use [redacted]{NOTE}"


def test_a_mark_or_a_note_alone_says_nothing(scanner: DetectSecretsScanner) -> None:
    for text in ("what does [redacted] mean?", f"it says{NOTE} there", "password: [redacted]"):
        prepared = scan_post(text, LIMIT, scanner, RULES)
        assert (prepared.text, prepared.redacted) == (text, False)


def test_cut_and_redacted_the_note_comes_last(scanner: DetectSecretsScanner) -> None:
    text = scan_post(f"{token()} " + "x" * LIMIT, LIMIT, scanner, RULES).text
    assert text.startswith("[redacted] xxx")
    assert text.endswith(f"x{TRUNCATED}{NOTE}")


def test_a_secret_across_the_cut_leaves_no_character(scanner: DetectSecretsScanner) -> None:
    rng = random.Random(3)
    for kind in ("github classic", "aws access key", "openai project", "jwt", "stripe live", "slack bot"):
        value = draw(rng, MARKED[kind])
        for inside in (1, 4, len(value) // 2, len(value) - 1):
            before = "word " * ((LIMIT - len(TRUNCATED) - inside) // 5)
            before = before.ljust(LIMIT - len(TRUNCATED) - inside)
            text = scan_post(f"{before}{value} and more " + "x " * 40, LIMIT, scanner, RULES).text
            assert text == f"{before}[redacted]{TRUNCATED}{NOTE}", (kind, inside)


def test_a_secret_beyond_the_cut_is_not_noted(scanner: DetectSecretsScanner) -> None:
    assert scan_post("x " * LIMIT + token(), LIMIT, scanner, RULES).text.endswith(f"x {TRUNCATED}"[-20:])
    assert not scan_post("x " * LIMIT + token(), LIMIT, scanner, RULES).redacted


def test_a_second_pass_changes_nothing(scanner: DetectSecretsScanner) -> None:
    rng = random.Random(4)
    for pattern in MARKED.values():
        once = scan_post(f"first {draw(rng, pattern)}, then {draw(rng, pattern)}.", LIMIT, scanner, RULES).text
        assert scan_post(once, LIMIT, scanner, RULES).text == once


def test_it_is_scanned_before_and_after_the_cut_and_no_further_than_needed() -> None:
    scanner = Nothing()
    scan_post("x" * 100_000, LIMIT, scanner, RULES)
    assert [len(text) for text in scanner.asked] == [LIMIT + LOOK_AHEAD, LIMIT - len(TRUNCATED)]


def test_what_could_not_be_scanned_is_kept_and_says_why() -> None:
    prepared = scan_post("what I said", LIMIT, Nothing("out of order"), RULES)
    assert (prepared.text, prepared.redacted, prepared.error) == ("what I said", False, "out of order")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_spans_are_told_apart_and_in_order(pairs: list[tuple[int, int]]) -> None:
    spans = merge_spans(TextSpan(min(pair), max(pair)) for pair in pairs)
    assert all(first.end < second.start for first, second in pairwise(spans))
    covered = {place for low, high in map(sorted, pairs) for place in range(low, high)}
    assert covered == {place for span in spans for place in range(span.start, span.end)}
    text = "".join(chr(0x100 + place) for place in range(30))
    left = redact_spans(text, spans).replace("[redacted]", "")
    assert left == "".join(character for place, character in enumerate(text) if place not in covered)

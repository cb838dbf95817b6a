"""How much of what is drawn from a seed is found whole, and how much of what is harmless is left alone."""

import time
from collections import Counter
from collections.abc import Iterable

import pytest

from maestro.domain.redaction import TextSpan, redact_spans
from maestro.scanner.scanner import ShippedRules
from tests.support import platform_texts, secret_corpus, stranger_corpus
from tests.support.harmless_texts import harmless
from tests.support.secret_corpus import Sample

LONG = 60.0


@pytest.fixture(scope="module")
def rules() -> ShippedRules:
    return ShippedRules()


def missed(rules: ShippedRules, samples: Iterable[Sample]) -> tuple[int, Counter[str]]:
    """Count the texts, and those of which a secret keeps a character, by kind."""
    total, kinds = 0, Counter[str]()
    for sample in samples:
        total += 1
        if not all(_is_covered(rules, sample.text, place, len(sample.secret)) for place in _places(sample)):
            kinds[f"{sample.kind}, {sample.form}"] += 1
    return total, kinds


def _places(sample: Sample) -> list[int]:
    places, at = [], sample.text.find(sample.secret)
    while at >= 0:
        places.append(at)
        at = sample.text.find(sample.secret, at + 1)
    assert places, sample
    return places


def _is_covered(rules: ShippedRules, text: str, start: int, size: int) -> bool:
    spans = rules.find_spans(text, time.monotonic() + LONG)
    return any(span.start <= start and start + size <= span.end for span in spans)


def test_there_are_kinds_enough() -> None:
    assert len(secret_corpus.MARKED) + len(secret_corpus.NAMED) > 80
    assert len(stranger_corpus.MARKED) + len(stranger_corpus.NAMED) > 150


@pytest.mark.parametrize("draw", [secret_corpus.marked, secret_corpus.named, secret_corpus.blocks])
def test_ninety_nine_of_a_hundred_secrets_are_gone_to_the_last_character(rules: ShippedRules, draw: object) -> None:
    total, kinds = missed(rules, draw(seed=11, count=4))  # type: ignore[operator]
    assert kinds.total() <= total / 100, kinds


@pytest.mark.parametrize("draw", [stranger_corpus.marked, stranger_corpus.named])
def test_so_are_those_of_other_kinds_in_other_surroundings(rules: ShippedRules, draw: object) -> None:
    total, kinds = missed(rules, draw(seed=12, count=4))  # type: ignore[operator]
    assert kinds.total() <= total / 100, kinds


def test_at_most_one_of_a_thousand_harmless_texts_is_changed(rules: ShippedRules) -> None:
    changed = [
        (kind, text) for kind, text in harmless(seed=13, count=1000) if rules.find_spans(text, time.monotonic() + LONG)
    ]
    assert len(changed) <= 1, changed


@pytest.mark.parametrize("seed", [15, time.time_ns()], ids=["fixed", "fresh"])
def test_texts_of_platform_teams_lose_their_secrets_and_nothing_else(rules: ShippedRules, seed: int) -> None:
    kept, changed = [], []
    for text, secrets in platform_texts.secrets(seed, 1000):
        clean = redact_spans(text, rules.find_spans(text, time.monotonic() + LONG))
        if any(secret in clean for secret in secrets) or not _all_covered(rules, text, secrets):
            kept.append(text)
    for text in platform_texts.harmless(seed, 5000):
        if rules.find_spans(text, time.monotonic() + LONG):
            changed.append(text)
    assert (len(kept) <= 10, len(changed) <= 5) == (True, True), (seed, kept, changed)


@pytest.mark.parametrize(
    "password",
    [
        *("2024.Winter!x", "2024/Winter!x", "2024#Winter!x", "2024?Winter!x", "2024.Winter?x", "12345,abC"),
        *("99|Bottles", "1234)x", "1234"),
    ],
)
def test_a_password_that_begins_with_digits_is_no_port(rules: ShippedRules, password: str) -> None:
    text = f"postgres://u:{password}@db.internal:5432/app"
    assert (
        redact_spans(text, rules.find_spans(text, time.monotonic() + LONG))
        == "postgres://u:[redacted]@db.internal:5432/app"
    )


@pytest.mark.parametrize("body", ["AbCd3fGhIjKl1nOpQrSt", "a1b2c3d4e5f6a7b8c9d0.01.0a1b2c3d4", "0123456789abcdef" * 2])
def test_a_trigger_token_has_more_than_one_shape(rules: ShippedRules, body: str) -> None:
    text = "glptt" + f"-{body}"
    assert rules.find_spans(text, time.monotonic() + LONG) == (TextSpan(0, len(text)),)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "http://localhost:3000/@ana",
            "see http://localhost:8080, or ask bob@example.org",
            "kafka://h1:9092,h2:9092/t",
        ),
        *("https://host.example.org:8080/users/bob@example.com/edit", "http://api:8080/path?email=bob@example.com"),
        *(
            "ssh://git@host.example.com:2222/x.git",
            "http://localhost:8080,bob@example.org",
            "webhook.example.com:80/a?b=2",
        ),
        *("task-proj-1234-fix-the-login-page-on-mobile", "risk-proj-q3-2026-review-of-vendors-and-costs"),
        *("disk-ant-build-cache-cleanup-nightly-job", "Merge branch 'risk-live-trading-2026' into main"),
        *("dedup key: msg-705227538790", "kafka key: order-2026-11-22-000123", "grouping key: 3f786850e387550f"),
        *(
            "memcache key: session:user:1234567890123",
            "registration key: reg-2026-000123456",
            "map key: a1b2c3d4e5f60718",
        ),
        *("fix-the-login-page dedup key: msg-705227538790", "KeyError: 'password'\nrelease/2026.11.22-with-new-pages"),
        "the secret lives in the vault. idempotency-key: 4a2c69ae-f272-440c-885f-11a27b6d8337",
        *("message key = 01JD8XV3N5Q2W7R9T4Y6Z8A1B2", "object key: 8f14e45f-ceea-467f-ab5b-1b2c3d4e5f60/photo.jpg"),
    ],
)
def test_ports_branches_and_keys_of_rows_stay(rules: ShippedRules, text: str) -> None:
    assert rules.find_spans(text, time.monotonic() + LONG) == ()


def _all_covered(rules: ShippedRules, text: str, secrets: tuple[str, ...]) -> bool:
    return all(_is_covered(rules, text, text.find(secret), len(secret)) for secret in secrets)


def test_a_second_scan_finds_nothing_more(rules: ShippedRules) -> None:
    for draw in (secret_corpus.marked, secret_corpus.named, secret_corpus.blocks, stranger_corpus.named):
        for sample in draw(seed=14, count=1):
            once = redact_spans(sample.text, rules.find_spans(sample.text, time.monotonic() + LONG))
            assert not rules.find_spans(once, time.monotonic() + LONG), once

"""How much of what is drawn from a seed is found whole, and how much of what is harmless is left alone."""

import time
from collections import Counter
from collections.abc import Iterable

import pytest

from maestro.domain.scanning import redact
from maestro.scanner.rules import Rules
from tests.support import secret_corpus, stranger_corpus
from tests.support.harmless_texts import harmless
from tests.support.secret_corpus import Sample

LONG = 60.0


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def missed(rules: Rules, samples: Iterable[Sample]) -> tuple[int, Counter[str]]:
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


def _is_covered(rules: Rules, text: str, start: int, size: int) -> bool:
    spans = rules.spans(text, time.monotonic() + LONG)
    return any(span.start <= start and start + size <= span.end for span in spans)


def test_there_are_kinds_enough() -> None:
    assert len(secret_corpus.MARKED) + len(secret_corpus.NAMED) > 80
    assert len(stranger_corpus.MARKED) + len(stranger_corpus.NAMED) > 150


@pytest.mark.parametrize("draw", [secret_corpus.marked, secret_corpus.named, secret_corpus.blocks])
def test_ninety_nine_of_a_hundred_secrets_are_gone_to_the_last_character(rules: Rules, draw: object) -> None:
    total, kinds = missed(rules, draw(seed=11, count=4))  # type: ignore[operator]
    assert kinds.total() <= total / 100, kinds


@pytest.mark.parametrize("draw", [stranger_corpus.marked, stranger_corpus.named])
def test_so_are_those_of_other_kinds_in_other_surroundings(rules: Rules, draw: object) -> None:
    total, kinds = missed(rules, draw(seed=12, count=4))  # type: ignore[operator]
    assert kinds.total() <= total / 100, kinds


def test_at_most_one_of_a_thousand_harmless_texts_is_changed(rules: Rules) -> None:
    changed = [
        (kind, text) for kind, text in harmless(seed=13, count=1000) if rules.spans(text, time.monotonic() + LONG)
    ]
    assert len(changed) <= 1, changed


def test_a_second_scan_finds_nothing_more(rules: Rules) -> None:
    for draw in (secret_corpus.marked, secret_corpus.named, secret_corpus.blocks, stranger_corpus.named):
        for sample in draw(seed=14, count=1):
            once = redact(sample.text, rules.spans(sample.text, time.monotonic() + LONG))
            assert not rules.spans(once, time.monotonic() + LONG), once

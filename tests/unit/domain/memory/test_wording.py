"""Words in every script: what an index is given, and what a query looks for."""

import pytest

from maestro.domain.memory.likeness import MOST_WORDS, index_text, search_terms


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("what's up?", ("what's", "up")),
        ("What’s UP", ("what's", "up")),
        ("C++? F# and GRÖSSE!", ("c++", "f#", "and", "grösse")),
        ("Straße", ("strasse",)),
        ("a-b", ("a", "b")),
        ("snake_case", ("snake_case",)),
        ("AND", ("and",)),
        ("NEAR(x, 2)", ("near", "x", "2")),
        ('"quoted" OR (NOT x*)', ("quoted", "or", "not", "x")),
        ("тёмный чай", ("тёмный", "чай")),
        ("हिन्दी भाषा", ("हिन्दी", "भाषा")),
        ("東京", ("東 京",)),
        ("東京に住むGrace", ("東 京", "京 に", "に 住", "住 む", "grace")),
        ("茶", ("茶",)),
        ("ＣＡＴ", ("cat",)),
        ("tea tea TEA", ("tea",)),
        ("te\ud800a", ("te", "a")),
    ],
)
def test_a_query_is_words(query: str, words: tuple[str, ...]) -> None:
    assert search_terms(query) == words


@pytest.mark.parametrize("query", ["", "  \n", "?!", "()", "🎉", "'", '"', "\x00", "* - ^ :", "。、"])
def test_what_has_no_words_looks_for_nothing(query: str) -> None:
    assert search_terms(query) == ()


@pytest.mark.parametrize("word", ["word{} ", "東{}京", "x", "'", "\x00{}"])
def test_a_query_of_any_length_is_a_few_words(word: str) -> None:
    page = "".join(word.format(number) for number in range(300_000 // len(word)))
    assert len(search_terms(page)) <= MOST_WORDS
    assert sum(map(len, search_terms(page))) < 5_000


def test_characters_of_scripts_without_blanks_are_indexed_one_by_one() -> None:
    assert index_text("Grace は東京に住む。Cafés  C++") == "grace は 東 京 に 住 む cafes c++"

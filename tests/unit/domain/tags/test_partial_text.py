"""What is shown of an answer while it is written is never a tag, nor what one holds, and grows from the left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maestro.domain.tags.grammar import parse_answer, visible_so_far
from tests.unit.domain.tags.test_any_text import ANY_TEXT, FRAGMENTS, TEXTS

WORDS = FRAGMENTS | st.sampled_from(["one two ", "secret ", "[/MEMORY]", "[MEMORY:k] secret [/MEMORY]", "\n\n", "[ME"])


def letters(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("", ""),
        (" Hello ", "Hello"),
        ("Hello [", "Hello"),
        ("Hello [mem", "Hello"),
        ("Hello [MEMORY", "Hello"),
        ("Hello [MEMORY:k", "Hello"),
        ("Hello [MEMORY:k] likes", "Hello"),
        ("Hello [MEMORY:k] likes tea [/MEM", "Hello"),
        ("Hello [MEMORY:k] likes tea [/MEMORY] and", "Hello and"),
        ("Hello [/STATE", "Hello"),
        ("[1] and [x](y) [state your name", "[1] and [x](y) [state your name"),
        ("[state ", ""),
        ("see [a", "see [a"),
        ("```\n[STATE:x]", "```"),
        ("a [D[STATE:k] v [/STATE]", "a"),
    ],
)
def test_what_is_shown(written: str, shown: str) -> None:
    assert visible_so_far(written) == shown


@ANY_TEXT
@given(TEXTS)
def test_every_text_can_be_read(text: str) -> None:
    visible_so_far(text)


@ANY_TEXT
@given(st.lists(WORDS, max_size=12).map("".join))
def test_what_is_shown_is_the_beginning_of_what_will_be_seen(text: str) -> None:
    whole, before = letters(parse_answer(text).visible), ""
    for end in range(len(text) + 1):
        shown = letters(visible_so_far(text[:end]))
        assert whole.startswith(shown)
        assert shown.startswith(before) or before.startswith(shown)
        before = shown

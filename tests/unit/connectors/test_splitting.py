"""Long answers are cut where a reader would cut them, and nothing of them is lost."""

import random
import re
from collections.abc import Iterator

import pytest

from connectors.base import LengthUnit
from connectors.markdown import MINIMUM, split_markdown, text_length

UNITS = tuple(LengthUnit)
EMOJI = ("👩‍👩‍👧‍👦", "👍🏽", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️", "🇩🇪", "e\u0301", "각", "नि", "👨🏿‍🚀")
WORDS = (
    "a",
    "word",
    "Donaudampfschifffahrtsgesellschaft",
    "x" * 90,
    "東京は大きい。",
    "…",
    "https://example.org/" + "q" * 40,
)
FENCE_LINE = re.compile(r"\s*(`{3,}[^`]*|~{3,}.*)$")


def split(text: str, limit: int, unit: LengthUnit) -> tuple[str, ...]:
    """Split for a platform that takes Markdown as it is."""
    return split_markdown(text, limit, lambda part: text_length(part, unit))


def test_text_that_fits_is_left_alone() -> None:
    assert split("  ```py\nopen", 64, LengthUnit.CODE_POINTS) == ("  ```py\nopen",)


@pytest.mark.parametrize("blank", ["", " ", "\n\n", " \t\n" * 100])
def test_blank_text_gives_no_chunk(blank: str) -> None:
    assert split(blank, 64, LengthUnit.UTF16) == ()


def test_a_limit_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="64"):
        split("text", MINIMUM - 1, LengthUnit.CODE_POINTS)


def test_a_paragraph_border_is_preferred() -> None:
    first, second = "One. " * 8 + "One.", "Two. " * 8 + "Two."
    assert split(f"{first}\n\n{second}", 70, LengthUnit.CODE_POINTS) == (first, second)


def test_a_line_border_comes_next_and_indentation_stays() -> None:
    first, second = "- one " * 8 + "end", "  - two " * 5 + "end"
    assert split(f"{first}\n{second}", 70, LengthUnit.CODE_POINTS) == (first, second)


def test_a_sentence_border_comes_before_a_word_border() -> None:
    chunks = split(
        "The first sentence ends right here. " + "And the second one goes on and on and on.", 64, LengthUnit.UTF16
    )
    assert chunks[0] == "The first sentence ends right here."


def test_a_word_stays_whole() -> None:
    text = " ".join(["wonderful"] * 40)
    assert {word for chunk in split(text, 64, LengthUnit.CODE_POINTS) for word in chunk.split()} == {"wonderful"}


def test_a_fence_is_closed_and_opened_again_with_its_info_string() -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(20))
    chunks = split(f"See:\n```python title=x\n{code}\n```\nDone.", 120, LengthUnit.CODE_POINTS)
    assert len(chunks) > 2
    assert all("```python title=x\n" in chunk for chunk in chunks if "line_" in chunk)
    assert all(chunk.count("```") % 2 == 0 for chunk in chunks)
    assert not any("```python title=x\n```" in chunk for chunk in chunks)


@pytest.mark.parametrize("end", ["```", "``````  "])
def test_no_chunk_shows_an_empty_block(end: str) -> None:
    code = "\n".join(f"line {n}" for n in range(40))
    for limit in range(64, 200):
        chunks = split(f"Some words.\n```py\n{code}\n{end}\n\nMore words follow here.", limit, LengthUnit.CODE_POINTS)
        assert not any(re.search(r"```py\n`+\s*$", chunk, re.MULTILINE) for chunk in chunks), limit


def test_prose_before_a_fence_goes_without_it() -> None:
    prose = "Some words about the code that follows, long enough to be a chunk."
    code = "```sh\nmake up\n\nmake test\n```"
    assert split(f"{prose}\n\n{code}", 80, LengthUnit.CODE_POINTS) == (prose, code)


def test_a_longer_fence_is_not_closed_by_a_shorter_one() -> None:
    inner = "\n".join("```\nquoted\n```" for _ in range(10))
    chunks = split(f"````md\n{inner}\n````", 100, LengthUnit.CODE_POINTS)
    assert all(chunk.startswith("````md\n") and chunk.endswith("\n````") for chunk in chunks)


def test_a_fence_left_open_is_closed_in_every_chunk() -> None:
    chunks = split("~~~\n" + "code\n" * 60, 80, LengthUnit.CODE_POINTS)
    assert all(chunk.startswith("~~~\n") and chunk.endswith("\n~~~") for chunk in chunks)


def test_utf16_counts_an_emoji_twice() -> None:
    text = "🙂" * 100
    assert [len(chunk) for chunk in split(text, 64, LengthUnit.UTF16)] == [32, 32, 32, 4]
    assert [len(chunk) for chunk in split(text, 64, LengthUnit.CODE_POINTS)] == [64, 36]


def test_flags_are_cut_between_pairs() -> None:
    text = "🇩🇪🇫🇷" * 40
    assert all(text_length(chunk, LengthUnit.CODE_POINTS) % 2 == 0 for chunk in split(text, 65, LengthUnit.CODE_POINTS))


def test_a_character_longer_than_a_chunk_is_cut_all_the_same() -> None:
    text = "z" + "\u0301" * 300
    chunks = split(text, 64, LengthUnit.CODE_POINTS)
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= 64


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("limit", [64, 120, 200, 500, 2000])
def test_any_document_keeps_every_promise(limit: int, unit: LengthUnit) -> None:
    for seed in range(50):
        text = document(random.Random(seed * 10_000 + limit))
        chunks = split(text, limit, unit)
        assert all(chunk.strip() for chunk in chunks), seed
        assert max(text_length(chunk, unit) for chunk in chunks) <= limit, seed
        assert [mark for chunk in chunks for mark in marks(chunk)] == list(marks(text)), seed
        assert all(balanced(chunk) for chunk in chunks) or len(chunks) == 1, seed
        for emoji in EMOJI:
            assert sum(chunk.count(emoji) for chunk in chunks) == text.count(emoji), (seed, emoji)


def document(source: random.Random) -> str:
    """Return random Markdown: prose, lists, code with and without an end, and characters made of several."""
    blocks = [_block(source) for _ in range(source.randint(1, 12))]
    return "".join(block + source.choice(["\n", "\n\n", "\n \n"]) for block in blocks)


def _block(source: random.Random) -> str:
    kind = source.random()
    if kind < 0.4:
        return _prose(source, source.randint(1, 60))
    if kind < 0.6:
        return "\n".join("  " * source.randint(0, 3) + "- " + _prose(source, 6) for _ in range(source.randint(1, 8)))
    return _code(source)


def _prose(source: random.Random, words: int) -> str:
    return (
        source.choice(["", "\r\n"]).join(_word(source) + source.choice([" ", ". ", "  "]) for _ in range(words)) + "end"
    )


def _word(source: random.Random) -> str:
    return source.choice(EMOJI) * source.randint(1, 3) if source.random() < 0.2 else source.choice(WORDS)


def _code(source: random.Random) -> str:
    marker = source.choice(["```", "````", "~~~"])
    info = source.choice(["", "py", "c++ title=a", "i" * 40 if marker != "~~~" else "x"])
    lines = [
        "    " * source.randint(0, 2) + _word(source) + source.choice(["", " ", "y" * 150])
        for _ in range(source.randint(0, 15))
    ]
    end = [] if source.random() < 0.1 else [marker]
    indent = source.choice(["", "", "  ", "    "])
    return "\n".join(indent + line for line in [marker + info, *lines, *end])


def marks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each visible character outside fence lines, and whether it is code."""
    marker = ""
    for line in text.splitlines():
        found = FENCE_LINE.match(line)
        bare = line.strip()
        if marker and bare and set(bare) == {marker[0]} and len(bare) >= len(marker):
            marker = ""
        elif not marker and found:
            marker = bare[: len(bare) - len(bare.lstrip(bare[0]))]
        else:
            yield from ((character, bool(marker)) for character in line if not character.isspace())


def balanced(chunk: str) -> bool:
    """Tell whether a line after the chunk would be prose."""
    return list(marks(chunk + "\nQ"))[-1] == ("Q", False)

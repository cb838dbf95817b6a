"""What holds for the tags of any text that a model may write (docs/decisions.md: tags)."""

import re
import sys
from time import process_time
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.tags import grammar, markdown
from maestro.domain.tags.grammar import TagName, parse_answer

ANY_TEXT = settings(derandomize=True, deadline=None, database=None, max_examples=400)

NAMES = "|".join(TagName)
KNOWN = re.compile(rf"\[/?(?:{NAMES})(?::[^\[\]\n]*)?\]", re.IGNORECASE)
BLOCK = re.compile(r"\s*(?:>|#{1,6}(?:\s|$)|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$))")
FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(`{3,}(?=[^`]*$)|~{3,})")

FRAGMENTS = st.sampled_from(
    [
        *(f"[{name}{key}]" for name in ("MEMORY", "state", "DELEGATE") for key in ("", ":k", ":k wait", ": k", ":")),
        *(f"[/{name}]" for name in ("MEMORY", "state", "DELEGATE", "CREATE_CRON")),
        *("[CREATE_CRON]", "[CREATE_CRON:x]", "[UPDATE_AGENT:a]", "[MEMORY", "[STATE:", "STATE:k]", "[", "]"),
        *(
            "`",
            "``",
            "```",
            "````",
            "~~~",
            "\\",
            "\n",
            "\n\n",
            "\n\n\n",
            "\n```\n",
            "\n~~~\n",
            "\n- ",
            "\n> ",
            "\n- ```\n",
            "\n> ~~~\n",
        ),
        *(" ", "  ", "\t", "a", "b c", ".", "é", "\r\n", "\x0b", "\u2028"),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=30).map("".join) | st.text()


def outside_code(text: str) -> str:
    """Return the text with every character of code replaced; slow and simple, line by line."""
    shown: list[str] = []
    paragraph: list[str] = []
    fence, prefix = "", ""
    for line in text.split("\n"):
        if fence and not leaves(line, prefix):
            closing = re.fullmatch(rf"([\s>]*){re.escape(fence[0])}{{{len(fence)},}}\s*", line)
            fence = "" if closing and (">" in closing[1]) == (">" in prefix) else fence
            continue
        fence = ""
        opening = FENCE.match(line)
        if opening or BLOCK.match(line) or not line.strip():
            shown.append(without_spans("\n".join(paragraph)))
            paragraph = []
        if opening:
            fence, prefix = opening[1], line[: opening.start(1)]
            shown.append(prefix)
        else:
            paragraph.append(line)
    return "\n".join([*shown, without_spans("\n".join(paragraph))])


def leaves(line: str, prefix: str) -> bool:
    """Say whether a line is outside of the quote, or the list's entry, that a fence with this prefix began in."""
    if ">" in prefix:
        return not line.lstrip().startswith(">")
    indentation = len(line) - len(line.lstrip())
    return bool(prefix.strip() and line.strip() and indentation < len(prefix))


def without_spans(paragraph: str) -> str:
    """Blank out the inline code of one paragraph."""
    result, position = "", 0
    while position < len(paragraph):
        if paragraph[position] == "\\":
            result += paragraph[position : position + 2]
            position += 2
            continue
        run = re.match("`*", paragraph[position:])
        length = len(run[0]) if run else 0
        end = re.search(rf"(?<!`)`{{{length}}}(?!`)", paragraph[position + length :]) if length else None
        if end:
            result += "\0"
            position += length + end.end()
        else:
            result += paragraph[position : position + max(length, 1)]
            position += max(length, 1)
    return result


@ANY_TEXT
@given(TEXTS)
def test_no_known_tag_is_visible_outside_code(text: str) -> None:
    assert not KNOWN.search(outside_code(parse_answer(text).visible))


@ANY_TEXT
@given(TEXTS)
def test_what_is_visible_reads_as_itself(text: str) -> None:
    visible = parse_answer(text).visible
    again = parse_answer(visible)
    assert again.visible == visible
    assert again.tags == ()


@ANY_TEXT
@given(st.text(alphabet=st.characters(exclude_characters="[`~")))
def test_a_text_without_tags_stays_as_it_is(text: str) -> None:
    assert parse_answer(text).visible == text.strip()


@ANY_TEXT
@given(st.lists(FRAGMENTS.filter(lambda piece: "`" not in piece and "~" not in piece), max_size=30).map("".join))
def test_text_after_the_last_tag_is_shown(text: str) -> None:
    assert parse_answer(f"{text}\n[STATE:k] v [/STATE]\nThe end").visible.endswith("The end")


WHOLE = st.sampled_from(
    [
        "[MEMORY:sticky] fact [/MEMORY]",
        "[memory:sticky]fact\nfact[/memory]",
        "[STATE:k] fact\n",
        "[DELEGATE:a wait]\nfact `[/DELEGATE]` fact\n[/DELEGATE]",
        "[CREATE_CRON]\nfact: fact\n[/CREATE_CRON]",
        "[/CREATE_CLIENT]",
    ]
)


@ANY_TEXT
@given(st.lists(WHOLE | st.integers(0, 99).map(lambda number: f"word{number} ")))
def test_words_around_tags_stay_in_their_order(pieces: list[str]) -> None:
    words = [piece.strip() for piece in pieces if piece.startswith("word")]
    parsed = parse_answer("".join(pieces))
    assert parsed.visible.split() == words
    assert len(parsed.tags) == sum("fact" in piece for piece in pieces)


COSTLY = (
    "[STATE:x] ",
    "[MEMORY:",
    "[DELEGATE:x] ",
    "[DELEGATE:x]`[/DELEGATE]",
    "[CREATE_CRON] [MEMORY:x]\n",
    "[D[STATE:k]",
    "a [STATE:x] y [/STATE] ",
    "[/MEMORY]",
    "[",
    "`",
    "` ",
    "`` ` ",
    "\\`",
    "\\",
    "```x\n",
    "~~~~\n~~~\n",
    "> - ",
    " ",
    "\n",
    "\n ",
)


def work(text: str) -> int:
    """Count the lines of the grammar's modules that reading a text runs."""
    files = {module.__file__ for module in (grammar, markdown, markdown)}
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        parse_answer(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("unit", COSTLY)
def test_twice_the_text_is_twice_the_work(unit: str) -> None:
    repeats = 4_000 // len(unit)
    assert work(f"x{unit * 2 * repeats}x") <= 2.5 * work(f"x{unit * repeats}x")


def test_fences_and_spans_of_every_length_cost_no_more() -> None:
    def descending(count: int) -> str:
        lengths = range(count + 2, 2, -1)
        return "".join(f"[DELEGATE:x]\n{'~' * length}\n[/DELEGATE]\n{'`' * length} " for length in lengths)

    def ascending(count: int) -> str:
        return "".join(f"[DELEGATE:x] [MEMORY:y] {'`' * length} [/MEMORY] " for length in range(1, count))

    for written in (descending, ascending):
        assert work(written(200)) <= 2.5 * work(written(100))


def test_a_third_of_a_megabyte_is_read_in_seconds() -> None:
    start = process_time()
    for unit in ("a [STATE:x] y [/STATE] ", "[STATE:x] ", "[DELEGATE:x]`[/DELEGATE]", "\\", " "):
        parse_answer(f"x{unit * (300_000 // len(unit))}x")
    assert process_time() - start < 60

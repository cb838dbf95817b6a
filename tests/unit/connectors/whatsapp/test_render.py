"""Markdown as WhatsApp's marks."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.markdown import split_markdown
from connectors.whatsapp.send import render_markup

MARKDOWN = st.text(st.sampled_from('ab \n`~*_#-+>|[]()!<@&\\"/:.1'), max_size=120) | st.text(max_size=80)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** __too__ *it* _it_ ***both*** ~~no~~", "*bold* *too* _it_ _it_ *_both_* ~no~"),
        ("# Title **x** ##\n### Next", "*Title x*\n*Next*"),
        ("- a\n  * b\n+ c\n1. d", "• a\n  • b\n• c\n1. d"),
        ("> quote\n>> deeper", "> quote\n> deeper"),
        ("[x](https://x.example/a_(b)?c=1&d=2)", "x (https://x.example/a_(b)?c=1&d=2)"),
        ("[https://x.example](https://x.example)", "https://x.example"),
        ("![cat](https://x.example/c.png) <https://y.example>", "cat (https://x.example/c.png) https://y.example"),
        ("[evil](javascript:x) <b> & @here", "[evil](javascript:x) <b> & @here"),
        ("`a<b **c**` ``x ` y``", "`a<b **c**` `x ` y`"),
        ("```python\nif a < b: **c**\n```\nafter", "```\nif a < b: **c**\n```\nafter"),
        ("~~~\n```\n~~~", "```\n`\u200b`\u200b`\n```"),
        ("```\nnever closed", "```\nnever closed\n```"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\nafter", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\nafter"),
        (r"\*not bold\* \> x", "*\u200bnot bold*\u200b >\u200b x"),
        ("---\n* * *", "———\n———"),
        ("2 * 3 * 4, snake_case_name", "2 * 3 * 4, snake_case_name"),
        ("", ""),
        ("# #", "# #"),
        ("# **", "# **"),
    ],
)
def test_markdown_is_shown_as_whatsapp_writes_it(markdown: str, shown: str) -> None:
    assert render_markup(markdown) == shown


@given(MARKDOWN)
def test_every_block_of_code_is_closed(text: str) -> None:
    assert sum(line == "```" for line in render_markup(text).split("\n")) % 2 == 0


@pytest.mark.parametrize(
    "piece",
    ["**a ", "~~a ", "__a ", "***a ", "`a ", "`", "[", "[a](https://x", "> ", "# ", "- - ", "\\*", "|a|\n|-|\n"],
)
def test_a_text_made_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()
    render_markup("a" + piece * (60_000 // len(piece)))
    assert time.process_time() - began < 5


@given(MARKDOWN)
def test_nothing_is_shown_of_nothing_alone(text: str) -> None:
    assert bool(render_markup(text).strip()) is bool(text.strip())


FENCED = st.lists(
    MARKDOWN | st.sampled_from(["```py\n", "```\n", "~~~\n", "\n\n", "|a|b|\n|-|-|\n|1|2|\n", "x < y\n"]), max_size=30
).map("".join)


@given(FENCED)
def test_chunks_fit_as_they_are_shown_and_close_their_code(text: str) -> None:
    shown = [render_markup(chunk) for chunk in split_markdown(text, 120, lambda chunk: len(render_markup(chunk)))]
    assert all(len(chunk) <= 120 for chunk in shown)
    assert all(sum(line == "```" for line in chunk.split("\n")) % 2 == 0 for chunk in shown)

"""Markdown as Slack's mrkdwn."""

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.markdown import split_markdown
from connectors.slack.api import render_mrkdwn

MARKDOWN = st.text(st.sampled_from('ab \n`~*_#-+>|[]()!<@&\\"/:.1'), max_size=120) | st.text(max_size=80)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** __too__ *it* _it_ ***both*** ~~no~~", "*bold* *too* _it_ _it_ *_both_* ~no~"),
        ("# Title **x** ##\n### Next", "*Title x*\n*Next*"),
        ("- a\n  * b\n+ c\n1. d", "• a\n  • b\n• c\n1. d"),
        ("> quote\n>> deeper <x>", "> quote\n> deeper &lt;x&gt;"),
        ("[x](https://x.example/a_(b)?c=1&d=2|3)", "<https://x.example/a_(b)?c=1&amp;d=2%7C3|x>"),
        ("![cat](https://x.example/c.png) <https://y.example>", "<https://x.example/c.png|cat> <https://y.example>"),
        ("[evil](javascript:x) [evil](!channel) [e](@U1)", "[evil](javascript:x) [evil](!channel) [e](@U1)"),
        ("<!channel> <@U1> <#C1> @here", "&lt;!channel&gt; &lt;@U1&gt; &lt;#C1&gt; @here"),
        ("[<!channel>](https://x.example)", "<https://x.example|&lt;!channel&gt;>"),
        ("`a<b **c**` ``x ` y``", "`a&lt;b **c**` `x ` y`"),
        ("```python\nif a < b: **c**\n```\nafter", "```\nif a &lt; b: **c**\n```\nafter"),
        ("~~~\n```\n~~~", "```\n`\u200b`\u200b`\n```"),
        ("````\n```\n````", "```\n`\u200b`\u200b`\n```"),
        ("2 * 3 * 4, snake_case_name, a*b", "2 * 3 * 4, snake_case_name, a*b"),
        (r"\*not bold\* \# x", "*\u200bnot bold*\u200b # x"),
        ("---\n* * *", "———\n———"),
        ("&amp; & <b>", "&amp;amp; &amp; &lt;b&gt;"),
        ("", ""),
    ],
)
def test_markdown_is_shown_as_slack_writes_it(markdown: str, shown: str) -> None:
    assert render_mrkdwn(markdown) == shown


@given(MARKDOWN)
def test_nothing_mentions_anybody_and_every_line_stays_a_line(text: str) -> None:
    shown = render_mrkdwn(text)
    assert shown.count("\n") == text.count("\n")
    assert all(re.match(r"https?://|mailto:", link) for link in re.findall(r"<([^>]*)>?", shown))


@pytest.mark.parametrize(
    "piece", ["**a ", "~~a ", "__a ", "***a ", "`a ", "`", "[", "[a](https://x", "> ", "# ", "- - ", "\\*"]
)
def test_a_text_made_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()
    render_mrkdwn("a" + piece * (60_000 // len(piece)))
    assert time.process_time() - began < 5


FENCED = st.lists(
    MARKDOWN | st.sampled_from(["```py\n", "```\n", "~~~\n", "\n\n", "&&&&&&&&", "x < y\n"]), max_size=30
).map("".join)


@given(FENCED)
def test_chunks_fit_as_they_are_shown_and_close_their_code(text: str) -> None:
    shown = [render_mrkdwn(chunk) for chunk in split_markdown(text, 120, lambda chunk: len(render_mrkdwn(chunk)))]
    assert all(len(chunk) <= 120 for chunk in shown)
    if len(shown) > 1:
        assert all(sum(line.startswith("```") for line in chunk.split("\n")) % 2 == 0 for chunk in shown)


def test_a_process_without_slack_does_not_load_its_library() -> None:
    look = "import sys, connectors.platforms as found; found.platform('slack').options()"
    subprocess.run(
        [sys.executable, "-c", f"{look}; assert not {{'slack_sdk', 'aiohttp'}} & set(sys.modules)"], check=True
    )

"""Markdown as the HTML that Telegram knows."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.markdown import split_markdown
from connectors.telegram.send import MAX_LENGTH, disable_mentions, html_length, render_html
from tests.support.telegram_server.chats import utf16
from tests.support.telegram_server.markup import plain

MARKDOWN = st.text(st.sampled_from('ab \n`~*_#-+>|[]()!<@&\\"/:.1'), max_size=120) | st.text(max_size=80)
J = "\u2060"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        (
            "**bold** __too__ *it* _it_ ***both*** ~~no~~",
            "<b>bold</b> <b>too</b> <i>it</i> <i>it</i> <b><i>both</i></b> <s>no</s>",
        ),
        ("# Title **x** ##\n### Next", "<b>Title x</b>\n<b>Next</b>"),
        ("- a\n  * b\n+ c\n1. d", "• a\n  • b\n• c\n1. d"),
        ("> quote\n> **more**\nafter", "<blockquote>quote\n<b>more</b></blockquote>\nafter"),
        ('[x](https://x.example/a_(b)?c="1"&d)', '<a href="https://x.example/a_(b)?c=&quot;1&quot;&amp;d">x</a>'),
        (
            "![cat](https://x.example/c.png) <https://y.example>",
            '<a href="https://x.example/c.png">cat</a> https://y.example',
        ),
        ("[evil](javascript:x) [evil](tg://user?id=1)", "[evil](javascript:x) [evil](tg://user?id=1)"),
        ("`a<b **c** @d` ``x ` y``", "<code>a&lt;b **c** @d</code> <code>x ` y</code>"),
        (
            "```python\nif a < b: **c**\n```\nafter",
            '<pre><code class="language-python">if a &lt; b: **c**</code></pre>\nafter',
        ),
        ("~~~\n```\n~~~", "<pre>```</pre>"),
        ("```\nnever closed", "<pre>never closed</pre>"),
        ("| a | b |\n|---|:-:|\n| 1 | <2> |\nafter", "<pre>| a | b |\n|---|:-:|\n| 1 | &lt;2&gt; |</pre>\nafter"),
        ("2 * 3 * 4, snake_case_name, a*b", "2 * 3 * 4, snake_case_name, a*b"),
        (r"\*not bold\* \# x", "*not bold* # x"),
        ("---\n* * *", "———\n———"),
        ("&amp; & <b>", "&amp;amp; &amp; &lt;b&gt;"),
        ("", ""),
    ],
)
def test_markdown_is_shown_as_telegram_writes_it(markdown: str, shown: str) -> None:
    assert render_html(markdown) == shown


@pytest.mark.parametrize(
    ("markdown", "seen"),
    [
        ("@ada and **@ada** and (@ada)", f"@{J}ada and @{J}ada and (@{J}ada)"),
        (r"\@ada", f"@{J}ada"),
        ("[@ada](https://x.example)", f"@{J}ada"),
        ("http://@ada <https://@ada>", f"http://@{J}ada https://@{J}ada"),
        ("ada@example.org", "ada@example.org"),
        ("https://x.example/@ada", "https://x.example/@ada"),
        ("https://x.example:8443/a?b=@ada.", "https://x.example:8443/a?b=@ada."),
        ('https://x.example/"@ada «https://x.example/»@ada', f'https://x.example/"@{J}ada «https://x.example/»@{J}ada'),
        ("https://x.y/@ada <https://x.y/@ada>", f"https://x.y/@{J}ada https://x.y/@{J}ada"),
        ("`@ada`\n```\n@ada\n```", "@ada\n@ada"),
    ],
)
def test_nobody_is_notified_and_addresses_stay_whole(markdown: str, seen: str) -> None:
    assert plain(render_html(markdown)) == seen


def test_plain_words_notify_nobody_either() -> None:
    assert disable_mentions("@ada at ada@example.org") == f"@{J}ada at ada@example.org"


@given(MARKDOWN)
def test_telegram_can_read_whatever_comes_out(text: str) -> None:
    shown = render_html(text)
    seen = plain(shown)  # raises for a tag that is not closed, not known or not in its place
    assert utf16(seen) <= utf16(shown)
    assert all(re.match(r"https?://|mailto:", link) for link in re.findall(r'href="([^"]*)"', shown))


@given(st.lists(MARKDOWN, min_size=1, max_size=30).map("\n".join), st.integers(100, 400))
def test_chunks_are_within_the_limit_as_they_are_rendered(text: str, limit: int) -> None:
    for piece in split_markdown(text, limit, html_length):
        assert utf16(plain(render_html(piece))) <= limit <= MAX_LENGTH


@pytest.mark.parametrize(
    "piece",
    [
        "**a ",
        "~~a ",
        "__a ",
        "_a ",
        "***a ",
        "`a ",
        "`",
        "[",
        "[a](https://x",
        "> ",
        "# ",
        "- - ",
        "\\*",
        "|-|\n",
        "@a",
    ],
)
def test_a_text_made_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()
    render_html("a" + piece * (60_000 // len(piece)))
    assert time.process_time() - began < 5

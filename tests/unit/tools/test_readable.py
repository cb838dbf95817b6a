"""Web pages as text."""

import time

import pytest

from maestro.tools.web import page_text

URL = "https://example.com/docs/"


def test_a_page_becomes_text() -> None:
    page = """<!doctype html><html><head><title>The &amp; page</title><style>p {color: red}</style></head><body>
        <script>alert("no")</script><h1>Head  line</h1><p>First <b>bold</b>
        word.</p><p>Second.<br>New line.</p><ul><li>one<li>two</ul>
        <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
        <noscript>no</noscript><img alt="A cat" src=x><svg><title>no</title><text>no</text></svg>
        </body></html>"""
    assert page_text(page, URL) == (
        "The & page\n\n# Head line\n\nFirst bold word.\n\nSecond.\nNew line.\n\n- one\n- two\n\n"
        "| a | b\n| 1 | 2\n\n[image: A cat]"
    )


def test_links_say_where_they_lead() -> None:
    page = '<a href="next">Next</a> <a href="#top">top</a> <a href="javascript:x()">run</a> <a href="http://[">x</a>'
    assert page_text(page, URL) == "Next (https://example.com/docs/next) top run x"


def test_code_keeps_its_lines() -> None:
    assert page_text("<pre>a = 1\nb = 2</pre><p>x\ny</p>", URL) == "a = 1\nb = 2\n\nx y"


@pytest.mark.parametrize(
    "page",
    [
        "<head><title>t</title><p>text",
        "<p>text<script>hidden()",
        "</script></svg></a></pre>text",
        "text<!-- a comment --> <!-- another",
        "<title>t</title><svg><path/><title>x</title></svg>text",
        "<svg/>text",
    ],
)
def test_broken_pages_keep_their_text(page: str) -> None:
    assert "text" in page_text(page, URL)
    assert "hidden" not in page_text(page, URL)


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<a href='", "<svg></b>", "<![CDATA[", "<title>a<b>", "</svg", "<a \"'"]
)
def test_no_page_keeps_a_thread_for_long(piece: str) -> None:
    page = piece * (200_000 // len(piece))
    before = time.process_time()
    page_text(page, URL)
    assert time.process_time() - before < 5


def test_attributes_are_read_however_they_are_written() -> None:
    page = "<A title='1 > 0' HREF = /a&amp;b >one</A> <a href=/c>two</a> <img alt=\"x > y\"> 1 < 2 && 3 > 2"
    assert page_text(page, URL) == (
        "one (https://example.com/a&b) two (https://example.com/c) [image: x > y] 1 < 2 && 3 > 2"
    )

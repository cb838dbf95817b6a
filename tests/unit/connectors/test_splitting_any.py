"""Any text at all is split so that a reader loses nothing, whatever the platform's limit, unit and markup are."""

import html
import re
from collections.abc import Callable

import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.base import LengthUnit
from connectors.markdown import Measure, split_markdown, text_length
from tests.unit.connectors.test_splitting import balanced, marks

graphemes = regex.compile(r"\X")
"""What a reader sees as one character, by somebody else's tables."""

LONGEST = 24
"""Characters of a cluster that the test counts on; a longer one need not fit into a chunk."""

RUNS = re.compile(r"(`{12}|~{12}| {30})[`~ ]+")
"""More marks or blanks in a row than anybody writes: a line of nothing else cannot be cut so that it stays one."""

LONG = re.compile(r"^([ \t]*(?:`{3,}|~{3,}).{12})(?=.)", re.MULTILINE)
"""The beginning of a fence's line: one longer than a chunk cannot be whole in any."""

MEASURES: dict[str, Measure] = {
    "plain": len,
    "utf16": lambda text: text_length(text, LengthUnit.UTF16),
    "escaped": lambda text: len(html.escape(text)),
    "shorter": lambda text: len(text.replace("**", "*").replace("  ", " ")),
}

PIECES = st.sampled_from(
    [
        "a",
        "word",
        " ",
        "  ",
        "\n",
        "\n\n",
        "```",
        "```py\n",
        "~~~\n",
        "````\n",
        "<&>",
        "**bold**",
        "- item\n",
        "    ",
        "`x`",
        ". ",
    ]
)
SYMBOLS = st.sampled_from(
    ["👩‍👩‍👧‍👦", "👍🏽", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️", "🇩🇪", "🇫🇷", "e\u0301", "각", "नि", "กำ", "👨🏿‍🚀", "\r\n", "東", "क्ष"]
)
ANY = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
REPEATED = st.tuples(st.one_of(PIECES, SYMBOLS, ANY), st.integers(1, 30)).map(lambda pair: pair[0] * pair[1])


def shorten_fences(text: str) -> str:
    """Break long runs and long fence lines; the rest of a broken line may start with a fence that is long as well."""
    shorter = LONG.sub(r"\1\n", RUNS.sub(r"\1", text))
    return shorter if shorter == text else shorten_fences(shorter)


DOCUMENTS = st.lists(REPEATED, min_size=10, max_size=60).map("".join).map(shorten_fences)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=DOCUMENTS, limit=st.integers(100, 300))
def test_any_text_keeps_every_promise(measure: Callable[[str], int], text: str, limit: int) -> None:
    chunks = split_markdown(text, limit, measure)
    assert all(measure(chunk) <= limit for chunk in chunks), "a chunk is over the limit"
    assert len(chunks) <= 1 or all(balanced(chunk) for chunk in chunks), "a fence is left open"
    assert [mark for chunk in chunks for mark in marks(chunk)] == list(marks(text)), "something is lost"
    torn = {cluster for chunk in chunks for cluster in clusters(chunk)} - clusters(text)
    assert not torn, f"a character is cut: {torn!a}"


def clusters(text: str) -> set[str]:
    """Return what a reader sees as one character, of a length that fits into any chunk."""
    seen = (found.strip(" \t\r\n") for found in graphemes.findall(text))
    return {cluster for cluster in seen if len(cluster) <= LONGEST}

"""Lines of ``key: value`` as conductors write them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.conducting.directives import read_fields
from maestro.domain.errors import InvalidEdit


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("coder", "coder"),
        ("  with blanks  ", "with blanks"),
        ("https://example.org/a: b", "https://example.org/a: b"),
        ("3", 3),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('"3"', "3"),
        ("'3'", "3"),
        ("'it''s tea'", "it's tea"),
        ("'a' and 'b'", "'a' and 'b'"),
        ("'tis the season", "'tis the season"),
        ("''", ""),
        ('["a", "b"]', ["a", "b"]),
        ('{"voice": "casual", "id": 123456789012345678}', {"voice": "casual", "id": 123456789012345678}),
        ("[not json", "[not json"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("12345678901234", 12345678901234),
        ("123456789012345", "123456789012345"),
        ("9" * 5_000, "9" * 5_000),
        ("[" * 100_000, "[" * 100_000),
        ("", ""),
    ],
)
def test_a_value_is_what_json_says_or_text(value: str, read: object) -> None:
    assert read_fields(f"key: {value}\nlast: x") == {"key": read, "last": "x"}


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("text: one\ntwo\n\n  three\nend: x", "one\ntwo\n\n  three"),
        ("text: one\n\n  two\nend: x", "one\n\ntwo"),
        ("text: one\n  Note: two\nend: x", "one\nNote: two"),
        ("text: |\n  one\n    two\n\n  three\nend: x", "one\n  two\n\nthree"),
        ("text: >-\n  one\n  two\nend: x", "one two"),
        ("text:\n  one\n  two\nend: x", "one\ntwo"),
        ("text: https://example.org\nhttps://example.com\nend: x", "https://example.org\nhttps://example.com"),
        ('text: [\n  {"a": 1},\n{"b": 2}\n]\nend: x', [{"a": 1}, {"b": 2}]),
        ("text:\n  - a\n  - b c\nend: x", ["a", "b c"]),
    ],
)
def test_a_value_may_have_lines(body: str, read: object) -> None:
    assert read_fields(body) == {"text": read, "end": "x"}


def test_fields_and_lists_may_stand_in_a_field() -> None:
    body = "personality:\n  voice: casual\n  quirks:\n    - rhymes\n    - asks: much\nlast: x"
    assert read_fields(body)["personality"] == {"voice": "casual", "quirks": ["rhymes", {"asks": "much"}]}
    body = "channels:\n- platform: web\n  channel: 123456789012345678\n- platform: slack\nlast: x"
    assert read_fields(body)["channels"] == [
        {"platform": "web", "channel": "123456789012345678"},
        {"platform": "slack"},
    ]


@pytest.mark.parametrize("body", ["text: 5", 'text: "5"', "text:\n  5", "text: |\n  5"])
def test_what_must_be_text_is_text(body: str) -> None:
    assert read_fields(body, {"text"}) == {"text": "5"}
    assert read_fields("text:\n  Check: it\n  Report: it", {"text"}) == {"text": "Check: it\nReport: it"}


def test_keys_are_in_one_form_and_the_whole_may_be_fenced_or_json() -> None:
    read = {"system_prompt": "x", "daily_budget": 2}
    for body in (
        "systemPrompt: x\ndaily-budget: 2",
        "SYSTEM_PROMPT: x\n\nDaily_Budget: 2\n",
        "```yaml\nsystem_prompt: x\ndaily_budget: 2\n```",
        '{"systemPrompt": "x", "daily_budget": 2}',
    ):
        assert read_fields(body) == read
    assert read_fields("") == {}


@pytest.mark.parametrize(
    ("body", "reason"), [("slug: a\nname: b\nSlug: c", "field slug is given twice"), ("yes\na: b", "key: value")]
)
def test_what_cannot_be_read_says_why(body: str, reason: str) -> None:
    with pytest.raises(InvalidEdit, match=reason):
        read_fields(body)


PIECES = st.sampled_from(
    ["a:", "b:", " c: d", "- ", "  ", "\n", "\n  ", "[", "]", "{", "}", '"', "|", ">", "1", "x", "```", "\r", "\x0b"]
)


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidEdit):
        read_fields(text)


def test_deep_nesting_is_text_in_the_end() -> None:
    deep = "".join(f"{' ' * depth}a:\n" for depth in range(500))
    assert "a" in read_fields(deep)

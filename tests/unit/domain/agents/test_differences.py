"""What is different between two versions of an agent, line by line."""

import pytest
from pydantic import JsonValue

from maestro.domain.agents.views import MOST_LINES, FieldChange, diff_field_lines

EVERYBODY = "(the common setting)"


def told(before: JsonValue, after: JsonValue, *, is_first: bool = False) -> list[str]:
    marks = {"same": " ", "gone": "-", "new": "+", "gap": "…"}
    change = FieldChange(field="systemPrompt", before=before, after=after)
    return [f"{marks[line.kind]}{line.text}" for line in diff_field_lines(change, is_first=is_first)]


def test_lines_that_stay_are_shown_only_around_what_is_different() -> None:
    before = "\n".join("abcdefghij")
    assert told(before, before.replace("e", "E")) == ["…", " c", " d", "-e", "+E", " f", " g", "…"]
    assert told("a\nb", "a\nb\nc") == [" a", " b", "+c"]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("", "hello", ["+hello"]),
        ("hello", "", ["-hello"]),
        (None, ["a", "b"], [f"-{EVERYBODY}", "+a", "+b"]),
        (["a", "b"], ["b"], ["-a", " b"]),
        (["a"], [], ["-a", "+(none)"]),
        (2.5, None, ["-2.5", f"+{EVERYBODY}"]),
        ("active", "paused", ["-active", "+paused"]),
    ],
)
def test_every_kind_of_field_reads_well(before: JsonValue, after: JsonValue, lines: list[str]) -> None:
    assert told(before, after) == lines


def test_before_the_first_version_was_nothing() -> None:
    assert told(None, None, is_first=True) == [f"+{EVERYBODY}"]
    assert told(None, "hello", is_first=True) == ["+hello"]


def test_a_very_long_text_is_shown_whole() -> None:
    before = "\n".join(map(str, range(MOST_LINES + 1)))
    shown = told(before, f"{before}\nend")
    assert (shown[0], shown[-1], len(shown)) == ("-0", "+end", 2 * MOST_LINES + 3)

"""The cursor of a list of jobs: what clients hand back is ours, or refused."""

import base64
from datetime import UTC, datetime

import pytest

from maestro.domain.jobs.filters import PageCursor


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = PageCursor(datetime(2026, 11, 20, 8, tzinfo=UTC), "message-1")
    assert PageCursor.parse_text(cursor.encode_text()) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "é",
        "no cursor",
        packed("2026-11-20T08:00:00+00:00"),
        packed("2026-11-20T08:00:00 message-1"),
        packed("0001-01-01T00:00:00+14:00 message-1"),
        packed("9999-12-31T23:59:59-14:00 message-1"),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        PageCursor.parse_text(text)

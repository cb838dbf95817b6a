"""How long a provider asks to wait."""

from datetime import UTC, datetime, timedelta

import pytest

from maestro.llm.failures import LONGEST, requested_wait

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
GEMINI = '{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]}}'
ANTHROPIC = "You have reached your specified API usage limits. You will regain access on 2026-11-21 at 00:00 UTC."


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": " 7 "}, "", 7),
        ({"retry-after-ms": "250", "retry-after": "1"}, "", 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, "", 1),
        ({"retry-after": "Fri, 20 Nov 2026 12:01:00 GMT"}, "", 60),
        ({"retry-after": "Fri, 20 Nov 2026 12:01:00"}, "", 60),
        ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, "", 0),
        ({"retry-after": "9"}, GEMINI, 9),
        ({}, GEMINI, 34.07),
        ({}, ANTHROPIC, 12 * 3600),
        ({}, "Rate limit reached for gpt-4o. Please try again in 20s. Visit", 20),
        ({}, "Please try again in 1h2m3.5s.", 3723.5),
        ({}, "Please try again in 7m12s.", 432),
        ({}, "try again in 6m0s", 360),
        ({}, "Please try again in 858ms.", 0.858),
        ({"retry-after": "9"}, "Please try again in 20s.", 9),
        ({}, "You will regain access on 2026-11-22.", 36 * 3600),
        ({"retry-after": "999999999"}, "", LONGEST.total_seconds()),
        ({"retry-after": "Fri, 20 Nov 2099 12:01:00 GMT"}, "", LONGEST.total_seconds()),
    ],
)
def test_every_form_is_read(headers: dict[str, str], text: str, seconds: float) -> None:
    assert requested_wait(headers, text, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "-1",
        "nan",
        "inf",
        "1e400",
        "9" * 400,
        "Fri, 99 Foo 2026",
        "regain access on 2026-99-99",
        "try again in a while",
        "try again in 5",
    ],
)
def test_what_cannot_be_read_is_no_answer(value: str) -> None:
    assert requested_wait({"retry-after": value}, value, NOW) is None
    assert requested_wait({"retry-after-ms": value}, "", NOW) is None

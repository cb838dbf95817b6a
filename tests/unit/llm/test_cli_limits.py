"""Until when a subscription is used up, in all the words the command has for it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from maestro.llm.cli_runner import DEFAULT_COOL_DOWN, time_until_limit_ends

NOON = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def machine_in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        # Lisbon is one hour ahead of UTC in June.
        ("You've hit your limit · resets 3pm (Europe/Lisbon)", timedelta(hours=2)),
        ("You've hit your session limit · resets 3:30pm (Europe/Lisbon)", timedelta(hours=2, minutes=30)),
        ("5-hour limit reached ∙ resets 14:15 (UTC)", timedelta(hours=2, minutes=15)),
        ("You've hit your limit · resets 12am (UTC)", timedelta(hours=12)),
        ("You've hit your limit · resets 12:01pm (UTC)", timedelta(minutes=1)),
        # What is past today, or just now, is meant for tomorrow.
        ("You've hit your limit · resets 1pm (Europe/Lisbon)", timedelta(hours=24)),
        ("You've hit your limit · resets 9am (UTC)", timedelta(hours=21)),
        # It is tomorrow in Auckland already.
        ("You've hit your limit · resets 1am (Pacific/Auckland)", timedelta(hours=1)),
        ("You've hit your weekly limit · resets Jun 13, 12pm (UTC)", timedelta(days=3)),
        ("Weekly limit reached ∙ resets June 13 at 1pm (Europe/Lisbon)", timedelta(days=3)),
        (f"Claude AI usage limit reached|{int(NOON.timestamp()) + 600}", timedelta(minutes=10)),
        (f"Claude AI usage limit reached|{int(NOON.timestamp()) * 1000 + 600_000}", timedelta(minutes=10)),
        (f"Claude AI usage limit reached|{int(NOON.timestamp()) - 600}", timedelta()),
        ("Claude AI usage limit reached|9999999999", timedelta(days=31)),
        # Whatever cannot be read waits an hour.
        ("You've hit your limit", DEFAULT_COOL_DOWN),
        ("You've hit your limit · resets 25pm (UTC)", DEFAULT_COOL_DOWN),
        ("You've hit your limit · resets 3pm (Mars/Olympus)", DEFAULT_COOL_DOWN),
        ("You've hit your weekly limit · resets Feb 30, 3pm (UTC)", DEFAULT_COOL_DOWN),
    ],
)
def test_the_end_of_a_limit_is_read(said: str, wait: timedelta) -> None:
    assert time_until_limit_ends(f"\n{said}\n", NOON) == wait


@pytest.mark.parametrize(
    ("now", "wait"),
    [
        # The clocks of Lisbon go forward in the night to 29 March 2026 and back in the night to 25 October.
        (datetime(2026, 3, 28, 14, 0, tzinfo=UTC), timedelta(hours=22)),
        (datetime(2026, 10, 24, 13, 0, tzinfo=UTC), timedelta(hours=24)),
        (datetime(2026, 10, 24, 12, 0, tzinfo=UTC), timedelta(hours=25)),
    ],
)
def test_a_change_of_the_clocks_moves_the_end_along(now: datetime, wait: timedelta) -> None:
    assert time_until_limit_ends("You've hit your limit · resets 1pm (Europe/Lisbon)", now) == wait


def test_a_date_in_january_said_in_december_is_next_year() -> None:
    december = datetime(2026, 12, 30, 0, 0, tzinfo=UTC)
    assert time_until_limit_ends("You've hit your weekly limit · resets Jan 2, 12am (UTC)", december) == timedelta(
        days=3
    )


@pytest.mark.usefixtures("machine_in_tokyo")
def test_without_a_zone_it_is_that_of_the_machine() -> None:
    assert time_until_limit_ends("5-hour limit reached ∙ resets 10pm", NOON) == timedelta(hours=1)


@pytest.mark.parametrize("said", ["", "The speed limit is 50.", "API Error: 500", "reset 3pm", "no limit reached yet"])
def test_other_words_are_no_limit(said: str) -> None:
    assert time_until_limit_ends(said, NOON) is None

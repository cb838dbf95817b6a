"""Schedules in words."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from maestro.domain.schedules.expressions import read_schedule
from maestro.domain.schedules.views import describe_distance, describe_schedule

NOW = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("every 1d", "every day"),
        ("every 90s", "every 90 seconds"),
        ("every 120m", "every 2 hours"),
        ("at 2026-12-01 09:00", "once, on 1 December 2026 at 09:00"),
        ("in 90s", "once, on 20 November 2026 at 09:01:30"),
        ("0 9 * * *", "at 09:00 every day"),
        ("0 9,17 * * 1-5", "at 09:00 and 17:00 on working days"),
        ("30 7 * * 0,6", "at 07:30 at weekends"),
        ("30 7 * * sun,wed,mon", "at 07:30 on Mondays, Wednesdays and Sundays"),
        ("0 8 1,15 * *", "at 08:00 on day 1 and 15 of the month"),
        ("0 8 1 1,7 *", "at 08:00 on day 1 of the month in January and July"),
        ("0 8 13 * fri", "at 08:00 on day 13 of the month or on Fridays"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/15 9-16 * * *", "every 15 minutes from 09:00 to 16:59"),
        ("0 * * * *", "every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("5 * * * 1-5", "every hour at minute 5 on working days"),
        ("0,10 * * * *", "48 times a day"),
        ("1-59/7 3,9 * * *", "18 times a day"),
        ("0 9-17 * * *", "9 times a day"),
    ],
)
def test_a_schedule_is_said_as_a_person_would(written: str, words: str) -> None:
    zone = "Europe/Amsterdam"
    assert describe_schedule(read_schedule(written, zone, NOW), ZoneInfo(zone)) == words


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(minutes=5, seconds=59), "in 5 minutes"),
        (timedelta(days=1, hours=23), "in 1 day"),
        (-timedelta(hours=2, minutes=1), "2 hours ago"),
        (-timedelta(seconds=1), "1 second ago"),
        (timedelta(milliseconds=900), "now"),
    ],
)
def test_a_moment_is_so_far_away(away: timedelta, words: str) -> None:
    assert describe_distance(NOW + away, NOW) == words

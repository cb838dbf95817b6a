"""When schedules come: grids, clocks that change, single moments, and how many times passed.

See docs/decisions.md: schedules.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.expressions import Once, check_jitter, read_schedule, read_stored_schedule, read_zone
from maestro.domain.schedules.times import count_times, next_times, times_after

NOW = datetime(2026, 3, 1, 12, 7, 30, 500_000, tzinfo=UTC)
AMSTERDAM = "Europe/Amsterdam"
NEW_YORK = "America/New_York"


def coming(written: str, zone: str, after: datetime, number: int = 5) -> list[str]:
    place = ZoneInfo(zone)
    found = islice(times_after(read_stored_schedule(written, zone, NOW), place, NOW, after), number)
    return [f"{time.astimezone(place):%m-%d %H:%M:%S%z}" for time in found]


def test_an_interval_keeps_the_grid_of_its_anchor_in_whole_seconds() -> None:
    assert coming("every 45m", "UTC", NOW, 3) == ["03-01 12:52:30+0000", "03-01 13:37:30+0000", "03-01 14:22:30+0000"]
    much_later = NOW + timedelta(days=90, seconds=1)
    assert coming("every 1h", "UTC", much_later, 1) == ["05-30 13:07:30+0000"]


def test_a_time_is_not_after_itself() -> None:
    assert coming("0 * * * *", "UTC", datetime(2026, 3, 1, 13, tzinfo=UTC), 1) == ["03-01 14:00:00+0000"]
    assert coming("every 30s", "UTC", NOW.replace(microsecond=0), 1) == ["03-01 12:08:00+0000"]


@pytest.mark.parametrize(
    ("written", "zone", "after", "expected"),
    [
        ("30 9 * * *", AMSTERDAM, "2026-03-27", ["03-27 09:30:00+0100", "03-28 09:30:00+0100", "03-29 09:30:00+0200"]),
        ("30 9 * * *", AMSTERDAM, "2026-10-24", ["10-24 09:30:00+0200", "10-25 09:30:00+0100", "10-26 09:30:00+0100"]),
        ("30 1 * * *", AMSTERDAM, "2026-10-25", ["10-25 01:30:00+0200", "10-26 01:30:00+0100"]),
        ("30 2 * * *", AMSTERDAM, "2026-10-25", ["10-25 02:30:00+0200", "10-26 02:30:00+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-11-01", ["11-01 01:30:00-0400", "11-02 01:30:00-0500"]),
        ("30 2 * * *", AMSTERDAM, "2026-03-28", ["03-28 02:30:00+0100", "03-29 03:00:00+0200", "03-30 02:30:00+0200"]),
        ("*/20 2,3 * * *", AMSTERDAM, "2026-03-29", ["03-29 03:00:00+0200", "03-29 03:20:00+0200"]),
        ("0 0 * * SUN", "America/Havana", "2026-03-08", ["03-08 01:00:00-0400", "03-15 00:00:00-0400"]),
        ("30 23 * * *", "America/Nuuk", "2027-03-27", ["03-28 00:00:00-0100", "03-28 23:30:00-0100"]),
        ("0 0,23 * * *", "America/Nuuk", "2027-03-27 12:00", ["03-28 00:00:00-0100", "03-28 23:00:00-0100"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["10-04 02:30:00+1100", "10-05 02:15:00+1100"]),
        (
            "30 */1 * * *",
            AMSTERDAM,
            "2026-10-25",
            ["10-25 00:30:00+0200", "10-25 01:30:00+0200", "10-25 02:30:00+0200", "10-25 02:30:00+0100"],
        ),
        (
            "30 */1 * * *",
            AMSTERDAM,
            "2026-03-29",
            ["03-29 00:30:00+0100", "03-29 01:30:00+0100", "03-29 03:30:00+0200"],
        ),
        ("0 9 * * 5", "Africa/Cairo", "2026-04-20", ["04-24 09:00:00+0300", "05-01 09:00:00+0300"]),
        ("0 0 29 2 *", "UTC", "2026-01-01", ["02-29 00:00:00+0000", "02-29 00:00:00+0000"]),
    ],
)
def test_a_cron_follows_the_clocks_of_its_zone(written: str, zone: str, after: str, expected: list[str]) -> None:
    start = datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)) - timedelta(seconds=1)
    assert coming(written, zone, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("written", "zone", "moment"),
    [
        ("at 2026-12-01 09:00", AMSTERDAM, "2026-12-01T08:00:00"),
        ("At 2026-12-01T09:00:05", "UTC", "2026-12-01T09:00:05"),
        ("at 2026-10-25 02:30", AMSTERDAM, "2026-10-25T00:30:00"),
        ("in 20m", AMSTERDAM, "2026-03-01T12:27:30"),
        ("in 1 day", "UTC", "2026-03-02T12:07:30"),
    ],
)
def test_a_single_moment_comes_once(written: str, zone: str, moment: str) -> None:
    once = Once(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert read_schedule(written, zone, NOW) == once
    assert next_times(once, read_zone(zone), NOW, NOW) == (once.moment,)
    assert next_times(once, read_zone(zone), NOW, once.moment) == ()
    assert count_times(once, read_zone(zone), NOW, NOW, once.moment + timedelta(seconds=1)) == 1


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            "at 2026-03-01 13:07",
            "that moment is over: it was 2026-03-01 12:07:00 UTC, and now it is 2026-03-01 12:07:30",
        ),
        ("at 2026-03-29 02:30", "go forward over 02:30; choose another hour"),
        ("at 2026-02-30 09:00", "this date or time does not exist"),
        ("at 2026-12-01 24:30", "this date or time does not exist"),
        ("at 2126-12-01 09:00", "from 1970 to 2099"),
        ("at 0001-01-01 00:00", "from 1970 to 2099"),
        ("at noon", "such as at 2026-12-01 09:00"),
        ("at", "such as at 2026-12-01 09:00"),
        ("in", "such as in 20m"),
        ("in a while", "such as in 20m"),
        ("in 0s", "at least 1 second"),
        ("in 999999999d", "at most 366 days"),
    ],
)
def test_a_moment_that_cannot_come_is_refused_with_the_reason(written: str, reason: str) -> None:
    with pytest.raises(InvalidEdit) as refused:
        read_schedule(written, AMSTERDAM, NOW)
    assert reason in str(refused.value)


def test_what_was_accepted_once_is_read_again_whatever_the_limits_are_now() -> None:
    with pytest.raises(InvalidEdit, match="at least 60 seconds"):
        read_schedule("every 45s", "UTC", NOW, timedelta(seconds=60))
    assert next_times(read_stored_schedule("every 2s", "UTC", NOW), read_zone("UTC"), NOW, NOW)
    assert read_stored_schedule("at 2020-01-01 00:00", "UTC", NOW) == Once(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidEdit):
        read_stored_schedule("every 0m", "UTC", NOW)


@pytest.mark.parametrize(
    ("written", "seconds", "reason"),
    [("every 10m", 300, "less than 300 seconds"), ("every 10m", -1, "0 to 3600"), ("0 9 * * *", 3601, "0 to 3600")],
)
def test_a_jitter_has_its_limits(written: str, seconds: int, reason: str) -> None:
    schedule = read_schedule(written, "UTC", NOW)
    check_jitter(schedule, 0)
    check_jitter(schedule, 299)
    with pytest.raises(InvalidEdit) as refused:
        check_jitter(schedule, seconds)
    assert reason in str(refused.value)


WRITTEN = st.sampled_from(
    ["every 7m", "every 25h", "30 * * * *", "*/20 1-3 * * *", "30 2 * * *", "0 9 1 * 5", "15 0 * * SUN"]
)
ZONES = st.sampled_from(["UTC", AMSTERDAM, NEW_YORK, "Australia/Lord_Howe", "Africa/Cairo", "America/Havana"])
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@settings(derandomize=True, deadline=None, database=None, max_examples=100)
@given(WRITTEN, ZONES, MOMENTS, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_counting_agrees_with_looking(written: str, zone: str, after: datetime, span: timedelta) -> None:
    schedule, place, until = read_stored_schedule(written, zone, NOW), read_zone(zone), after + span
    seen = list(takewhile(lambda time: time < until, times_after(schedule, place, NOW, after)))
    assert seen == sorted(set(seen))
    assert count_times(schedule, place, NOW, after, until) == len(seen)


def test_counting_years_of_seconds_costs_no_walk() -> None:
    utc = read_zone("UTC")
    assert (
        count_times(read_stored_schedule("every 30s", "UTC", NOW), utc, NOW, NOW, NOW + timedelta(days=3650))
        == 10_512_000
    )
    decade = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    assert count_times(read_stored_schedule("* * * * *", "UTC", NOW), utc, NOW, *decade) == 3652 * 1440 - 1


class Counting(ZoneInfo):
    """A zone that counts how often it is asked."""

    asked = 0

    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        Counting.asked += 1
        return super().utcoffset(moment)


@pytest.mark.parametrize("after", ["2026-11-22 22:58", "2026-10-25 22:30", "2026-03-29 00:57", "2026-06-01 21:59"])
def test_a_preview_of_every_minute_does_not_look_at_every_minute(after: str) -> None:
    zone, moment = Counting(AMSTERDAM), datetime.fromisoformat(after).replace(tzinfo=UTC)
    Counting.asked = 0
    found = next_times(read_stored_schedule("* * * * *", AMSTERDAM, NOW), zone, NOW, moment)
    assert found == tuple(moment + timedelta(minutes=ahead) for ahead in range(1, 6))
    assert Counting.asked < 500


def test_months_without_any_time_are_passed_over_and_no_other() -> None:
    assert coming("0 0 29 2 *", "UTC", NOW, 2) == ["02-29 00:00:00+0000"] * 2
    assert coming("15 3 31 1,12 *", "UTC", NOW, 3) == [
        "12-31 03:15:00+0000",
        "01-31 03:15:00+0000",
        "12-31 03:15:00+0000",
    ]

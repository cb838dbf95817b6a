"""Around which hours a cron is told time by time (ADR 17)."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from maestro.domain.schedules.expressions import read_cron
from maestro.domain.schedules.times import count_times, doubtful_hours, times_within

TODAY = date(2026, 11, 22)


@pytest.mark.parametrize(
    ("written", "zone", "expected"),
    [
        ("0 9 * * *", "Europe/Amsterdam", {}),
        ("30 1 * * *", "UTC", {}),
        ("30 1 * * *", "Asia/Kolkata", {}),
        ("30 1 * * 1", "Europe/Amsterdam", {}),
        ("30 1 * * *", "Europe/Amsterdam", {"2027-03-28": {1, 2, 3}, "2027-10-31": {1, 2, 3}}),
        ("* * * * *", "America/New_York", {"2027-03-14": {1, 2, 3}, "2027-11-07": {0, 1, 2}}),
        ("30 23 * * *", "America/Havana", {"2027-03-13": {23}, "2027-11-06": {23}}),
        ("0 9 * * 0", "America/Havana", {"2027-03-14": set(range(24))}),
    ],
)
def test_only_what_comes_near_a_change_of_the_clocks_is_doubtful(
    written: str, zone: str, expected: dict[str, set[int]]
) -> None:
    found = doubtful_hours(read_cron(written), ZoneInfo(zone), TODAY)
    assert {str(day): set(hours) for day, hours in found.items()} == expected


def test_its_times_there_are_all_and_only_those() -> None:
    zone, cron = ZoneInfo("Europe/Amsterdam"), read_cron("*/30 * * * *")
    night = date(2027, 10, 31)
    found = times_within(cron, zone, {night: {1, 2}})
    assert [f"{time.astimezone(zone):%H:%M%z}" for time in found] == [
        "01:00+0200",
        "01:30+0200",
        "02:00+0200",
        "02:30+0200",
        "02:00+0100",
        "02:30+0100",
    ]
    assert {time.astimezone(zone).date() for time in found} == {night}


@pytest.mark.parametrize("written", ["30 23 * * *", "0 0,23 * * *", "30 23 * * 6"])
def test_a_gap_that_ends_its_day_brings_its_times_to_the_next_one_once(written: str) -> None:
    zone, cron = ZoneInfo("America/Nuuk"), read_cron(written)
    found = times_within(cron, zone, doubtful_hours(cron, zone, date(2027, 3, 1)))
    midnight = datetime(2027, 3, 28, tzinfo=zone)
    assert found.count(midnight) == 1
    before, after = datetime(2027, 3, 27, 12, tzinfo=zone), datetime(2027, 3, 28, 12, tzinfo=zone)
    assert count_times(cron, zone, before, before, after) == 1


def test_a_change_that_is_going_on_is_not_over() -> None:
    """The day after, the clock may still be in it; a day later it is not."""
    zone, cron = ZoneInfo("Europe/Amsterdam"), read_cron("30 1 * * *")
    sunday = date(2027, 3, 28)
    assert sunday in doubtful_hours(cron, zone, sunday)
    assert sunday not in doubtful_hours(cron, zone, date(2027, 4, 2))
    assert datetime(2027, 3, 28, 1, 30, tzinfo=zone) in times_within(cron, zone, {sunday: {1}})

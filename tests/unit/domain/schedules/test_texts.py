"""How schedules are written, on which days they come, and what is refused (docs/decisions.md: schedules)."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.expressions import SHORTEST, CronTimes, Interval, read_schedule

NOW = datetime(2026, 3, 1, 12, 7, tzinfo=UTC)
AMSTERDAM = "Europe/Amsterdam"


def coming(cron: CronTimes) -> list[str]:
    days = (NOW.date() + timedelta(days=ahead) for ahead in range(12 * 366))
    times = (time for day in days for time in cron.times_on(day) if time > NOW.replace(tzinfo=None))
    return [f"{time:%Y-%m-%d %H:%M}" for time in islice(times, 3)]


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("every 30s", timedelta(seconds=30)),
        ("Every 90 SEC", timedelta(seconds=90)),
        ("every 1 minute", timedelta(minutes=1)),
        ("every 15min", timedelta(minutes=15)),
        ("  every 2 hrs ", timedelta(hours=2)),
        ("every 3 days", timedelta(days=3)),
    ],
)
def test_an_interval_has_a_number_and_a_unit(written: str, length: timedelta) -> None:
    assert read_schedule(written, "UTC", NOW) == Interval(length)


@pytest.mark.parametrize(
    ("written", "times"),
    [
        ("*/20 * * * *", ["2026-03-01 12:20", "2026-03-01 12:40", "2026-03-01 13:00"]),
        ("5/20 12 * * *", ["2026-03-01 12:25", "2026-03-01 12:45", "2026-03-02 12:05"]),
        ("0 9-17/4 * * *", ["2026-03-01 13:00", "2026-03-01 17:00", "2026-03-02 09:00"]),
        ("0,30 9 * * MON-fri", ["2026-03-02 09:00", "2026-03-02 09:30", "2026-03-03 09:00"]),
        ("0 9 * * 0", ["2026-03-08 09:00", "2026-03-15 09:00", "2026-03-22 09:00"]),
        ("0 9 * * 7", ["2026-03-08 09:00", "2026-03-15 09:00", "2026-03-22 09:00"]),
        ("0 9 * * 5-7", ["2026-03-06 09:00", "2026-03-07 09:00", "2026-03-08 09:00"]),
        ("0 9 1 jan,JUL *", ["2026-07-01 09:00", "2027-01-01 09:00", "2027-07-01 09:00"]),
        ("0 9 31 * *", ["2026-03-31 09:00", "2026-05-31 09:00", "2026-07-31 09:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 9 13 * 5", ["2026-03-06 09:00", "2026-03-13 09:00", "2026-03-20 09:00"]),
    ],
)
def test_cron_comes_when_its_fields_say(written: str, times: list[str]) -> None:
    cron = read_schedule(written, "UTC", NOW)
    assert isinstance(cron, CronTimes)
    assert coming(cron) == times


@pytest.mark.parametrize("written", ["0 9 * * *", "30 * * * *", "30 2 * * MON", "30 2 * * *", "0 0-5 * * SUN"])
def test_a_change_of_the_clocks_is_no_hindrance(written: str) -> None:
    assert isinstance(read_schedule(written, AMSTERDAM, NOW), CronTimes)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("banana", "every 15m"),
        ("", "every 15m"),
        ("every", "a number and s, m, h or d"),
        ("every hour", "a number and s, m, h or d"),
        ("every 1w", "a number and s, m, h or d"),
        ("every 10s", "at least 30 seconds"),
        ("every 0m", "at least 30 seconds"),
        ("every 999999999d", "at most 366 days"),
        ("61 * * * *", "minute must be a number from 0 to 59"),
        ("-1 * * * *", "minute must be"),
        ("* 24 * * *", "hour must be"),
        ("* * 0 * *", "day of the month must be"),
        ("* * * 13 *", "month must be a number from 1 to 12 or a name such as feb"),
        ("* * * * 8", "day of the week must be"),
        ("* * * * someday", "day of the week must be"),
        ("* * ? * *", "day of the month must be"),
        ("* * L * *", "day of the month must be"),
        ("*/0 * * * *", "step of the minute"),
        ("*/x * * * *", "step of the minute"),
        ("1,,2 * * * *", "minute must be"),
        ("٣ * * * *", "minute must be"),
        ("* 22-6 * * *", "runs backwards"),
        ("* * * *", "five fields"),
        ("*/10 * * * * *", "no seconds"),
        ("@daily", "write 0 0 * * *"),
        ("0 0 31 2 *", "no date matches"),
        ("0 0 31 4,6 *", "no date matches"),
    ],
)
def test_anything_else_is_refused_with_the_reason(written: str, reason: str) -> None:
    with pytest.raises(InvalidEdit) as refused:
        read_schedule(written, AMSTERDAM, NOW)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("europe/amsterdam", "did you mean Europe/Amsterdam?"),
        ("New York", "did you mean America/New_York?"),
        ("Mars/Olympus", "such as Europe/Amsterdam"),
        ("../../etc/passwd", "IANA name"),
        ("Europe", "IANA name"),
        ("", "IANA name"),
        ("\0", "IANA name"),
    ],
)
def test_an_unknown_time_zone_is_refused_with_a_hint(zone: str, hint: str) -> None:
    with pytest.raises(InvalidEdit) as refused:
        read_schedule("every 15m", zone, NOW)
    assert hint in str(refused.value)


WORDS = st.sampled_from(
    ["*", "0", "5", "59", "60", "1-5", "5-1", "*/5", "*/0", "mon", "feb", "1,2", ",", "-", "/", "every", "9s"]
)


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(st.lists(WORDS, max_size=6).map(" ".join) | st.text())
def test_any_text_is_a_schedule_that_comes_or_is_refused(written: str) -> None:
    try:
        schedule = read_schedule(written, AMSTERDAM, NOW)
    except InvalidEdit:
        return
    if isinstance(schedule, CronTimes):
        assert coming(schedule)
    elif isinstance(schedule, Interval):
        assert schedule.length >= SHORTEST
    else:
        assert schedule.moment > NOW

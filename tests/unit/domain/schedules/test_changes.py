"""What a change makes of a schedule: what counts anew, what is forgiven, and which rules hold for what stays."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.edits import ScheduleChange, changed_columns
from maestro.domain.schedules.expressions import SHORTEST
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.values import read

MADE = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
NOW = MADE + timedelta(hours=1)


def planned(kind: type[ScheduleColumns] = Heartbeat, **columns: Any) -> ScheduleColumns:
    row = {
        "agent_id": 1,
        "name": "n",
        "schedule": "every 15m",
        "prompt": "p",
        "platform": "web",
        "account": "default",
        "channel": "c",
        "created_by": "operator",
        "anchored_at": MADE,
        "created_at": MADE,
        "updated_at": MADE,
    }
    return kind(**{**row, **columns})


def change(row: ScheduleColumns, **fields: object) -> dict[str, object]:
    return changed_columns(row, read(ScheduleChange, fields), NOW, SHORTEST)


def test_only_another_schedule_or_zone_counts_from_now() -> None:
    assert change(planned(), schedule="every 15m", prompt="q") == {"prompt": "q"}
    anew = {"anchored_at": NOW, "ended_at": None}
    assert change(planned(), schedule="every 20m") == {"schedule": "every 20m", **anew}
    assert change(planned(), timezone="Europe/Amsterdam") == {"zone": "Europe/Amsterdam", **anew}


def test_nothing_given_is_nothing_changed() -> None:
    assert change(planned(Cron)) == {}
    assert change(planned(Cron), script=None, enabled=True, name="n", jitterSeconds=0) == {}


def test_who_enables_it_forgives_the_failures() -> None:
    row = planned(paused_reason="failed 10 times in a row", failures=10)
    assert change(row, prompt="q") == {"prompt": "q"}
    assert change(row, enabled=True) == {"paused_reason": "", "failures": 0}
    assert change(planned(enabled=False), enabled=True) == {"enabled": True}


def test_what_ran_once_runs_again_when_it_is_enabled_or_has_another_moment() -> None:
    ended = planned(Cron, schedule="in 20m", ended_at=MADE)
    assert change(ended, prompt="q") == {"prompt": "q"}
    assert change(ended, enabled=True) == {"anchored_at": NOW, "ended_at": None}
    assert change(ended, schedule="in 30m") == {"schedule": "in 30m", "anchored_at": NOW, "ended_at": None}
    with pytest.raises(InvalidEdit, match="that moment is over"):
        change(planned(Cron, schedule="at 2026-11-20 08:30", ended_at=MADE), enabled=True)


def test_what_stays_keeps_to_the_rules_under_which_it_was_written() -> None:
    quick = planned(schedule="every 10s")
    assert change(quick, jitterSeconds=4) == {"jitter_seconds": 4}
    with pytest.raises(InvalidEdit, match="at least 30 seconds"):
        change(quick, timezone="Europe/Amsterdam")
    with pytest.raises(InvalidEdit, match="less than half"):
        change(planned(jitter_seconds=400), schedule="every 10m")


def test_there_is_always_something_to_do() -> None:
    with pytest.raises(InvalidEdit, match="prompt: is missing"):
        change(planned(), prompt=" ")
    script = {"url": "https://example.com", "template": "x"}
    assert change(planned(), prompt="", script=script).keys() == {"prompt", "script"}
    with pytest.raises(InvalidEdit, match="only a heartbeat can have a script"):
        change(planned(Cron), script=script)

"""The time, in UTC and elsewhere."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from maestro.tools.base import ToolCaller, ToolFailure
from maestro.tools.local import GetTime

CALLER = ToolCaller("job", 1, 1, Path())


def noon() -> datetime:
    return datetime(2026, 7, 1, 22, 30, 5, 999, tzinfo=UTC)


async def test_it_tells_utc() -> None:
    assert await GetTime(noon).run({}, CALLER) == "UTC: 2026-07-01T22:30:05+00:00 (Wednesday)"


async def test_it_tells_the_time_elsewhere_too() -> None:
    told = await GetTime(noon).run({"timezone": "Europe/Berlin"}, CALLER)
    assert told.splitlines()[1] == "Europe/Berlin: 2026-07-02T00:30:05+02:00 (Thursday)"


@pytest.mark.parametrize("name", ["Berlin", "Europe", "../../etc/passwd", "/etc/localtime", "\0", "x" * 5000])
async def test_an_unknown_zone_is_a_failure_that_names_the_fix(name: str) -> None:
    with pytest.raises(ToolFailure, match="Europe/Berlin"):
        await GetTime(noon).run({"timezone": name}, CALLER)

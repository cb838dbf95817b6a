"""What one plain message may ask of PostgreSQL, in exact counts: lower a limit when a change earns it."""

from pathlib import Path

import pytest

from tests.support.round_trips import ServerCounts, counted_instance

ROUND_TRIPS = 40
STATEMENTS = 66

pytestmark = pytest.mark.postgresql_only(reason="SQLite runs in the process")


async def test_a_plain_message_waits_for_the_server_no_more_often_and_never_stops_other_writers(tmp_path: Path) -> None:
    async with counted_instance(tmp_path) as answer:
        counts = await answer()
    assert counts.alone == 0, story(counts)
    assert len(counts.trips) <= ROUND_TRIPS, story(counts)
    assert len(counts.statements) <= STATEMENTS, story(counts)
    assert counts.scoped, "the transactions were seen"


def story(counts: ServerCounts) -> str:
    """Return the statements of each round trip."""
    return "\n".join(f"{number:3} {sql[:160]}" for number, trip in enumerate(counts.trips, 1) for sql in trip)

"""What grows in a soak is found, and what stays as it is is not."""

from dataclasses import replace

from benchmarks.results import Section
from benchmarks.soak.mixed import Sample, judge

MINUTE = Sample(
    minutes=0,
    messages=0,
    maestro_mib=400,
    server_mib=200,
    descriptors=60,
    threads=40,
    store_bytes=0,
    p50_ms=350,
    p95_ms=500,
    load=1,
)
STEADY = [replace(MINUTE, minutes=at, messages=300 * at, store_bytes=3_000_000 * at) for at in range(1, 61)]


def missed(section: Section) -> list[str]:
    """Return the figures that are not as they should be."""
    return [one.what for one in section.figures if one.met is False]


def test_a_steady_maestro_misses_nothing() -> None:
    assert missed(judge(STEADY, 60)) == []


def test_a_leak_is_found() -> None:
    leaking = [replace(one, maestro_mib=400 + 2 * one.minutes, descriptors=60 + int(one.minutes)) for one in STEADY]
    assert missed(judge(leaking, 60)) == ["memory of Maestro, change", "open descriptors, change"]


def test_growth_before_the_end_of_the_warm_up_counts_for_nothing() -> None:
    warming = [replace(one, maestro_mib=200) if one.minutes < 15 else one for one in STEADY]
    assert missed(judge(warming, 60)) == []


def test_messages_that_cost_more_and_more_are_found() -> None:
    dearer = [replace(one, store_bytes=int(100_000 * one.minutes**2), p50_ms=300 + 3 * one.minutes) for one in STEADY]
    assert missed(judge(dearer, 60)) == [
        "store for each message, change",
        "an answer beyond its model calls, p50, change",
    ]

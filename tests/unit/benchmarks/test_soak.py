"""A soak finds what grows, and only that."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.machine import this_machine
from benchmarks.report import from_json
from benchmarks.results import Section
from benchmarks.soak.__main__ import add_parts, list_missed
from benchmarks.soak.million import DAYS, Day, WritingStoppedError, WritingTotals, judge_days, million
from benchmarks.soak.mixed import LEAST_SAMPLES, Sample, TooFewSamplesError, judge

MINUTE = Sample(
    minutes=0,
    messages=0,
    maestro_mib=400,
    server_mib=200,
    descriptors=60,
    threads=40,
    store_bytes=0,
    server_descriptors=30,
    server_threads=12,
    server_store_bytes=0,
    p50_ms=350,
    p95_ms=500,
    load=1,
)
STEADY = [
    replace(MINUTE, minutes=at, messages=300 * at, store_bytes=3_000_000 * at, server_store_bytes=9_000_000 * at)
    for at in range(1, 61)
]


def missed(section: Section) -> list[str]:
    """Return the figures that miss their targets."""
    return [one.what for one in section.figures if one.met is False]


def test_a_steady_maestro_misses_nothing() -> None:
    assert missed(judge(STEADY, 60)) == []


def test_a_leak_is_found() -> None:
    leaking = [replace(one, maestro_mib=400 + 2 * one.minutes, descriptors=60 + int(one.minutes)) for one in STEADY]
    assert missed(judge(leaking, 60)) == ["memory of Maestro: RSS, change", "open descriptors, change"]


def test_growth_before_the_end_of_the_warm_up_counts_for_nothing() -> None:
    warming = [replace(one, maestro_mib=200) if one.minutes < 15 else one for one in STEADY]
    assert missed(judge(warming, 60)) == []


def test_messages_that_cost_more_and_more_are_found() -> None:
    dearer = [replace(one, store_bytes=int(100_000 * one.minutes**2), p50_ms=300 + 3 * one.minutes) for one in STEADY]
    assert missed(judge(dearer, 60)) == [
        "store for each message, change",
        "an answer beyond its model calls, p50, change",
    ]


def test_growth_of_the_temporal_server_is_found() -> None:
    growing = [
        replace(one, server_store_bytes=int(100_000 * one.minutes**2), server_descriptors=30 + int(one.minutes))
        for one in STEADY
    ]
    section = judge(growing, 60)
    assert list_missed([section]) == [
        "soak: open descriptors of its Temporal server, change",
        "soak: Temporal server's store for each message, change",
    ]


def test_a_part_that_is_run_again_leaves_the_other_one(tmp_path: Path) -> None:
    path, machine = tmp_path / "soak.json", this_machine()
    hour = judge(STEADY, 60)
    add_parts(path, machine, [(replace(hour, name="million"), STEADY[:1])])
    add_parts(path, machine, [(hour, STEADY)])
    add_parts(path, machine, [(replace(hour, title="again"), STEADY[:2])])
    assert [(one.name, one.title) for one in from_json(path.read_text())[1]] == [
        ("soak", "again"),
        ("million", hour.title),
    ]
    samples = json.loads(path.read_text())["samples"]
    assert {name: len(found) for name, found in samples.items()} == {"soak": 2, "million": 1}


@pytest.mark.parametrize("count", [0, 1, LEAST_SAMPLES - 1])
def test_a_run_with_too_few_samples_says_so(count: int) -> None:
    with pytest.raises(TooFewSamplesError, match=f"{count} samples"):
        judge(STEADY[:count], 1)
    assert judge(STEADY[:LEAST_SAMPLES], 1).figures


def test_a_store_that_does_not_grow_in_the_first_half_says_so() -> None:
    with pytest.raises(TooFewSamplesError, match="did not grow"):
        judge([replace(one, store_bytes=4096) for one in STEADY], 60)


FLAT = [Day(cpu_ms=4.0, deletion_ms=5.0, file_mib=200.0) for _ in range(DAYS)]
"""The days of a store whose messages cost the same each day."""
TOTALS = WritingTotals(messages=1_000_000, left=70_000, rounds=DAYS, seconds=3_600)


def test_days_of_other_load_are_not_taken_for_a_higher_cost() -> None:
    busy = [replace(one, cpu_ms=8.0, deletion_ms=9.0) if 60 <= day < 95 else one for day, one in enumerate(FLAT)]
    assert missed(judge_days(busy, TOTALS)) == []


def test_messages_that_cost_more_each_day_are_found() -> None:
    dearer = [
        Day(one.cpu_ms + 0.02 * day, one.deletion_ms + 0.03 * day, one.file_mib + 2.5 * day)
        for day, one in enumerate(FLAT)
    ]
    assert missed(judge_days(dearer, TOTALS)) == [
        "growth of the store for each question",
        "CPU of a question and its answer, change",
        "CPU of their deletion, change",
    ]


def test_the_million_messages_stop_when_the_command_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(WritingStoppedError):
        million(tmp_path, 1_000_000, stop)

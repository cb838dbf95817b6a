"""Timeouts are what they are on a quiet machine, grow with the load within a bound, and come back."""

import os
from datetime import timedelta

import pytest

from temporal.attempts import LARGEST_FACTOR, SMOOTHING_SECONDS, LoadGauge

BASE = timedelta(seconds=5)


class Machine:
    """A machine with two cores whose load is set."""

    def __init__(self, last_minute: float = 0.0) -> None:
        self.now = 0.0
        self.last_minute = last_minute
        self.runnable = last_minute
        self.gauge = LoadGauge(self.read, lambda: self.now)

    def read(self) -> str:
        return f"{self.last_minute:.2f} 1.00 1.00 {self.runnable:.0f}/512 4711\n"

    def after(self, seconds: float, runnable: float) -> float:
        """Return by what a timeout grows when the machine has been this busy for some seconds."""
        self.runnable = runnable
        for _ in range(round(seconds)):
            self.now += 1
            self.gauge.lengthen_timeout(BASE)
        return self.factor()

    def factor(self) -> float:
        return self.gauge.lengthen_timeout(BASE) / BASE


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("load", "factor"), [(0, 1), (1, 1), (4, 1), (8, 2), (20, 5), (24, LARGEST_FACTOR), (500, LARGEST_FACTOR)]
)
def test_a_timeout_grows_with_the_threads_that_wait_for_a_core(load: int, factor: float) -> None:
    assert Machine(load).factor() == pytest.approx(factor)


def test_a_process_that_starts_on_a_busy_machine_knows_it_at_once() -> None:
    assert Machine(20).factor() == pytest.approx(5)


def test_one_busy_moment_changes_nothing() -> None:
    assert Machine(1).after(1, 20) == 1


def test_a_load_that_stays_counts_within_seconds() -> None:
    assert Machine(0).after(2 * SMOOTHING_SECONDS, 20) == pytest.approx(5, rel=0.15)


def test_a_machine_that_becomes_quiet_has_its_timeouts_back() -> None:
    assert Machine(20).after(2 * SMOOTHING_SECONDS, 1) == 1


def test_what_was_read_long_ago_counts_for_nothing() -> None:
    machine = Machine(500)
    machine.factor()
    machine.now += 100 * SMOOTHING_SECONDS
    machine.runnable = 1
    assert machine.factor() == 1


@pytest.mark.parametrize("text", ["", "0.1 0.2", "no numbers at all here"])
def test_a_machine_that_does_not_say_counts_as_quiet(text: str) -> None:
    assert LoadGauge(lambda: text).lengthen_timeout(BASE) == BASE


def test_a_machine_without_the_file_counts_as_quiet() -> None:
    def read() -> str:
        raise FileNotFoundError

    assert LoadGauge(read).lengthen_timeout(BASE) == BASE

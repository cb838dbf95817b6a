"""Figures with their targets, and the sections of a report."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import median


@dataclass(frozen=True)
class Target:
    """The limit of a figure."""

    limit: float
    at_least: bool

    def met(self, value: float) -> bool:
        """Say whether a value keeps the limit."""
        return value >= self.limit if self.at_least else value <= self.limit


def at_least(limit: float) -> Target:
    """Return a target that is met from the limit up."""
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    """Return a target that is met up to the limit."""
    return Target(limit, at_least=False)


@dataclass(frozen=True)
class Figure:
    """A quantity measured in one or more rounds; its value is their median."""

    what: str
    unit: str
    rounds: tuple[float, ...]
    target: Target | None = None

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        return self.target.met(self.value) if self.target else None


def figure(what: str, unit: str, rounds: float | Sequence[float], target: Target | None = None) -> Figure:
    """Return a figure of one value or of several rounds."""
    values = (rounds,) if isinstance(rounds, int | float) else rounds
    return Figure(what, unit, tuple(float(value) for value in values), target)


@dataclass(frozen=True)
class Section:
    """The figures of one measurement, and how they were measured."""

    name: str
    title: str
    how: str
    figures: tuple[Figure, ...]
    seconds: float = 0.0
    load: float = 0.0
    """The load average of the minute before its start."""

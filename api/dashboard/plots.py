"""The geometry of plots: stacked columns, one for each day or month, as the paths and words of an SVG.

Everything is drawn with attributes, because our content policy allows no style in a page; the colours are classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 520, 220
LEFT, RIGHT, TOP, BOTTOM = 72, 8, 10, 26
LABELS = 5
"""Days that are named under a plot, about."""
STEPS = 4
"""Lines that are drawn across a plot, about."""
COLOURS = 6
"""Colours that can be told apart; what is beyond is one part, the last."""
OTHERS = "others"
DAY, YEAR = len("2026-11-20"), len("2026-")
"""Characters of a day, and of its year, which is left out where there is little room."""
EDGE = 22
"""How far from the edge the middle of a label must stay, to be read whole."""
TOLD_APART = 48
"""Columns that say what is in them; of more, each says what all of it comes to, or the page would be too heavy."""
GAP = 0.25
"""The share of a column that is left free beside it."""

Say = Callable[[float], str]


@dataclass(frozen=True)
class Part:
    """What is stacked in one colour, from 1 on: its value in each column."""

    colour: int
    label: str
    values: tuple[float, ...]

    @property
    def total(self) -> float:
        """What all of it comes to."""
        return sum(self.values)


@dataclass(frozen=True)
class Shape:
    """A part as the path of its pieces."""

    colour: int
    path: str


@dataclass(frozen=True)
class Column:
    """Where a column is pointed at, and what it then says."""

    x: float
    width: float
    words: str


@dataclass(frozen=True)
class Label:
    """Words beside a plot, and where."""

    at: float
    words: str


@dataclass(frozen=True)
class Plot:
    """A drawing; ``legend`` are its parts."""

    shapes: tuple[Shape, ...]
    columns: tuple[Column, ...]
    across: tuple[Label, ...]
    below: tuple[Label, ...]
    legend: tuple[Part, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    floor: int = HEIGHT - BOTTOM


def parts_of(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> tuple[Part, ...]:
    """Return the largest parts in their colours, and the others as one; ``values`` are by name of column and of part.

    A part that is nothing everywhere is left out.
    """
    totals: dict[str, float] = {}
    for (_, label), value in values.items():
        totals[label] = totals.get(label, 0.0) + value
    ranked = sorted((label for label, total in totals.items() if total > 0), key=lambda one: (-totals[one], one))
    own = ranked if len(ranked) <= COLOURS else ranked[: COLOURS - 1]
    rest = ranked[len(own) :]
    found = [Part(colour, one, _values(names, values, (one,))) for colour, one in enumerate(own, 1)]
    return tuple(found) if not rest else (*found, Part(COLOURS, OTHERS, _values(names, values, rest)))


def stacked(names: Sequence[str], parts: Sequence[Part], say: Say) -> Plot:
    """Draw parts as stacked columns, one for each name; ``say`` writes a value for people."""
    scale = ticks(max((sum(column) for column in zip(*(part.values for part in parts), strict=True)), default=0.0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    floors = [0.0] * len(names)
    shapes = []
    for part in parts:
        shapes.append(Shape(part.colour, _path(part.values, floors, scale[-1], step)))
        floors = [floor + value for floor, value in zip(floors, part.values, strict=True)]
    columns = (
        Column(_round(LEFT + place * step), _round(step), _words(name, place, parts, say))
        for place, name in enumerate(names)
    )
    return Plot(
        shapes=tuple(shapes),
        columns=tuple(columns),
        across=tuple(Label(_round(_height(value, scale[-1])), say(value)) for value in scale),
        below=tuple(_below(names, step)),
        legend=tuple(parts),
    )


def ticks(most: float) -> tuple[float, ...]:
    """Return round values from 0 up to one that is not below ``most``, for the lines across."""
    if most <= 0:
        return (0.0, 1.0)
    rough = most / STEPS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * round_one for round_one in (1, 2, 2.5, 5, 10) if unit * round_one >= rough * (1 - 1e-9))
    count = math.ceil(most / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(count + 1))


def _values(names: Sequence[str], values: Mapping[tuple[str, str], float], labels: Sequence[str]) -> tuple[float, ...]:
    return tuple(sum(values.get((name, label), 0.0) for label in labels) for name in names)


def _path(values: Sequence[float], floors: Sequence[float], most: float, step: float) -> str:
    """Return the pieces of one part as a path, each on top of what is below it."""
    width, pieces = _round(step * (1 - GAP)), []
    for place, (value, floor) in enumerate(zip(values, floors, strict=True)):
        if value > 0:
            low, high = _height(floor, most), _height(floor + value, most)
            left = _round(LEFT + place * step + step * GAP / 2)
            pieces.append(f"M{left:g} {_round(low):g}v{_round(high - low):g}h{width:g}v{_round(low - high):g}z")
    return "".join(pieces)


def _height(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most


def _below(names: Sequence[str], step: float) -> list[Label]:
    every = max(1, math.ceil(len(names) / LABELS))
    return [
        Label(_round(min(LEFT + (place + 0.5) * step, WIDTH - RIGHT - EDGE)), name[YEAR:] if len(name) == DAY else name)
        for place, name in enumerate(names)
        if (len(names) - 1 - place) % every == 0
    ]


def _words(name: str, place: int, parts: Sequence[Part], say: Say) -> str:
    if parts and len(parts[0].values) > TOLD_APART:
        return f"{name}: {say(sum(part.values[place] for part in parts))}"
    taken = [f"{part.label} {say(part.values[place])}" for part in parts if part.values[place] > 0]
    return f"{name}: {', '.join(taken) or 'nothing'}"


def _round(number: float) -> float:
    return round(number, 1)

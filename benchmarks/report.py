"""The results as a table for a terminal, as JSON, and as a page.

``python -m benchmarks.report`` writes the page again from ``results.json``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine
from benchmarks.results import Figure, Section, Target

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
JSON = HERE / "results.json"
SOAK = HERE / "soak.json"

HEAD = """\
# Results

Written by `make bench`; [README.md](README.md) says what is measured and how to repeat it. Each figure is the median
of its rounds, and every percentile is a measured value. The load average before a part includes the part before it. The
sections of [the soak](README.md#soak) say when and on which machine they were measured.
"""


def table(section: Section) -> str:
    """Return a section as lines for a terminal."""
    rows = [_cells(one) for one in section.figures]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {target:<{widths[2]}}  {rounds}".rstrip()
        for what, value, target, rounds in rows
    ]
    return "\n".join([f"{section.title} (load {section.load:.1f})", *lines])


def as_json(machine: Machine, sections: Sequence[Section]) -> str:
    """Return machine and sections with the value of every round."""
    rows = [
        {**asdict(section), "figures": [asdict(one) | {"value": one.value, "met": one.met} for one in section.figures]}
        for section in sections
    ]
    return json.dumps({"machine": asdict(machine), "sections": rows}, indent=1) + "\n"


def from_json(text: str) -> tuple[Machine, list[Section]]:
    """Return the machine and the sections of a text of ``as_json``."""
    document = json.loads(text)
    machine = document["machine"]
    return Machine(**machine | {"load": tuple(machine["load"])}), [
        _section_of(section) for section in document["sections"]
    ]


def write_pages() -> None:
    """Write the page from the results."""
    RESULTS.write_text(published_page())


def published_page() -> str:
    """Return the page that the results in their files make."""
    machine, sections = from_json(JSON.read_text())
    soak_sections = from_json(SOAK.read_text())[1] if SOAK.exists() else []
    return page(machine, [*sections, *soak_sections])


def page(machine: Machine, sections: Sequence[Section]) -> str:
    """Return machine and sections as Markdown."""
    return "\n".join([HEAD, *_about(machine), *(line for section in sections for line in _section(section))])


def _section_of(document: dict[str, Any]) -> Section:
    return Section(**document | {"figures": tuple(_figure_of(one) for one in document["figures"])})


def _figure_of(document: dict[str, Any]) -> Figure:
    target = Target(**document["target"]) if document["target"] else None
    return Figure(document["what"], document["unit"], tuple(document["rounds"]), target)


def _about(machine: Machine) -> Iterator[str]:
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    yield f"* {machine.date}; load averages before the run: {', '.join(f'{load:.2f}' for load in machine.load)}"
    yield f"* {machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB; {machine.system}"
    yield f"* Maestro {machine.release}; Python {machine.python}; {libraries}"
    yield ""


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    yield section.how
    yield ""
    yield "| | median | target | rounds |"
    yield "|---|---:|---|---|"
    for one in section.figures:
        yield f"| {' | '.join(_cells(one))} |"
    yield ""
    yield f"Took {section.seconds:.0f} s; load average when it began: {section.load:.2f}."
    yield ""


def _cells(one: Figure) -> tuple[str, str, str, str]:
    """Return the name, the median with its unit, the target with its result, and the rounds."""
    rounds = ", ".join(_number(value) for value in one.rounds) if len(one.rounds) > 1 else ""
    return one.what, _value(one), _target(one), rounds


def _value(one: Figure) -> str:
    return f"{_number(one.value)} {one.unit}".rstrip()


def _target(one: Figure) -> str:
    if one.target is None:
        return ""
    sign = "≥" if one.target.at_least else "≤"
    return f"{sign} {_number(one.target.limit)}: {'met' if one.met else 'MISSED'}"


def _number(value: float) -> str:
    """Return a number with three significant digits; whole numbers have all."""
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    write_pages()

"""The output of a command: a value for programs, or tables and fields for users.

Tables truncate nothing, so that an id can be copied and a pipe gets everything.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import typer
from pydantic import BaseModel

from maestro.domain.jobs.views import first_line

Lines = Iterable[str] | str
Result = tuple[BaseModel | Mapping[str, object], Lines]
"""The result of a command: the value for programs, and the lines for users."""


def price_text(usd: float | None) -> str:
    """Return an amount of US dollars as text; None is an unknown amount."""
    return "unknown" if usd is None else f"${usd:.4f}"


def duration_text(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def age_text(time: datetime) -> str:
    """Return the age of a time in its largest unit, such as ``3h``."""
    ago = datetime.now(UTC) - time
    unit, length = next((unit for unit in UNITS if ago >= unit[1]), UNITS[-1])
    return f"{max(ago, timedelta()) // length}{unit}"


UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "age": age_text,
    "cost": lambda usd: "" if usd is None else "<$0.0001" if 0 < usd < 0.0001 else f"${usd:.4f}",
    "day": lambda time: f"{time.astimezone():%Y-%m-%d}",
    "duration": duration_text,
    "excerpt": lambda text: first_line(text, 60),
    "lower": str.lower,
    "price": price_text,
}
"""The formats that ``Columns`` may name, besides Python's own formats such as ``.2f``."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table; ``titles`` is written as in ``path taken=trigger_count place? share:.0%``.

    A column is its title, optionally followed by ``=`` and the field that it shows, and by ``:`` and the field's
    format. A ``?`` at the end omits the column if no row has a value. A ``_`` in a title stands for a blank. ``values``
    has functions for the columns that show no field.
    """

    titles: str
    values: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)

    def rows(self, views: Sequence[object]) -> list[tuple[str, ...]]:
        """Return the titles and the rows of a table, with a dash for each empty value."""
        columns = []
        for column in self.titles.split():
            named, _, spec = column.rstrip("?").partition(":")
            title, _, name = named.partition("=")
            words = title.replace("_", " ")
            value_of = self.values.get(words) or attrgetter(name or title)
            cells = [_format_cell(value_of(view), spec) for view in views]
            if any(cells) or not column.endswith("?"):
                columns.append((words.upper(), *(cell or "-" for cell in cells)))
        return list(zip(*columns, strict=True))


def write_output(value: BaseModel | Mapping[str, object], lines: Lines, as_json: bool) -> None:
    """Write the value as one line of JSON if ``as_json`` is set, else the lines."""
    if as_json:
        lines = value.model_dump_json() if isinstance(value, BaseModel) else json.dumps(value, ensure_ascii=False)
    for line in [lines] if isinstance(lines, str) else lines:
        typer.echo(line)


def plain_line(text: str) -> str:
    """Return a text as one line without terminal control characters, because users choose names and reasons."""
    return " ".join(without_control_characters(text).split())


def without_control_characters(line: str) -> str:
    """Return a line without the characters that move the cursor of a terminal."""
    return "".join(character if character.isprintable() or character == "\t" else " " for character in line)


def local_time_text(at: datetime | None) -> str:
    """Return a time in the zone of this machine, or "" for None."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def join_parts(*parts: str | None, separator: str = "/") -> str:
    """Return the parts that are not empty, such as the platform, channel and thread of an address."""
    return separator.join(filter(None, parts))


def channel_text(view: Any) -> str:
    """Return the channel of a view: its platform, channel and thread."""
    return join_parts(view.platform, view.channel, view.thread)


def enabled_text(view: Any) -> str:
    """Return ``enabled`` or ``disabled`` for the view of an item."""
    return "enabled" if view.enabled else "disabled"


def align_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of rows with aligned columns."""
    cells = [tuple(map(plain_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def list_lines(page: Any, columns: Columns, empty: str, note: str = "") -> Iterator[str]:
    """Yield a page as a table, a hint at the next page, and a note; yield only ``empty`` for a page without items."""
    if not page.items:
        yield empty
        return
    yield from align_rows(columns.rows(page.items))
    yield from page_hint(getattr(page, "next", None))
    if note:
        yield note


def page_hint(cursor: str | None) -> Iterator[str]:
    """Yield a line that tells how to get the next page, if there is a next page."""
    if cursor is not None:
        yield f"There are more: add --cursor {cursor}, or a larger --limit."


def titled_table(title: str, columns: Columns, views: Sequence[object]) -> Iterator[str]:
    """Yield an indented table under its title; yield nothing without rows."""
    if views:
        yield from ("", title, *(f"  {line}" for line in align_rows(columns.rows(views))))


def field_lines(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each pair whose value is not empty, with aligned values."""
    present = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in present), default=0)
    yield from (f"  {name:<{width}}  {plain_line(value)}" for name, value in present)


def text_lines(text: str) -> Iterator[str]:
    """Yield the lines of a longer text, indented."""
    yield from (f"  {without_control_characters(line)}".rstrip() for line in text.splitlines())


@dataclass(frozen=True)
class Portrait:
    """The format in which one view is printed: a title, a line for each set field, tables, and a long text.

    ``hide`` names fields without a line. ``lines_of`` has functions for added or replaced lines, by line name.
    ``tables`` has the columns of nested views, by field name. ``text`` is the field with the long text.
    """

    title: Callable[[Any], str]
    hide: str = ""
    lines_of: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    tables: Mapping[str, Columns] = field(default_factory=dict)
    text: str = ""

    def lines(self, view: BaseModel) -> Iterator[str]:
        """Yield the lines that show a view."""
        yield without_control_characters(self.title(view))
        hidden = {*self.hide.split(), self.text}
        values = {name.replace("_", " "): getattr(view, name) for name in type(view).model_fields if name not in hidden}
        values |= {name: value(view) for name, value in self.lines_of.items()}
        tables = {
            name: rows
            for name, rows in values.items()
            if isinstance(rows, tuple) and rows and isinstance(rows[0], BaseModel)
        }
        yield from field_lines((name, _cell_text(value)) for name, value in values.items() if name not in tables)
        for name, rows in tables.items():
            columns = self.tables.get(name) or Columns(" ".join(f"{field}?" for field in type(rows[0]).model_fields))
            yield from titled_table(name.capitalize(), columns, rows)
        if self.text and (text := getattr(view, self.text)):
            yield from ("", *text_lines(text))


def _format_cell(value: object, spec: str) -> str:
    """Return a value as text, in the format ``spec`` of ``FORMATS`` or of Python, if given."""
    if spec in FORMATS:
        return FORMATS[spec](value)
    return format(value, spec) if spec and value is not None else _cell_text(value)


def _cell_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return local_time_text(value)
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ", ".join(map(_cell_text, value))
        case BaseModel():
            return value.model_dump_json(exclude_defaults=True)
        case _:
            return str(value)

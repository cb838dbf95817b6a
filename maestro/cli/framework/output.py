"""What a command writes: a value for programs, or tables and facts for people.

Nothing is cut off in a table, so that an id can be copied and a pipe gets everything.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import typer
from pydantic import BaseModel

GAP = "  "
TIME = "%Y-%m-%d %H:%M:%S"
Columns = Mapping[str, str | Callable[[Any], object] | None]
"""The columns of a table by their titles: a field of its rows, or a function that returns the value of a row."""
Lines = Iterable[str] | str
Result = tuple[BaseModel | Mapping[str, object], Lines]
"""What a command returns: the value for programs, and the lines for people."""


def write(value: BaseModel | Mapping[str, object], lines: Lines, as_json: bool) -> None:
    """Write the value as one line of JSON, or else the lines."""
    if as_json:
        lines = value.model_dump_json() if isinstance(value, BaseModel) else json.dumps(value, ensure_ascii=False)
    for line in [lines] if isinstance(lines, str) else lines:
        typer.echo(line)


def plain(text: str) -> str:
    """Return a text as one line that does nothing to a terminal: names and reasons come from outside."""
    return " ".join(printable(text).split())


def printable(line: str) -> str:
    """Return a line without the characters that move the cursor of a terminal."""
    return "".join(character if character.isprintable() or character == "\t" else " " for character in line)


def moment(at: datetime | None) -> str:
    """Return a time in the zone of this machine, nothing for none."""
    return at.astimezone().strftime(TIME) if at else ""


def joined(*parts: str | None, by: str = "/") -> str:
    """Return the parts that are not empty, as the platform, channel and thread of an address."""
    return by.join(filter(None, parts))


def channel_of(view: Any) -> str:
    """Return where a view posts or was posted: its platform, channel and thread."""
    return joined(view.platform, view.channel, view.thread)


def enabled(view: Any) -> str:
    """Return whether it is enabled, in a word."""
    return "enabled" if view.enabled else "disabled"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, each column as wide as its widest text."""
    cells = [tuple(title.upper() for title in head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def rows_of(columns: Columns, views: Iterable[object]) -> list[tuple[str, ...]]:
    """Return the rows of a table, with a dash for each empty value."""
    return [tuple(_cell(view, column) or "-" for column in columns.values()) for view in views]


def listing(page: Any, columns: Columns, empty: str) -> Iterator[str]:
    """Yield the table of a page and how to see the rest, or the sentence ``empty`` where it has no items."""
    if not page.items:
        yield empty
        return
    yield from table([*columns], rows_of(columns, page.items))
    yield from more(page.next)


def more(cursor: str | None) -> Iterator[str]:
    """Yield the line that says how to see the following page, if there is one."""
    if cursor is not None:
        yield f"There are more: add --cursor {cursor}, or a larger --limit."


def section(title: str, columns: Columns, views: Iterable[object]) -> Iterator[str]:
    """Yield an indented table under its title, nothing without rows."""
    rows = rows_of(columns, views)
    if rows:
        yield from ("", title, *(f"  {line}" for line in table([*columns], rows)))


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each fact that is not empty, the values below each other."""
    given = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in given), default=0)
    yield from (f"  {name:<{width}}  {plain(value)}" for name, value in given)


def body(text: str) -> Iterator[str]:
    """Yield the lines of a longer text, indented."""
    yield from (f"  {printable(line)}".rstrip() for line in text.splitlines())


@dataclass(frozen=True)
class Portrait:
    """How a view is shown whole: its title, a line for each field that is set, tables of what it holds, and a text.

    ``instead`` changes or adds lines by their names, which are those of the fields; None leaves one out. ``text`` is
    the field with a longer text.
    """

    title: Callable[[Any], str]
    instead: Columns = field(default_factory=dict)
    text: str = ""

    def lines(self, view: BaseModel) -> Iterator[str]:
        """Yield the lines of a view."""
        yield printable(self.title(view))
        columns = {name: column for name, column in {**_fields_of(view), **self.instead}.items() if column is not None}
        columns.pop(self.text.replace("_", " "), None)
        tables = {name: column for name, column in columns.items() if _is_table(_value(view, column))}
        yield from facts((name, _cell(view, column)) for name, column in columns.items() if name not in tables)
        for name, column in tables.items():
            views: Any = _value(view, column)
            yield from section(name.capitalize(), _fields_of(views[0]), views)
        if self.text and (text := getattr(view, self.text)):
            yield from ("", *body(text))


def _fields_of(view: BaseModel) -> dict[str, str]:
    """Return the columns of the fields of a view, called as the fields are."""
    return {name.replace("_", " "): name for name in type(view).model_fields}


def _value(view: object, column: str | Callable[[Any], object] | None) -> object:
    return getattr(view, column) if isinstance(column, str) else column(view) if column is not None else None


def _cell(view: object, column: str | Callable[[Any], object] | None) -> str:
    return _text(_value(view, column))


def _is_table(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], BaseModel)


def _text(value: object) -> str:
    """Return a value in words; nothing for none."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return moment(value)
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ", ".join(map(_text, value))
        case BaseModel():
            return value.model_dump_json(exclude_defaults=True)
        case _:
            return str(value)

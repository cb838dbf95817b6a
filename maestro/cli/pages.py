"""A page of a list that may be long: how much of it, from where, and the line that says how to see the rest."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, TypeVar

import typer

from maestro.cli.table import lines
from maestro.domain.columns import LARGEST

MOST = 10_000
Limit = Annotated[int, typer.Option(min=1, max=MOST, help="How many at most.")]
TextCursor = Annotated[str | None, typer.Option(help="Go on where an earlier list said `next`.")]
RowCursor = Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Go on where an earlier list said `next`.")]

Mark = TypeVar("Mark")


def decoded(decode: Callable[[str], Mark], cursor: str | None) -> Mark | None:
    """Return where a list goes on; raises ``typer.BadParameter`` for what no list has said."""
    try:
        return decode(cursor) if cursor is not None else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cursor") from None


def more(cursor: str | None) -> Iterator[str]:
    """Yield the line that says how to see what follows, if anything does."""
    if cursor is not None:
        yield f"There are more: add --cursor {cursor}, or a larger --limit."


def table_page(
    columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str, following: str | None = None
) -> Iterator[str]:
    """Yield the table of a page and how to see the rest, or the sentence ``nothing`` where there are no rows."""
    if not rows:
        yield nothing
        return
    yield from lines(columns, rows)
    yield from more(following)

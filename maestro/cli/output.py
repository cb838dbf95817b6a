"""What a command writes: a value for programs, or its lines for people."""

from collections.abc import Iterable

import typer
from pydantic import BaseModel


def write(value: BaseModel, lines: Iterable[str], as_json: bool) -> None:
    """Write the value as one line of JSON, or else the lines."""
    for line in [value.model_dump_json()] if as_json else lines:
        typer.echo(line)

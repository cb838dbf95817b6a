"""The options that describe a schedule, and the fields they stand for."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.field_options import FieldOptions
from maestro.cli.given_files import text_of
from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.texts import read_zone
from maestro.domain.values import Value

Ref = Annotated[str, typer.Argument(metavar="REF", help="Its short name, such as cron-3, as the list shows it.")]
WHEN_HELP = "When, such as 'every 15m', '0 9 * * 1-5', 'at 2026-12-01 09:00' or 'in 20m'."
ZONE_HELP = "The time zone it is meant in, such as Europe/Amsterdam."
JITTER_HELP = "Begin up to so many seconds later than planned."


@dataclass(frozen=True)
class ScheduleOptions(FieldOptions):
    """The options that describe a schedule; None where not given."""

    agent: Annotated[str | None, typer.Option(metavar="SLUG", help="Who does it.")] = None
    schedule: Annotated[str | None, typer.Option("--when", metavar="SCHEDULE", help=WHEN_HELP)] = None
    timezone: Annotated[str | None, typer.Option("--zone", metavar="ZONE", help=ZONE_HELP)] = None
    prompt: Annotated[str | None, typer.Option(help="What the agent is told each time.")] = None
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with what it is told; - for standard input.")
    ] = None
    script_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file with the script of a heartbeat, as JSON, which asks no model."),
    ] = None
    platform: Annotated[str | None, typer.Option(help="Where it posts: the platform, such as web or discord.")] = None
    channel: Annotated[str | None, typer.Option(help="Where it posts: the platform's id of the channel.")] = None
    thread: Annotated[str | None, typer.Option(help="Where it posts: a thread of the channel; '' for none.")] = None
    account: Annotated[str | None, typer.Option(help="Which of our accounts on that platform.")] = None
    name: Annotated[str | None, typer.Option(help="The name people see.")] = None
    jitter_seconds: Annotated[int | None, typer.Option("--jitter", metavar="SECONDS", help=JITTER_HELP)] = None

    def fields(self) -> dict[str, object]:
        """Return the fields that were given; raises ``InvalidEdit`` for a script that is none."""
        given = super().fields()
        file = given.pop("script_file", None)
        return {**given, "script": _script(file)} if isinstance(file, Path) else given


@dataclass(frozen=True)
class ScheduleEdits(ScheduleOptions):
    """The options that change a schedule."""

    no_script: Annotated[bool, typer.Option("--no-script", help="Ask the model, with the prompt, again.")] = False

    def fields(self) -> dict[str, object]:
        """Return the fields that are to be changed."""
        given = super().fields()
        return {**given, "script": None} if given.pop("no_script") else given


class Span(Value):
    """A stretch of time as it was typed; what has no offset is meant in a zone."""

    start: datetime
    end: datetime

    def within(self, zone: str) -> dict[str, datetime]:
        """Return both ends as moments."""
        place = read_zone(zone)
        ends = {"from": self.start, "to": self.end}
        return {name: time if time.tzinfo else time.replace(tzinfo=place) for name, time in ends.items()}


def span(start: str, end: str | None, now: datetime) -> Span:
    """Read a stretch of time, up to now without an end; raises ``typer.BadParameter``."""
    return Span(start=_moment(start, "--from"), end=_moment(end, "--to") if end is not None else now)


def _moment(text: str, option: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a time, such as 2026-11-20T09:00", param_hint=option) from None


def _script(file: Path) -> object:
    """Return what the file holds; what is wrong with it as a script is said by the rules of one."""
    try:
        return json.loads(text_of(file))
    except (ValueError, RecursionError):
        raise InvalidEdit(f"{file} is no JSON; a script is an object with url, template and condition") from None

"""What people make of heartbeats and crons: the one set of rules for API, commands, tags and page.

See docs/decisions.md: schedules.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field

from maestro.domain.errors import InvalidEdit
from maestro.domain.jobs.job import JobKind
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.schedules.once import FIRST_YEAR
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned
from maestro.domain.schedules.scripts import Script
from maestro.domain.texts import storable
from maestro.domain.values import View
from maestro.domain.words import DisplayName, Identifier, OptionalIdentifier, Slug, Word

Written = Annotated[str, Field(max_length=200)]
Zone = Annotated[str, Field(max_length=64)]
Prompt = Annotated[str, Field(max_length=20_000), AfterValidator(storable)]


class ScheduleKind(StrEnum):
    """What may be planned."""

    HEARTBEAT = JobKind.HEARTBEAT.value
    CRON = JobKind.CRON.value

    @property
    def table(self) -> type[Planned]:
        """Return the kind of row."""
        return Heartbeat if self is ScheduleKind.HEARTBEAT else Cron


class NewSchedule(View):
    """Something that an agent is to do again and again, or once.

    ``schedule`` is as in ``texts``, meant in ``timezone``; a run may begin up to ``jitter_seconds`` later. The
    ``prompt`` is what the agent is told each time, and what it says goes to the channel. A heartbeat with a ``script``
    asks no model. Without a ``name`` it is called what it is.
    """

    agent: Slug = Field(description="the agent that does it")
    name: DisplayName = Field(default="", description="the name that people see")
    schedule: Written = Field(description="when, such as 'every 15m', '0 9 * * 1-5', 'at 2026-12-01 09:00' or 'in 20m'")
    timezone: Zone = Field(default="UTC", description="the time zone it is meant in, such as Europe/Amsterdam")
    jitter_seconds: int = Field(default=0, description="begin up to so many seconds later than planned")
    prompt: Prompt = Field(default="", description="what the agent is told each time")
    script: Script | None = None
    platform: Word = Field(description="where it posts: the platform, such as web or discord")
    account: Identifier = Field(default=DEFAULT_ACCOUNT, description="the account on that platform")
    channel: Identifier = Field(description="where it posts: the platform's id of the channel")
    thread: OptionalIdentifier = Field(default="", description="where it posts: a thread of the channel; '' for none")
    enabled: bool = True

    def columns(self) -> dict[str, Any]:
        """Return the fields by the names of the columns, without the agent, which is one by its number."""
        found = self.model_dump(by_alias=False, exclude={"agent", "timezone", "script"})
        script = {"script": self.script.model_dump_json()} if self.script is not None else {}
        return {**found, **script, "zone": self.timezone}


class NewScheduleOfKind(NewSchedule):
    """The same, where nothing else says which of both it is."""

    kind: ScheduleKind


class ScheduleChange(View):
    """What is to be changed of a schedule; what is null stays, but for a script, which is taken away.

    ``enabled`` also lets one run again that Maestro has paused.
    """

    agent: Slug | None = None
    name: DisplayName | None = None
    schedule: Written | None = None
    timezone: Zone | None = None
    jitter_seconds: int | None = None
    prompt: Prompt | None = None
    script: Script | None = None
    platform: Word | None = None
    account: Identifier | None = None
    channel: Identifier | None = None
    thread: OptionalIdentifier | None = None
    enabled: bool | None = None

    def columns(self) -> dict[str, Any]:
        """Return what is to be changed by the names of the columns, without the agent."""
        found = self.model_dump(by_alias=False, exclude={"agent", "script"}, exclude_none=True)
        if "timezone" in found:
            found["zone"] = found.pop("timezone")
        if "script" in self.model_fields_set:
            found["script"] = self.script.model_dump_json() if self.script is not None else ""
        return found


class PreviewWish(View):
    """A schedule that nobody has made yet, of which somebody wants to know the times."""

    schedule: Written
    timezone: Zone = Field(default="UTC", description="the time zone it is meant in, such as Europe/Amsterdam")
    jitter_seconds: int = Field(default=0, description="begin up to so many seconds later than planned")


class BackfillWish(View):
    """Times that passed, both ends included, and are to be made up for; with ``preview`` they are only told."""

    start: AwareDatetime = Field(alias="from")
    end: AwareDatetime = Field(alias="to")
    preview: bool = False

    def check(self, now: datetime) -> None:
        """Raise ``InvalidEdit`` for what runs backwards, for times to come, and for those before 1971."""
        if self.start.year <= FIRST_YEAR:
            raise InvalidEdit(f"from: must be after the year {FIRST_YEAR}")
        if self.end < self.start:
            raise InvalidEdit("to: must not be before from")
        if self.end > now:
            raise InvalidEdit("to: must not be in the future; what is to come, comes by itself")


def check_work(kind: str, prompt: str, script: str) -> None:
    """Raise ``InvalidEdit`` for what has nothing to do, and for a cron with a script."""
    if script and kind != ScheduleKind.HEARTBEAT:
        raise InvalidEdit("script: only a heartbeat can have one; make it a heartbeat with this schedule")
    if not (prompt.strip() or script):
        raise InvalidEdit("prompt: is missing; add it")

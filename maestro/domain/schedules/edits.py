"""Schedules as people write them: the one set of rules for API, commands, tags and pages.

See docs/decisions.md: schedules.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field

from maestro.domain.errors import InvalidEdit
from maestro.domain.fields import DisplayName, Identifier, OptionalIdentifier, Slug, Word
from maestro.domain.jobs.job import JobKind
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.schedules.expressions import FIRST_YEAR, check_jitter, read_schedule, recall_schedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.schedules.scripts import Script
from maestro.domain.texts import storable
from maestro.domain.values import View

Written = Annotated[str, Field(max_length=200)]
Zone = Annotated[str, Field(max_length=64)]
Prompt = Annotated[str, Field(max_length=20_000), AfterValidator(storable)]

_TIMING = frozenset({"schedule", "zone"})


class ScheduleKind(StrEnum):
    """What may be planned."""

    HEARTBEAT = JobKind.HEARTBEAT.value
    CRON = JobKind.CRON.value

    @property
    def table(self) -> type[ScheduleColumns]:
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


class SchedulePreviewRequest(View):
    """A schedule that nobody has made yet, of which somebody wants to know the times."""

    schedule: Written
    timezone: Zone = Field(default="UTC", description="the time zone it is meant in, such as Europe/Amsterdam")
    jitter_seconds: int = Field(default=0, description="begin up to so many seconds later than planned")


class BackfillRequest(View):
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


def changed_columns(
    planned: ScheduleColumns, change: ScheduleChange, now: datetime, shortest: timedelta
) -> dict[str, object]:
    """Return the columns that are to have another value, without the agent.

    Another schedule or zone begins anew: an interval counts from now, and what was to run once is to run again. Who
    enables one lets it run again whatever paused it, and begins anew with one that has ended. Raises ``InvalidEdit``
    for what breaks a rule; what is not changed keeps to the rules under which it was written.
    """
    wanted = change.columns()
    # A cron has no script, and that it is to have none is no change.
    found = {name: value for name, value in wanted.items() if getattr(planned, name, "") != value}
    after = {**planned.model_dump(include={"prompt", "script", "schedule", "zone", "jitter_seconds"}), **found}
    check_work(planned.kind, after["prompt"], after.get("script", ""))
    begins_anew = bool(found.keys() & _TIMING) or (bool(change.enabled) and planned.ended_at is not None)
    if begins_anew or "jitter_seconds" in found:
        schedule = (
            read_schedule(after["schedule"], after["zone"], now, shortest)
            if begins_anew
            else recall_schedule(after["schedule"], after["zone"], planned.anchored_at)
        )
        check_jitter(schedule, after["jitter_seconds"])
    if begins_anew:
        found |= {"anchored_at": now, "ended_at": None}
    if change.enabled and (planned.paused_reason or planned.failures):
        found |= {"paused_reason": "", "failures": 0}
    return found

"""Requests to create or change schedules, and the script of a heartbeat (docs/decisions.md: schedules)."""

import operator
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Self, TypeGuard
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator

from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.jobs.job import JobKind
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.schedules.expressions import FIRST_YEAR, check_jitter, read_schedule, read_stored_schedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.texts import storable_text
from maestro.domain.values import DisplayName, Identifier, OptionalIdentifier, Slug, View, Word, matching
from maestro.domain.webhooks.template import (
    NOTHING,
    InvalidJson,
    checked_prompt,
    checked_template,
    cite_source,
    fill_template,
    find_value,
    read_json,
    value_text,
)

Path = Annotated[str, matching(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "names with dots between, such as data.price")]

Written = Annotated[str, Field(max_length=200)]
Zone = Annotated[str, Field(max_length=64)]
Prompt = Annotated[str, Field(max_length=20_000), AfterValidator(storable_text)]


class ScriptFailed(MaestroError):
    """The data that a script fetched cannot be used, and a retry would not help; the message is for operators."""

    public = "The data that a script fetched is not usable."


class ScriptSourceAway(ScriptFailed):
    """The server that a script asks answered with a temporary error; a retry may help."""

    public = "The server that a script asks is not available."
    retryable = True


class Comparison(StrEnum):
    """A comparison operator of a condition."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    EQUAL = "=="
    OTHER = "!="


_ORDERS = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.MORE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
}


class Condition(View):
    """A condition for a model call: the value at ``path`` of the fetched JSON, compared with ``value``.

    If the condition is met, the model gets ``prompt``, which may have the same placeholders as the script's template.
    """

    path: Path
    op: Comparison
    value: bool | float | str
    prompt: Annotated[str, Field(max_length=20_000), AfterValidator(checked_prompt)]

    def is_met(self, fetched: object) -> bool:
        """Return whether the condition is met; never for a missing value or for ordering a value that is no number."""
        value = find_value(fetched, self.path)
        is_equal = value == self.value and isinstance(value, bool) == isinstance(self.value, bool)
        if self.op is Comparison.EQUAL:
            return is_equal
        if self.op is Comparison.OTHER:
            return value is not NOTHING and not is_equal
        return _is_number(value) and _is_number(self.value) and _ORDERS[self.op](value, self.value)


class Script(View):
    """The work of a heartbeat without a model: fetch JSON from a public address, fill ``template`` and post the result.

    Placeholders are as in webhook templates, but without ``payload.``: ``{{data.price}}``. ``bearer`` is a reference
    (``env:NAME`` or ``file:PATH``) to a token that is sent to this address only. Without a template, the script only
    evaluates the condition.
    """

    url: Annotated[str, matching(r"https?://\S{1,2000}", "an address that begins with https:// or http://")]
    bearer: Annotated[str, matching(r"(|(env|file):\S{1,500})", "env:NAME or file:PATH, or nothing")] = ""
    template: Annotated[str, Field(max_length=20_000), AfterValidator(checked_template)] = ""
    condition: Condition | None = None

    @model_validator(mode="after")
    def _check_has_effect(self) -> Self:
        if not self.template.strip() and self.condition is None:
            raise ValueError("a script needs a template to post, or a condition")
        return self


def read_script(text: str) -> Script:
    """Parse the script in a schedule's database row; raises ``InvalidEdit`` if the script is not valid."""
    try:
        return Script.model_validate_json(text)
    except ValidationError as error:
        raise InvalidEdit(f"the script cannot be read: {error.errors()[0]['msg']}") from None


def read_response(status: int, body: bytes) -> object:
    """Return the JSON of an HTTP response; raises ``ScriptFailed`` for an error status or invalid JSON."""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        is_temporary = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        raise (ScriptSourceAway if is_temporary else ScriptFailed)(f"the server answered with status {status}")
    try:
        return read_json(body)
    except InvalidJson as error:
        raise ScriptFailed(f"the server's answer is not usable: {error}") from None


def fill_script_template(template: str, fetched: object) -> str:
    """Return a script's template filled with the fetched values; numbers get thousands separators."""
    return fill_template(template, fetched, _to_text).text.strip()


def condition_text(script: Script, condition: Condition, fetched: object) -> str:
    """Return the model's prompt for a condition that is met; never empty, because an empty task runs the script."""
    host = urlsplit(script.url).hostname
    return cite_source(condition.prompt, fill_template(condition.prompt, fetched, _to_text), f"{host} answered")


def _to_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
    return f"{value:,}" if _is_number(value) else value_text(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class ScheduleKind(StrEnum):
    """The kind of a schedule: heartbeat or cron."""

    HEARTBEAT = JobKind.HEARTBEAT.value
    CRON = JobKind.CRON.value

    @property
    def table(self) -> type[ScheduleColumns]:
        return Heartbeat if self is ScheduleKind.HEARTBEAT else Cron


class NewSchedule(View):
    """A request to create a schedule for an agent, recurring or for a single run.

    ``schedule`` is an expression as in ``SCHEDULE_GRAMMAR``, read in the time zone ``timezone``. A run may start up to
    ``jitter_seconds`` later. Each run sends ``prompt`` to the agent and posts the answer to the channel. A heartbeat
    with a ``script`` calls no model, unless the script's condition is met. Without a ``name``, the schedule is named
    after its kind.
    """

    agent: Slug = Field(description="the agent that does the work of each run")
    name: DisplayName = Field(default="", description="the display name of the schedule")
    schedule: Written = Field(description="when it runs: 'every 15m', '0 9 * * 1-5', 'at 2026-12-01 09:00' or 'in 20m'")
    timezone: Zone = Field(default="UTC", description="the time zone of the schedule, such as Europe/Amsterdam")
    jitter_seconds: int = Field(default=0, description="the longest random delay of a run, in seconds")
    prompt: Prompt = Field(default="", description="the prompt of each run")
    script: Script | None = None
    platform: Word = Field(description="the platform of the answer, such as web or discord")
    account: Identifier = Field(default=DEFAULT_ACCOUNT, description="the account on that platform")
    channel: Identifier = Field(description="the channel of the answer: its id on the platform")
    thread: OptionalIdentifier = Field(default="", description="the thread of the answer; '' for none")
    enabled: bool = True

    def column_values(self) -> dict[str, Any]:
        """Return the column values without the agent, because the table stores the agent's id instead of the slug."""
        columns = self.model_dump(by_alias=False, exclude={"agent", "timezone", "script"})
        script = {"script": self.script.model_dump_json()} if self.script is not None else {}
        return {**columns, **script, "zone": self.timezone}


class NewScheduleOfKind(NewSchedule):
    """A request to create a schedule that also names the kind, for endpoints that do not imply the kind."""

    kind: ScheduleKind


class ScheduleChange(View):
    """Changes to a schedule; a null field stays as it is, except ``script``: an explicit null removes the script.

    ``enabled`` set to true also resumes a schedule that Maestro paused.
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

    def column_values(self) -> dict[str, Any]:
        """Return the changed column values, except the agent."""
        columns = self.model_dump(by_alias=False, exclude={"agent", "script"}, exclude_none=True)
        if "timezone" in columns:
            columns["zone"] = columns.pop("timezone")
        if "script" in self.model_fields_set:
            columns["script"] = self.script.model_dump_json() if self.script is not None else ""
        return columns


class SchedulePreviewRequest(View):
    """A request to preview the times of a schedule without creating it."""

    schedule: Written
    timezone: Zone = Field(default="UTC", description="the time zone of the schedule, such as Europe/Amsterdam")
    jitter_seconds: int = Field(default=0, description="the longest random delay of a run, in seconds")


class BackfillRequest(View):
    """A request to run the due times from ``start`` to ``end`` (both included) now; ``preview`` only lists them."""

    start: AwareDatetime = Field(alias="from")
    end: AwareDatetime = Field(alias="to")
    preview: bool = False

    def check_range(self, now: datetime) -> None:
        """Raise ``InvalidEdit`` if the range is reversed, ends in the future, or starts before 1971."""
        if self.start.year <= FIRST_YEAR:
            raise InvalidEdit(f"from: must be after the year {FIRST_YEAR}")
        if self.end < self.start:
            raise InvalidEdit("to: must not be earlier than `from`")
        if self.end > now:
            raise InvalidEdit("to: must not be in the future; future times run by themselves")


def check_has_work(kind: str, prompt: str, script: str) -> None:
    """Raise ``InvalidEdit`` if a schedule has neither prompt nor script, or if a cron has a script."""
    if script and kind != ScheduleKind.HEARTBEAT:
        raise InvalidEdit("script: only a heartbeat can have a script; create a heartbeat with this schedule")
    if not (prompt.strip() or script):
        raise InvalidEdit("prompt: is missing; write what the agent is to do")


def changed_columns(
    planned: ScheduleColumns, change: ScheduleChange, now: datetime, shortest: timedelta
) -> dict[str, object]:
    """Return the columns that get a different value, except the agent.

    A new schedule expression or zone restarts the schedule: an interval counts from now, and a single run happens
    again. Setting ``enabled`` ends a pause by Maestro and restarts a schedule that has ended. Raises ``InvalidEdit``
    for a value that breaks a rule. Unchanged values are not checked, because they were valid when they were written.
    """
    # A cron has no script column, so an empty script is no change of a cron.
    changes = {name: value for name, value in change.column_values().items() if getattr(planned, name, "") != value}
    after = {**planned.model_dump(include={"prompt", "script", "schedule", "zone", "jitter_seconds"}), **changes}
    check_has_work(planned.kind, after["prompt"], after.get("script", ""))
    restarts = bool(changes.keys() & {"schedule", "zone"}) or (bool(change.enabled) and planned.ended_at is not None)
    if restarts or "jitter_seconds" in changes:
        schedule = (
            read_schedule(after["schedule"], after["zone"], now, shortest)
            if restarts
            else read_stored_schedule(after["schedule"], after["zone"], planned.anchored_at)
        )
        check_jitter(schedule, after["jitter_seconds"])
    if restarts:
        changes |= {"anchored_at": now, "ended_at": None}
    if change.enabled and (planned.paused_reason or planned.failures):
        changes |= {"paused_reason": "", "failures": 0}
    return changes

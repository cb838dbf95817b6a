"""What a change makes of a schedule that is planned already (docs/decisions.md: schedules)."""

from datetime import datetime, timedelta

from maestro.domain.schedules.edits import ScheduleChange, check_work
from maestro.domain.schedules.schedule import Planned
from maestro.domain.schedules.texts import check_jitter, read_schedule, recall_schedule

_TIMING = frozenset({"schedule", "zone"})


def changes(planned: Planned, change: ScheduleChange, now: datetime, shortest: timedelta) -> dict[str, object]:
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

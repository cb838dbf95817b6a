"""What the web connector last said of itself, and whether that is still so."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from connectors.base import ConnectorState
from maestro.bootstrap.checks.ports import Listening, answers, listening
from maestro.bootstrap.checks.subject import Subject, broken, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.people.people import ConnectorStatus

WEB = "web"


async def connectors(subject: Subject, said: Sequence[ConnectorStatus]) -> list[Diagnosis]:
    """One line for the web connector."""
    own = [status for status in said if status.platform == WEB]
    return await asyncio.gather(*(_connector(subject, status) for status in own)) if own else [_silent(subject)]


async def _connector(subject: Subject, status: ConnectorStatus) -> Diagnosis:
    if not subject.settings.web.enabled:
        return _silent(subject)
    check = f"connector {status.platform}"
    said = told(status)
    if status.state == ConnectorState.FAILED:
        return broken(check, said, "Mend what it says; it is tried again with the next start.")
    if status.state == ConnectorState.STOPPED or not running(subject):
        still = "" if status.state == ConnectorState.STOPPED else "; its process is gone"
        return note(check, f"{said}{still}", _start(subject))
    if status.state != ConnectorState.RUNNING:
        return note(check, said, "If it stays like this, restart it and read what it says.")
    place = _place(subject)
    if place is None or await answers(place):
        return fine(check, said)
    fix = "If it was started with other ports, give `maestro doctor` the same options; otherwise restart it."
    return note(check, f"{said}, but nothing of ours answers at {place.url}", fix)


def _silent(subject: Subject) -> Diagnosis:
    if not subject.settings.web.enabled:
        return note("connector web", "switched off (web.enabled)")
    return note("connector web", "it has not run on this store yet", _start(subject))


def _start(subject: Subject) -> str:
    if subject.settings.temporal.embedded:
        return "`maestro up` starts it."
    return "`maestro connect web`, or `maestro up`, starts it."


def told(status: ConnectorStatus) -> str:
    """Return what a connector last said, and when."""
    age = datetime.now(UTC) - status.changed_at
    detail = f" ({status.detail})" if status.detail else ""
    return (
        f"{status.platform}/{status.account}: {status.state}{detail} since {status.changed_at:%Y-%m-%d %H:%M} UTC"
        + (f", {age.days} days ago" if age.days else "")
    )


def running(subject: Subject) -> bool:
    """Say whether connectors can be running: beside a cluster they may do so on another machine, so it is possible."""
    return subject.holder.running or not subject.settings.temporal.embedded


def _place(subject: Subject) -> Listening | None:
    return next((place for place in listening(subject.settings) if place.health == "/health"), None)

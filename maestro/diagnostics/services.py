"""The diagnosis of what Maestro connects to: Temporal and the platforms."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from connectors.base import ConnectorState
from maestro.connector_runtime.factory import ConnectorFactory
from maestro.diagnostics.ports import PortUse, answers, port_uses
from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError
from maestro.domain.health import Diagnosis
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.people.people import ConnectorStatus
from maestro.installation.keys import existing_keys
from maestro.settings import Settings
from maestro.settings.addresses import endpoint_of
from maestro.settings.bots import configured_bots
from temporal.diagnosis import diagnose
from temporal.dispatcher import Queues
from temporal.endpoint import Endpoint
from temporal.server_process import HOST

CHECK = "Temporal"

WEB = "web"

SET_AGAIN = "Correct it in the configuration and restart, or with `maestro connectors set`, which counts at once."


async def engine(subject: Examined) -> list[Diagnosis]:
    """Check the server, the namespace, the search attributes and the pollers of the queues."""
    if subject.settings.temporal.embedded and not subject.holder.running:
        return [_at_rest(subject)]
    return list(await diagnose(_endpoint(subject), queue_names(subject.settings)))


def queue_names(settings: Settings) -> list[str]:
    """Return the names of the queues that need a poller."""
    temporal = settings.temporal
    if temporal.embedded:
        return [temporal.task_queue]
    queues = Queues(temporal.task_queue, temporal.llm_queue, temporal.connector_queue)
    web = [queues.connector("web", DEFAULT_ACCOUNT)] if settings.web.enabled else []
    return [queues.main, queues.llm, *web, *(queues.connector(*place) for place in _bots(settings))]


def _bots(settings: Settings) -> list[tuple[str, str]]:
    try:
        return [(bot.platform, bot.account) for bot in configured_bots(settings)]
    except ConfigurationError:  # the check of connectors reports it
        return []


def _at_rest(subject: Examined) -> Diagnosis:
    server = subject.server
    if server is not None:
        found = f"the server of an earlier run (process {server.pid}) was left behind at {HOST}:{server.port}"
        return note(CHECK, found, "Nothing to do: the next `maestro up` takes it over.")
    return note(CHECK, "the embedded server is not running", "`maestro up` starts it.")


def _endpoint(subject: Examined) -> Endpoint:
    """Return where Temporal is; an embedded server may have been started on another port than is configured."""
    endpoint, server = endpoint_of(subject.settings), subject.server
    if subject.settings.temporal.embedded and server is not None:
        return replace(endpoint, address=f"{HOST}:{server.port}")
    return endpoint


async def connectors(subject: Examined, said: Sequence[ConnectorStatus]) -> list[Diagnosis]:
    """One line for the web connector."""
    own = [status for status in said if status.platform == WEB]
    return await asyncio.gather(*(_connector(subject, status) for status in own)) if own else [_silent(subject)]


async def _connector(subject: Examined, status: ConnectorStatus) -> Diagnosis:
    if not subject.settings.web.enabled:
        return _silent(subject)
    check = f"connector {status.platform}"
    said = last_report(status)
    if status.state == ConnectorState.FAILED:
        return broken(check, said, "Mend what it says; it is tried again with the next start.")
    if status.state == ConnectorState.STOPPED or not running(subject):
        still = "" if status.state == ConnectorState.STOPPED else "; its process is gone"
        return note(check, f"{said}{still}", _start(subject))
    if status.state != ConnectorState.RUNNING:
        return note(check, said, "If it stays like this, restart it and read what it says.")
    place = _web_port(subject)
    if place is None or await answers(place):
        return fine(check, said)
    fix = "If it was started with other ports, give `maestro doctor` the same options; otherwise restart it."
    return note(check, f"{said}, but nothing of ours answers at {place.url}", fix)


def _silent(subject: Examined) -> Diagnosis:
    if not subject.settings.web.enabled:
        return note("connector web", "switched off (web.enabled)")
    return note("connector web", "it has not run on this store yet", _start(subject))


def _start(subject: Examined) -> str:
    if subject.settings.temporal.embedded:
        return "`maestro up` starts it."
    return "`maestro connect web`, or `maestro up`, starts it."


def last_report(status: ConnectorStatus) -> str:
    """Return the last report of a connector, and its time."""
    age = datetime.now(UTC) - status.changed_at
    detail = f" ({status.detail})" if status.detail else ""
    return (
        f"{status.platform}/{status.account}: {status.state}{detail} since {status.changed_at:%Y-%m-%d %H:%M} UTC"
        + (f", {age.days} days ago" if age.days else "")
    )


def running(subject: Examined) -> bool:
    """Say whether connectors may be running: on a cluster they may run on another machine."""
    return subject.holder.running or not subject.settings.temporal.embedded


def _web_port(subject: Examined) -> PortUse | None:
    return next((place for place in port_uses(subject.settings) if place.health == "/health"), None)


def bots(subject: Examined, said: Sequence[ConnectorStatus], rows: Sequence[BotInstance]) -> list[Diagnosis]:
    """One line for each bot of the store, and for each that the configuration will add to it."""
    try:
        workshop = ConnectorFactory.of(subject.settings, existing_keys(subject.settings, subject.environment))
        configured = configured_bots(subject.settings)
    except ConfigurationError as error:
        return [broken("connectors", str(error), "Install the package that connects it, or correct the name.")]
    statuses = {(status.platform, status.account): status for status in said}
    known = {(row.platform, row.account) for row in rows}
    new = [
        BotInstance(platform=bot.platform, account=bot.account, configured=True)
        for bot in configured
        if (bot.platform, bot.account) not in known
    ]
    return [_bot(subject, workshop, row, statuses.get((row.platform, row.account))) for row in (*rows, *new)]


def _bot(subject: Examined, workshop: ConnectorFactory, row: BotInstance, status: ConnectorStatus | None) -> Diagnosis:
    check = f"connector {row.place}"
    if not row.enabled:
        return note(check, "switched off", f"`maestro connectors enable {row.place}` connects it.")
    try:
        workshop.instance(row)
    except ConfigurationError as error:
        return broken(check, str(error), SET_AGAIN)
    if status is None:
        return note(check, "it has not been connected yet", "`maestro up`, or `maestro connect`, connects it.")
    if status.state == ConnectorState.FAILED:
        again = f"Once it is mended on the platform, `maestro connectors enable {row.place}` tries again at once."
        return broken(check, last_report(status), f"{SET_AGAIN} {again}")
    if status.state == ConnectorState.STOPPED or not running(subject):
        return note(check, last_report(status), "`maestro up`, or `maestro connect`, connects it.")
    if status.state != ConnectorState.RUNNING:
        return note(check, last_report(status), "If it stays like this, see what the platform says of its own state.")
    return fine(check, last_report(status))

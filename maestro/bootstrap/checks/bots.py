"""Bots: whether each can be connected, and what its connector last said of itself."""

from collections.abc import Sequence

from connectors.base import ConnectorState
from maestro.bootstrap.bots import Workshop
from maestro.bootstrap.checks.connectors import running, told
from maestro.bootstrap.checks.subject import Subject, broken, fine, note
from maestro.bootstrap.configured_bots import configured_bots
from maestro.bootstrap.keys import existing_keys
from maestro.domain.bots.bot import BotInstance
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.errors import ConfigurationError
from maestro.domain.people.people import ConnectorStatus

SET_AGAIN = "Correct it in the configuration and restart, or with `maestro connectors set`, which counts at once."


def bots(subject: Subject, said: Sequence[ConnectorStatus], rows: Sequence[BotInstance]) -> list[Diagnosis]:
    """One line for each bot of the store, and for each that the configuration will add to it."""
    try:
        workshop = Workshop.of(subject.settings, existing_keys(subject.settings, subject.environment))
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


def _bot(subject: Subject, workshop: Workshop, row: BotInstance, status: ConnectorStatus | None) -> Diagnosis:
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
        return broken(check, told(status), f"{SET_AGAIN} {again}")
    if status.state == ConnectorState.STOPPED or not running(subject):
        return note(check, told(status), "`maestro up`, or `maestro connect`, connects it.")
    if status.state != ConnectorState.RUNNING:
        return note(check, told(status), "If it stays like this, see what the platform says of its own state.")
    return fine(check, told(status))

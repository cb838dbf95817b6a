"""What hears: the same for a socket and for requests, so that both acknowledge by the same rule."""

from collections.abc import Callable
from typing import Protocol

import structlog

from connectors.outcomes import AccountRefused
from connectors.slack.receive import Event
from maestro.domain.errors import MaestroError

EVENTS = "events_api"
COMMANDS = "slash_commands"
INTERACTIVE = "interactive"

log = structlog.get_logger(__name__)


class Hears(Protocol):
    """What takes in events and commands; whatever it raises, Slack is to send them again."""

    async def event(self, payload: Event) -> None:
        """Take in an event; raises ``AccountRefused`` when it says that there is nothing more to hear."""
        ...

    async def command(self, command: Event) -> str:
        """Take in a command and return what the person is told at once."""
        ...


class HearsPresses(Protocol):
    """What takes in the presses of buttons, by the same rule."""

    async def press(self, payload: Event) -> None:
        """Take in a press."""
        ...


class Ears:
    """Hears for one account; deaf until it is known who we are."""

    def __init__(self, refuse: Callable[[AccountRefused], None]) -> None:
        self._refuse = refuse
        self._inbound: Hears | None = None
        self._presses: HearsPresses | None = None

    def open(self, inbound: Hears, presses: HearsPresses) -> None:
        """Hand what is heard from now on to these."""
        self._inbound, self._presses = inbound, presses

    async def hear(self, kind: str, payload: Event) -> str | None:
        """Take in what Slack says; return what to answer, None when Slack is to say it again."""
        if self._inbound is None or self._presses is None:
            return None
        try:
            if kind == COMMANDS:
                return await self._inbound.command(payload)
            if kind == EVENTS:
                await self._inbound.event(payload)
            if kind == INTERACTIVE:
                await self._presses.press(payload)
        except AccountRefused as refusal:
            self._refuse(refusal)
        except MaestroError as error:
            log.warning("slack.not_taken", error=type(error).__name__, reason=str(error))
            return None
        except Exception:
            # An error of ours costs no message: it is not acknowledged, so Slack sends it again
            # (docs/invariants.md: durable before ack).
            log.exception("slack.not_taken")
            return None
        return ""

"""Takes secrets out of lines of the log (decision 21)."""

import json
import time
from collections.abc import Callable
from typing import Literal

from maestro.bootstrap.live import LiveSettings
from maestro.domain.redaction import TextKind
from maestro.domain.scanning import REDACTED, redact
from maestro.scanner.rules import OutOfTime, Rules
from maestro.settings import Settings

Line = Callable[[str], str]
"""Returns a line of the log as it may be written."""


def log_lines(live: LiveSettings, style: Literal["text", "json"]) -> Line:
    """Return what makes lines fit to be written, as the settings want it at the time.

    Only our own rules are used: a pattern of the operator's may take long, and who logs must not wait for it.
    """
    seconds = live.of(_seconds)
    rules = Rules()

    def line(text: str) -> str:
        allowed = seconds()
        if not allowed:
            return text
        clean = _without_secrets(rules, text, time.monotonic() + allowed)
        return clean if style == "text" or clean is text or _is_json(clean) else _only_frame(text)

    return line


def _seconds(settings: Settings) -> float:
    """Return how long a line may take; 0 where lines are not scanned."""
    scanner = settings.chat.scanner
    return scanner.timeout_ms / 1000 if scanner.enabled and TextKind.LOGS in scanner.scope else 0


def _without_secrets(rules: Rules, text: str, deadline: float) -> str:
    try:
        spans = rules.spans(text, deadline)
    except OutOfTime as error:  # logging it would be the next line that takes too long
        spans = error.found
    return redact(text, spans) if spans else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _only_frame(text: str) -> str:
    """Return a line of JSON without what was said, where taking out a secret would leave no JSON."""
    told: dict[str, object] = json.loads(text)
    return json.dumps({key: told[key] for key in ("timestamp", "level") if key in told} | {"event": REDACTED})

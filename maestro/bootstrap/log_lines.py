"""Takes secrets out of lines of the log (docs/decisions.md: redaction)."""

import json
import time
from collections.abc import Callable
from typing import Literal

from maestro.bootstrap.chat import scan_rules
from maestro.bootstrap.live import LiveSettings
from maestro.domain.redaction import TextKind
from maestro.domain.scanning import REDACTED, ScanRules, Span, redact
from maestro.scanner.scanner import OutOfTime, Rules, shipped
from maestro.settings import Settings

Line = Callable[[str], str]
"""Returns a line of the log as it may be written."""


def log_lines(live: LiveSettings, style: Literal["text", "json"]) -> Line:
    """Return what makes lines fit to be written, as the settings want it at the time.

    Only our own rules are used: a pattern of the operator's may take long, and who logs must not wait for it.
    """
    rules_of = live.of(scan_rules)
    wanted = live.of(_are_scanned)
    rules = shipped()

    def line(text: str) -> str:
        if not wanted():
            return text
        clean = _without_secrets(rules, text, rules_of())
        return clean if style == "text" or clean is text or _is_json(clean) else _only_frame(text)

    return line


def _are_scanned(settings: Settings) -> bool:
    return settings.chat.scanner.enabled and TextKind.LOGS in settings.chat.scanner.scope


def _without_secrets(rules: Rules, text: str, how: ScanRules) -> str:
    """Return a line without what was found; one that could not be searched whole is not told of in another line."""
    try:
        spans = rules.spans(text, time.monotonic() + how.timeout_ms / 1000, how.allow)
    except OutOfTime as error:
        spans = error.found if how.fail_mode == "open" else _all_of(text)
    except Exception:  # noqa: BLE001 - the log would write what was said with the error, as it is
        spans = _all_of(text)
    return redact(text, spans) if spans else text


def _all_of(text: str) -> tuple[Span, ...]:
    return (Span(0, len(text)),)


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

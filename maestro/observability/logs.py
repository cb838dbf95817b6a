"""The log: events of Maestro and of libraries in one form, without secrets (docs/decisions.md: redaction)."""

import json
import logging
import time
import traceback
from collections.abc import Callable
from typing import Literal, TextIO

import structlog
from structlog.typing import ExcInfo

from maestro.domain.errors import MaestroError
from maestro.domain.redaction import REDACTED, ScanRules, TextKind, TextSpan, redact_spans
from maestro.scanner.scanner import ScanIncomplete, ShippedRules, shipped_rules
from maestro.settings.live import LiveSettings

CleanLine = Callable[[str], str]
"""A function that returns a log line without its secrets."""

OURS = ("activities", "api", "connectors", "maestro", "temporal", "workflows")
"""The packages that log at the level ``logs.level``.

Libraries log warnings and errors only: at lower levels they write whole prompts, addresses that contain keys, or a line
for each request.
"""

SILENT = ("mcp", "temporalio.worker._worker", "discord", "slack_sdk", "telegram")
"""Silenced libraries: their tracebacks may contain messages or secret addresses, and Maestro logs the errors itself.

Examples of errors: Temporal refuses a worker, an MCP server writes invalid messages, a platform is down.
"""


def line_redactor(live: LiveSettings, style: Literal["text", "json"]) -> CleanLine:
    """Return a function that removes secrets from a log line, according to the present settings.

    Only Maestro's own rules are used: an operator's pattern may take long, and logging must not wait for it.
    """
    rules = shipped_rules()

    def redact_line(text: str) -> str:
        scanner = live.current().chat.scanner
        if not scanner.enabled or TextKind.LOGS not in scanner.scope:
            return text
        clean = _remove_secrets(rules, text, scanner.rules)
        return clean if style == "text" or clean is text else _valid_json_line(clean, text)

    return redact_line


def _remove_secrets(rules: ShippedRules, text: str, scan: ScanRules) -> str:
    """Return a line without its secrets; a failed scan is not logged, because that would cause a further scan."""
    whole = (TextSpan(0, len(text)),)
    try:
        spans = rules.find_spans(text, time.monotonic() + scan.timeout_ms / 1000, scan.allow)
    except ScanIncomplete as error:
        spans = error.spans if scan.fail_mode == "open" else whole
    except Exception:  # noqa: BLE001 - else logging would print the error with the unredacted line
        spans = whole
    return redact_spans(text, spans) if spans else text


def _valid_json_line(clean: str, text: str) -> str:
    """Return the redacted line; if redaction broke its JSON, return only the time and the level of the event."""
    try:
        json.loads(clean)
    except ValueError:
        entry: dict[str, object] = json.loads(text)
        return json.dumps({key: entry[key] for key in ("timestamp", "level") if key in entry} | {"event": REDACTED})
    return clean


def configure_logs(level: str, style: Literal["text", "json"], line: Callable[[str], str]) -> None:
    """Log events from ``level`` up to standard error; ``line`` changes each line before it is written."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=_write_traceback)
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([structlog.processors.ExceptionRenderer(traceback_without_texts)] if style == "json" else []),
                renderer,
                lambda _logger, _method, rendered: line(str(rendered)),
            ],
        )
    )
    # The handler filters, because some libraries set their own levels on import or by a variable (OPENAI_LOG).
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.partition(".")[0] in OURS)
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)
    for name in SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def set_level(level: str) -> None:
    """Log events of Maestro from ``level`` up, and those of libraries from "warning" or a higher level up."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(ours, logging.WARNING))
    for name in OURS:
        logging.getLogger(name).setLevel(ours)


def traceback_without_texts(exc_info: ExcInfo) -> str:
    """Return the frames and classes of an error and of its causes.

    Errors of libraries are shown without their text, which may quote messages, prompts or keys, as pydantic's does.
    Local variables, which structlog shows by default, are left out too.
    """
    lines: list[str] = []
    error: BaseException | None = exc_info[1]
    while error is not None:
        text = f": {error}" if isinstance(error, MaestroError) else ""
        lines = [*traceback.format_tb(error.__traceback__), f"{type(error).__name__}{text}\n", *lines]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "".join(lines).rstrip()


def _write_traceback(output: TextIO, exc_info: ExcInfo) -> None:
    output.write(f"\n{traceback_without_texts(exc_info)}")

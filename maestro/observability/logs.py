"""The log: events of Maestro and of libraries in one form, without secrets.

See docs/decisions.md: redaction.
"""

import json
import logging
import time
import traceback
from collections.abc import Callable
from typing import Literal, TextIO

import structlog
from structlog.typing import ExcInfo

from maestro.domain.errors import MaestroError
from maestro.domain.redaction import REDACTED, ScanRules, TextKind, TextSpan, redact
from maestro.scanner.scanner import OutOfTime, Rules, shipped
from maestro.settings.live import LiveSettings

CleanLine = Callable[[str], str]
"""Returns a line of the log as it may be written."""

OURS = ("activities", "api", "connectors", "maestro", "temporal", "workflows")
"""The packages that ``logs.level`` is about.

Libraries write warnings and errors at most, whatever the level: below that they write whole prompts (the options of a
request to a model), addresses with keys in them, or a line per request.
"""

SILENT = ("mcp", "temporalio.worker._worker", "discord", "slack_sdk", "telegram")
"""Libraries that show a traceback for what we tell in a sentence, such as a worker that Temporal refuses, an MCP server
that writes what is no message or a platform that is away; the text of messages would be in it, or an address that is
as good as a token."""


def log_lines(live: LiveSettings, style: Literal["text", "json"]) -> CleanLine:
    """Return the function that redacts log lines by the present settings.

    Only Maestro's own rules are used: an operator's pattern may take long, and logging must not wait for it.
    """
    rules = shipped()

    def line(text: str) -> str:
        scanner = live.current().chat.scanner
        if not scanner.enabled or TextKind.LOGS not in scanner.scope:
            return text
        clean = _without_secrets(rules, text, scanner.rules)
        return clean if style == "text" or clean is text or _is_json(clean) else _only_frame(text)

    return line


def _without_secrets(rules: Rules, text: str, how: ScanRules) -> str:
    """Return a line without its secrets; a scan that fails is not logged, to avoid a loop."""
    try:
        spans = rules.spans(text, time.monotonic() + how.timeout_ms / 1000, how.allow)
    except OutOfTime as error:
        spans = error.found if how.fail_mode == "open" else _all_of(text)
    except Exception:  # noqa: BLE001 - else logging would print the error with the unredacted line
        spans = _all_of(text)
    return redact(text, spans) if spans else text


def _all_of(text: str) -> tuple[TextSpan, ...]:
    return (TextSpan(0, len(text)),)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _only_frame(text: str) -> str:
    """Return a JSON line without its texts, where redaction would leave invalid JSON."""
    told: dict[str, object] = json.loads(text)
    return json.dumps({key: told[key] for key in ("timestamp", "level") if key in told} | {"event": REDACTED})


def configure_logs(level: str, style: Literal["text", "json"], line: Callable[[str], str]) -> None:
    """Write everything from ``level`` up to standard error, each line as ``line`` returns it."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = structlog.processors.JSONRenderer() if style == "json" else _for_people()
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
    # A filter on the handler, because some libraries set their own levels on import or by a variable (OPENAI_LOG).
    handler.addFilter(_is_fit)
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
    """Log Maestro's events from ``level`` up from now on, and those of libraries from "warning" up at least."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(ours, logging.WARNING))
    for name in OURS:
        logging.getLogger(name).setLevel(ours)


def _is_fit(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] in OURS


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


def _for_people() -> structlog.dev.ConsoleRenderer:
    def write(output: TextIO, info: ExcInfo) -> None:
        output.write(f"\n{traceback_without_texts(info)}")

    return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=write)

"""Calls models of a subscription through the command ``claude``, which takes the whole prompt as one text."""

import asyncio
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from maestro.child_process import (
    ProgramCommand,
    ProgramEnd,
    ProgramLimits,
    ProgramResult,
    plain_environment,
    run_program,
)
from maestro.domain.llm.calls import (
    AuthenticationFailed,
    BadRequest,
    CallSite,
    ContextOverflow,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.models import estimate_messages, estimate_tokens, remove_provider
from maestro.domain.llm.prompts import CallPurpose, LLMRequest, LLMResponse, PromptMessage, Role, Usage
from maestro.llm.failures import LONGEST
from maestro.llm.protocols import Account
from maestro.store.store import utc_now

DEFAULT_COOL_DOWN = timedelta(hours=1)
"""The cool-down after a limit, if the command does not say when the limit ends."""

_LIMIT = re.compile(
    r"\b(?:hit your\b[^.\n|]*\blimit|(?:usage|session|weekly|5-hour|Opus|Sonnet) limit reached)", re.IGNORECASE
)
_EPOCH = re.compile(r"limit reached\|(\d{10,13})\b", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_RESETS = re.compile(
    rf"\bresets?(?: at)? (?:(?P<month>{'|'.join(_MONTHS)})[a-z]* (?P<day>\d{{1,2}})(?:,| at)* )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?\b(?: \((?P<zone>[\w+/-]+)\))?",
    re.IGNORECASE,
)

NO_SESSION = re.compile(r"no conversation found|no deferred tool marker|session id .{0,80} not found", re.IGNORECASE)
"""What the command writes when the session to continue does not exist."""
NO_OPTION = re.compile(r"unknown option|unrecognized option", re.IGNORECASE)
"""What the command writes when its release does not know an option; no model was called then."""

# The first pattern that matches decides the error class, so the order of the patterns matters.
_KINDS: tuple[tuple[type[LLMFailure], "re.Pattern[str]", str], ...] = (
    (
        QuotaExhausted,
        re.compile(r"credit balance is too low|out of extra usage", re.IGNORECASE),
        "Add credit at the provider, or add another account.",
    ),
    (
        AuthenticationFailed,
        re.compile(
            r"/login|not logged in|invalid api key|oauth token|authentication_error|API Error: 40[13]\b", re.IGNORECASE
        ),
        "Log in once with `claude` as the user that runs Maestro, with the account's homeDir as CLAUDE_CONFIG_DIR.",
    ),
    (
        ContextOverflow,
        re.compile(r"prompt is too long|context[ -](?:window|limit|length)", re.IGNORECASE),
        "Shorten the conversation, or choose a model with a larger window.",
    ),
    (RateLimited, re.compile(r"API Error: 429\b|rate_limit_error", re.IGNORECASE), "Another account would answer."),
    (
        BadRequest,
        re.compile(r"issue with the selected model|API Error: 4(?:00|04|13|22)\b|invalid_request_error", re.IGNORECASE),
        "Check the account's model.",
    ),
)
_UNAVAILABLE = "Run `claude --print` by hand as the user that runs Maestro to see what is wrong."

CLAUDE = "claude"
SECONDS = 180.0
"""The most seconds that a call of the command may take."""
OUTPUT_BYTES = 8 * 1024 * 1024
"""The most bytes of output that are read: more than any model writes in one answer."""
_WINDOW, _STEP = 16, 8

# The command gets only these variables: with ANTHROPIC_API_KEY set, the call would be billed to that key.
_PASSED_ON = frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"),
    )
)
_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
# The permission mode "default" denies every tool that needs permission, even if the user's settings allow the tool.
_EXTRA_OPTIONS = ("--output-format", "json", "--permission-mode", "default")

log = structlog.get_logger(__name__)


def time_until_limit_ends(text: str, now: datetime) -> timedelta | None:
    """Return how long a subscription's limit still lasts; None when the command's text reports no limit.

    A time of day means its next occurrence, in the time zone that the text names or else in that of this machine.
    """
    if not _LIMIT.search(text):
        return None
    until = None
    # The text may name an impossible date, hour or time zone.
    with suppress(ValueError, KeyError, OverflowError, OSError):
        if epoch := _EPOCH.search(text):
            number = int(epoch[1])
            until = datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)
        elif reset := _RESETS.search(text):
            until = _next_reset(reset, now)
    return min(max(until - now, timedelta()), LONGEST) if until else DEFAULT_COOL_DOWN


def _next_reset(reset: "re.Match[str]", now: datetime) -> datetime:
    """Return the next occurrence of a date or an hour; raises ``ValueError`` for an impossible date or hour."""
    zone = ZoneInfo(reset["zone"]) if reset["zone"] else None
    local = now.astimezone(zone)
    hour, minute, half = int(reset["hour"]), int(reset["minute"] or 0), reset["half"]
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} {half} is no hour")
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    if reset["month"]:
        month, day = _MONTHS.index(reset["month"].lower()) + 1, int(reset["day"])
        moment = convert_to_utc(datetime(local.year, month, day, hour, minute), zone)
        if now - moment < timedelta(days=180):
            return moment
        return convert_to_utc(datetime(local.year + 1, month, day, hour, minute), zone)
    today = datetime(local.year, local.month, local.day, hour, minute)
    moment = convert_to_utc(today, zone)
    # Add a calendar day, which has 23 or 25 hours when daylight saving time begins or ends.
    return moment if moment > now else convert_to_utc(today + timedelta(days=1), zone)


def convert_to_utc(local: datetime, zone: tzinfo | None) -> datetime:
    """Convert a local time to UTC; without a time zone, the time is local to this machine."""
    return local.replace(tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer in the command's output; ``usage`` is None when the command reported no figures."""

    text: str
    failed: bool = False
    usage: Usage | None = None


def parse_output(ended: ProgramResult, *, as_json: bool) -> CommandAnswer:
    """Parse the output of the command, which may write plain text although JSON was requested, above all for errors."""
    output, failed = ended.output.decode(errors="replace"), ended.code != 0
    try:
        data: Any = json.loads(output) if as_json else None
    except ValueError:
        data = None
    # Some releases of the command write a list of all events; the last event is the result.
    result = data[-1] if isinstance(data, list) and data else data
    if not isinstance(result, dict) or result.get("type") != "result":
        return CommandAnswer(output.strip(), failed)
    text, usage = result.get("result"), _read_usage(result.get("usage"))
    return CommandAnswer(text if isinstance(text, str) else "", failed or result.get("is_error") is True, usage)


def find_failure(ended: ProgramResult, answer: CommandAnswer, site: CallSite, now: datetime) -> LLMFailure | None:
    """Return the failure that the output reports, without quoting the output; None when the command answered."""
    where = f"command claude of account {site.account!r}, model {site.model!r}"
    if ended.outcome is ProgramEnd.TOO_LONG:
        failed: LLMFailure = ModelTimeout(f"{where}: no whole answer in time. {ModelTimeout.public}")
    elif ended.outcome is ProgramEnd.TOO_MUCH:
        failed = ProviderUnavailable(f"{where}: the command wrote more output than an answer can have. {_UNAVAILABLE}")
    elif answer.failed:
        failed = _classify_error(f"{where}, exit {ended.code}", _output_and_errors(ended, answer), now)
    else:
        return None
    failed.site = site
    return failed


def reports_problem(problem: "re.Pattern[str]", ended: ProgramResult, answer: CommandAnswer) -> bool:
    """Return whether the command failed and wrote a text that matches the pattern of this problem."""
    return answer.failed and problem.search(_output_and_errors(ended, answer)) is not None


def _classify_error(where: str, text: str, now: datetime) -> LLMFailure:
    wait = time_until_limit_ends(text, now)
    if wait is not None:
        seconds = f"{wait.total_seconds():.0f}"
        return RateLimited(f"{where}: the subscription's limit is reached; it resets in {seconds} s.", wait)
    for kind, pattern, advice in _KINDS:
        if pattern.search(text):
            return kind(f"{where}: {kind.public} {advice}")
    return ProviderUnavailable(f"{where}: {ProviderUnavailable.public} {_UNAVAILABLE}")


def _output_and_errors(ended: ProgramResult, answer: CommandAnswer) -> str:
    return f"{answer.text}\n{ended.errors.decode(errors='replace')}"


def _read_usage(data: Any) -> Usage | None:
    """Return the token usage; the command excludes cached tokens from the input tokens, Maestro includes them."""
    if not isinstance(data, dict):
        return None
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    reported = (data.get(name) for name in names)
    uncached, output, cached, written = (max(count, 0) if isinstance(count, int) else 0 for count in reported)
    return Usage(
        input_tokens=uncached + cached + written, output_tokens=output, cached_tokens=cached, cache_write_tokens=written
    )


def prompt_text(messages: Sequence[PromptMessage]) -> str:
    """Return the prompt as text: the system message, then each message after its role, as in ``[user]: ...``.

    Further lines of a message are indented, so that no line of it can look like the start of another message
    (docs/decisions.md: prompt layers).
    """
    return "\n\n".join(map(_message_text, messages)) + "\n"


def _message_text(message: PromptMessage) -> str:
    if message.role is Role.SYSTEM:
        return message.content
    lines = message.content.splitlines()
    lines += [f"(calls {call.name} with {' '.join(call.arguments.split())})" for call in message.tool_calls]
    if message.images:
        count = "an image" if len(message.images) == 1 else f"{len(message.images)} images"
        lines.append(f"({count} that cannot be shown here)")
    speaker = f"tool {message.tool}" if message.role is Role.TOOL else message.role.value
    return f"[{speaker}]: " + "\n  ".join(lines)


@dataclass(frozen=True, slots=True)
class _CommandSession:
    """One call of the command, and the marker file which says that the command's session can be continued."""

    command: ProgramCommand
    marker: Path
    continues: bool


@dataclass(slots=True)
class CliRunner:
    """Runs the command ``claude`` once for each model call; a call costs 0, because the fee does not depend on use.

    ``sessions`` is the folder with one subfolder for each conversation, where the command keeps its session.
    ``environment`` is that of Maestro; the command gets only the variables that it needs. The prompt is text without
    tools; a note replaces each image.
    """

    sessions: Path
    environment: Mapping[str, str]
    _: KW_ONLY
    clock: Callable[[], datetime] = utc_now
    seconds: float = SECONDS
    _knows_options: bool = field(default=True, init=False)

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer the request with one model call; raises an ``LLMFailure`` that quotes no prompt and no answer.

        When this method ends, even by an error or a cancellation, no process of the command is running.
        """
        site = CallSite(account.provider, account.name, request.model)
        session = await asyncio.to_thread(self._open_session, account, request)
        started = time.monotonic()
        ended, answer = await self._run_command(session, site)
        failed = find_failure(ended, answer, site, self.clock())
        await asyncio.to_thread(self._close_session, session, ended, failed)
        if failed is not None:
            raise failed
        guess = Usage(input_tokens=estimate_messages(request.messages), output_tokens=estimate_tokens(answer.text))
        return LLMResponse(
            **(answer.usage or guess).model_dump(),
            content=answer.text,
            model=site.model,
            provider=site.provider,
            account=site.account,
            cost_usd=0.0,
            duration_ms=round((time.monotonic() - started) * 1000),
            finish_reason="stop",
        )

    async def _run_command(self, session: _CommandSession, site: CallSite) -> tuple[ProgramResult, CommandAnswer]:
        """Run the command and return its result; run it again if it failed before it called the model."""
        until, continues = time.monotonic() + self.seconds, session.continues
        while True:
            options = _EXTRA_OPTIONS if self._knows_options else ()
            arguments = (*session.command.arguments, *(("--continue",) if continues else ()), *options)
            limits = ProgramLimits(until - time.monotonic(), OUTPUT_BYTES)
            try:
                ended = await run_program(replace(session.command, arguments=arguments), limits)
            except OSError as error:
                failed = _build_start_failure(site, f"it cannot be started ({error.strerror})")
                break
            answer = parse_output(ended, as_json=bool(options))
            if continues and reports_problem(NO_SESSION, ended, answer):
                continues = False
            elif options and reports_problem(NO_OPTION, ended, answer):
                self._knows_options = False
            else:
                return ended, answer
        raise failed

    def _open_session(self, account: Account, request: LLMRequest) -> _CommandSession:
        """Prepare the folder of the conversation; raises ``ProviderUnavailable`` when the command is not installed.

        A session can be continued only after a call that succeeded. A retry after a failure begins a new session, so
        that no session gets the same message twice.
        """
        site = CallSite(account.provider, account.name, request.model)
        program = shutil.which(CLAUDE, path=self.environment.get("PATH", ""))
        if program is None:
            raise _build_start_failure(site, "it is not on the PATH of Maestro")
        # Each conversation has a folder, or else each job; its calls that are not for an answer have separate folders.
        name, purpose = str(request.conversation_id or request.key.job_id), request.key.purpose
        folder = self.sessions / (name if purpose is CallPurpose.ANSWER else f"{name}-{purpose}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker = folder / f".session-{hashlib.sha256(account.name.encode()).hexdigest()[:16]}"
        continues = marker.exists()
        marker.unlink(missing_ok=True)
        environment = plain_environment(self.environment) | _QUIET
        environment |= {name: value for name, value in self.environment.items() if name in _PASSED_ON}
        if account.home_dir:
            environment["CLAUDE_CONFIG_DIR"] = str(Path(account.home_dir).expanduser().absolute())
            # The token in the environment belongs to another account than the login in this folder.
            environment.pop("CLAUDE_CODE_OAUTH_TOKEN", None)
        command = ProgramCommand(
            arguments=(str(Path(program).absolute()), "--print", "--model", remove_provider(request.model)),
            folder=folder,
            environment=environment,
            input=prompt_text(request.messages).encode(),
        )
        return _CommandSession(command, marker, continues)

    def _close_session(self, session: _CommandSession, ended: ProgramResult, failed: LLMFailure | None) -> None:
        if failed is None:
            session.marker.touch()
        errors, prompt = ended.errors.decode(errors="replace"), session.command.input.decode()
        lines = (line.strip() for line in errors[:2_000].splitlines())
        text = "\n".join(line for line in lines if line and not repeats_prompt(line, prompt))
        if text:
            log.warning("the command claude wrote to its error output", exit=ended.code, text=text)


def _build_start_failure(site: CallSite, reason: str) -> LLMFailure:
    failed = ProviderUnavailable(
        f"command claude of account {site.account!r}: {reason}. Install Claude Code and log in as the user that runs "
        "Maestro, or remove the account."
    )
    failed.site = site
    return failed


def repeats_prompt(line: str, prompt: str) -> bool:
    """Return whether a line of the command's error output contains a passage of the prompt."""
    starts = range(0, max(1, len(line) - _WINDOW + 1), _STEP)
    return any(line[start : start + _WINDOW] in prompt for start in starts)

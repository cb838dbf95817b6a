"""Calls a model of a subscription through the command ``claude``, which takes the prompt as one text."""

import asyncio
import hashlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from pathlib import Path

import structlog

from maestro.child_process import ProgramCommand, ProgramLimits, ProgramResult, plain_environment, run
from maestro.domain.llm.errors import CallSite, LLMFailure, ProviderUnavailable
from maestro.domain.llm.models import estimate, estimate_messages, without_provider
from maestro.domain.llm.prompts import CallPurpose, LLMRequest, LLMResponse, PromptMessage, Role, Usage
from maestro.llm.cli_answers import NO_OPTION, NO_SESSION, CommandAnswer, find_failure, parse_output, reports
from maestro.llm.protocols import Account
from maestro.store.store import utc_now

CLAUDE = "claude"
SECONDS = 180.0
"""The most seconds that a call of the command may take."""
OUTPUT_BYTES = 8 * 1024 * 1024
"""The most bytes of output that are read: more than any model writes in one answer."""
LOGGED_CHARS = 2_000
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


def prompt_of(messages: Sequence[PromptMessage]) -> str:
    """Return the prompt as text: the system message, then each message after its role, as in ``[user]: ...``.

    Further lines of a message are indented, so that no text in it can be taken for another message (docs/decisions.md:
    prompt layers).
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
    """One call of the command: its arguments, and the marker file of a session that can be continued."""

    command: ProgramCommand
    marker: Path
    continues: bool


@dataclass(slots=True)
class CliRunner:
    """Runs the command once for each call, at a cost of 0: the fee of a subscription does not depend on use.

    ``sessions`` is the folder with one subfolder for each conversation, where the command keeps its session.
    ``environment`` is that of Maestro; the command gets only the variables that it needs. The prompt is text without
    tools and images; a note replaces each image.
    """

    sessions: Path
    environment: Mapping[str, str]
    _: KW_ONLY
    clock: Callable[[], datetime] = utc_now
    seconds: float = SECONDS
    _knows_options: bool = field(default=True, init=False)

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer the request with one model call; raises an ``LLMFailure`` without any text of the call.

        No process of the command is running when this returns or raises, also after a cancellation.
        """
        site = CallSite(account.provider, account.name, request.model)
        session = await asyncio.to_thread(self._open_session, account, request)
        started = time.monotonic()
        ended, answer = await self._run_command(session, site)
        failed = find_failure(ended, answer, site, self.clock())
        await asyncio.to_thread(self._close_session, session, ended, failed)
        if failed is not None:
            raise failed
        guess = Usage(input_tokens=estimate_messages(request.messages), output_tokens=estimate(answer.text))
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
                ended = await run(replace(session.command, arguments=arguments), limits)
            except OSError as error:
                raise _start_failure(site, f"it cannot be started ({error.strerror})") from None
            answer = parse_output(ended, as_json=bool(options))
            if continues and reports(NO_SESSION, ended, answer):
                continues = False
            elif options and reports(NO_OPTION, ended, answer):
                self._knows_options = False
            else:
                return ended, answer

    def _open_session(self, account: Account, request: LLMRequest) -> _CommandSession:
        """Prepare the folder of the conversation; raises ``ProviderUnavailable`` when the command is not installed.

        A session is marked as usable only after a call succeeded: a retry after a failure begins a new session, so that
        an old one never gets the same message twice.
        """
        site = CallSite(account.provider, account.name, request.model)
        program = shutil.which(CLAUDE, path=self.environment.get("PATH", ""))
        if program is None:
            raise _start_failure(site, "it is not on the PATH of Maestro")
        folder = self._session_folder(request)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker = folder / f".session-{hashlib.sha256(account.name.encode()).hexdigest()[:16]}"
        continues = marker.exists()
        marker.unlink(missing_ok=True)
        command = ProgramCommand(
            arguments=(str(Path(program).absolute()), "--print", "--model", without_provider(request.model)),
            folder=folder,
            environment=self._command_environment(account),
            input=prompt_of(request.messages).encode(),
        )
        return _CommandSession(command, marker, continues)

    def _close_session(self, session: _CommandSession, ended: ProgramResult, failed: LLMFailure | None) -> None:
        if failed is None:
            session.marker.touch()
        errors, prompt = ended.errors.decode(errors="replace"), session.command.input.decode()
        lines = (line.strip() for line in errors[:LOGGED_CHARS].splitlines())
        text = "\n".join(line for line in lines if line and not _quotes_prompt(line, prompt))
        if text:
            log.warning("the command claude wrote to its error output", exit=ended.code, text=text)

    def _session_folder(self, request: LLMRequest) -> Path:
        """Return the session folder of the conversation, or of the job; each purpose has a folder of its own."""
        name = str(request.conversation_id or request.key.job_id)
        purpose = request.key.purpose
        return self.sessions / (name if purpose is CallPurpose.ANSWER else f"{name}-{purpose}")

    def _command_environment(self, account: Account) -> dict[str, str]:
        environment = plain_environment(self.environment) | _QUIET
        environment |= {name: value for name, value in self.environment.items() if name in _PASSED_ON}
        if account.home_dir:
            environment["CLAUDE_CONFIG_DIR"] = str(Path(account.home_dir).expanduser().absolute())
            # The token in the environment belongs to another account than the login in this folder.
            environment.pop("CLAUDE_CODE_OAUTH_TOKEN", None)
        return environment


def _start_failure(site: CallSite, reason: str) -> LLMFailure:
    failed = ProviderUnavailable(
        f"command claude of account {site.account!r}: {reason}. Install Claude Code and log in as the user that runs "
        "Maestro, or remove the account."
    )
    failed.site = site
    return failed


def _quotes_prompt(line: str, prompt: str) -> bool:
    """Return whether a line of the command's error output contains a passage of the prompt."""
    starts = range(0, max(1, len(line) - _WINDOW + 1), _STEP)
    return any(line[start : start + _WINDOW] in prompt for start in starts)

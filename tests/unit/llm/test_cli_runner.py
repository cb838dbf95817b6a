"""The command ``claude`` answers, fails and hangs, and no process of it is left, whatever it does."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from maestro import child_process
from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.calls import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMRequest, PromptMessage, Role
from maestro.llm.cli_runner import CliRunner
from maestro.llm.protocols import Account
from tests.support.claude import FakeClaude, saying
from tests.support.left_behind import nobody_left, noted, pids

NOW = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)
ACCOUNT = Account(name="max", provider="anthropic", model="claude-sonnet-4-6", type=AccountType.CLI)
SECRET = "the launch code is 0000-1111"

Runner = Callable[..., tuple[CliRunner, FakeClaude]]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Build a runner that finds a ``claude`` with this script."""

    def build(script: str, *, seconds: float = 60, **environment: str) -> tuple[CliRunner, FakeClaude]:
        claude = FakeClaude(tmp_path / "bin", script)
        around = {"PATH": claude.path, "HOME": str(tmp_path), **environment}
        return CliRunner(tmp_path / "sessions", around, clock=lambda: NOW, seconds=seconds), claude

    return build


def request(said: str = SECRET, **fields: Any) -> LLMRequest:
    return LLMRequest(
        key=CallKey(job_id="job-1", number=1, purpose=fields.pop("purpose", CallPurpose.ANSWER)),
        platform="web",
        model="claude-sonnet-4-6",
        messages=(PromptMessage(role=Role.SYSTEM, content="You are Ada."), PromptMessage(role=Role.USER, content=said)),
        max_output_tokens=100,
        **{"conversation_id": 7, **fields},
    )


async def failing(runner: CliRunner, account: Account = ACCOUNT) -> LLMFailure:
    """Return how a call fails; it says where, and nothing of what was said."""
    with pytest.raises(LLMFailure) as raised:
        await runner.ask(account, request())
    failed = raised.value
    assert failed.site is not None
    assert (failed.site.account, failed.site.model) == ("max", "claude-sonnet-4-6")
    assert "launch" not in str(failed)
    assert failed.__context__ is None
    return failed


async def test_it_is_called_as_specified_and_answers(runner: Runner, tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 4}
    cli, claude = runner(saying("Hello.", usage=usage))
    answer = await cli.ask(ACCOUNT, request())
    assert claude.words()[:3] == ["--print", "--model", "claude-sonnet-4-6"]
    assert not any("dangerously" in word or "bypass" in word for word in claude.words())
    assert claude.said() == f"You are Ada.\n\n[user]: {SECRET}\n"
    assert claude.where() == tmp_path / "sessions" / "7"
    assert (answer.content, answer.model, answer.provider, answer.account) == (
        "Hello.",
        "claude-sonnet-4-6",
        "anthropic",
        "max",
    )
    assert (answer.input_tokens, answer.output_tokens) == (240, 4)
    assert (answer.cached_tokens, answer.cache_write_tokens) == (200, 30)
    assert answer.cost_usd == 0.0
    assert nobody_left(claude.folder)


async def test_the_next_call_of_a_conversation_continues_and_others_do_not(runner: Runner, tmp_path: Path) -> None:
    cli, claude = runner(saying("ok"))
    await cli.ask(ACCOUNT, request())
    await cli.ask(ACCOUNT, request())
    await cli.ask(ACCOUNT, request(conversation_id=8))
    await cli.ask(ACCOUNT, request(conversation_id=0))
    await cli.ask(ACCOUNT, request(purpose=CallPurpose.SUMMARY))
    await cli.ask(Account(name="second", provider="anthropic", model="claude-sonnet-4-6"), request())
    assert ["--continue" in claude.words(run) for run in range(6)] == [False, True, False, False, False, False]
    assert claude.words(1)[:4] == ["--print", "--model", "claude-sonnet-4-6", "--continue"]
    folders = [claude.where(run).relative_to(tmp_path / "sessions").as_posix() for run in range(6)]
    assert folders == ["7", "7", "8", "job-1", "7-summary", "7"]


async def test_a_repeat_after_a_failure_does_not_continue(runner: Runner) -> None:
    cli, claude = runner(f'if [ "$run" = 1 ]; then exit 1; fi; {saying("ok")}')
    await cli.ask(ACCOUNT, request())
    await failing(cli)
    await cli.ask(ACCOUNT, request())
    await cli.ask(ACCOUNT, request())
    assert ["--continue" in claude.words(run) for run in range(4)] == [False, True, False, True]


async def test_where_nothing_is_found_to_continue_it_begins_anew(runner: Runner) -> None:
    gone = 'case "$*" in *--continue*) echo "No conversation found to continue" >&2; exit 1;; esac'
    cli, claude = runner(f"{gone}\n{saying('ok')}")
    await cli.ask(ACCOUNT, request())
    assert (await cli.ask(ACCOUNT, request())).content == "ok"
    assert ["--continue" in claude.words(run) for run in range(3)] == [False, True, False]


async def test_an_older_release_answers_in_plain_text(runner: Runner) -> None:
    unknown = """case "$*" in *--output-format*) echo "error: unknown option '--output-format'" >&2; exit 1;; esac"""
    cli, claude = runner(f"{unknown}\necho '  Hello, plainly. '")
    answer = await cli.ask(ACCOUNT, request())
    assert (answer.content, answer.cost_usd, answer.cached_tokens) == ("Hello, plainly.", 0.0, 0)
    assert answer.input_tokens > 0
    assert answer.output_tokens > 0
    assert claude.words(1) == ["--print", "--model", "claude-sonnet-4-6"]
    await cli.ask(ACCOUNT, request())
    assert claude.runs == 3


async def test_a_list_of_events_is_read_too(runner: Runner) -> None:
    cli, _ = runner("""echo '[{"type": "system"}, {"type": "result", "is_error": false, "result": "Hello."}]'""")
    assert (await cli.ask(ACCOUNT, request())).content == "Hello."


async def test_an_answer_that_looks_like_json_is_an_answer(runner: Runner) -> None:
    cli, _ = runner("""echo '{"price": 3}'""")
    assert (await cli.ask(ACCOUNT, request())).content == '{"price": 3}'


async def test_an_answer_of_nothing_is_handed_on(runner: Runner) -> None:
    cli, _ = runner("exit 0")
    assert (await cli.ask(ACCOUNT, request())).content == ""


async def test_it_gets_no_key_and_the_folder_of_its_account(runner: Runner, tmp_path: Path) -> None:
    ours = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY_2": "k", "ANTHROPIC_BASE_URL": "x", "GITHUB_TOKEN": "t"}
    logins = {"CLAUDE_CONFIG_DIR": "usual", "CLAUDE_CODE_OAUTH_TOKEN": "of-the-usual"}
    cli, claude = runner(saying("ok"), **ours, **logins, HTTPS_PROXY="http://proxy:3128")
    await cli.ask(ACCOUNT, request())
    usual = claude.environment()
    assert not ours.keys() & usual.keys()
    assert logins.items() <= usual.items()
    assert usual["HTTPS_PROXY"] == "http://proxy:3128"
    await cli.ask(Account(name="max", provider="anthropic", model="m", home_dir="/logins/second"), request())
    other = claude.environment(1)
    assert other["CLAUDE_CONFIG_DIR"] == "/logins/second"
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in other


async def test_a_large_prompt_arrives_whole(runner: Runner) -> None:
    cli, claude = runner(saying("ok"))
    await cli.ask(ACCOUNT, request("x" * 300_000))
    assert len(claude.said()) > 300_000
    assert nobody_left(claude.folder)


async def test_a_command_that_hangs_is_ended_in_time(runner: Runner) -> None:
    cli, claude = runner("sleep 600", seconds=1)
    assert isinstance(await failing(cli), ModelTimeout)
    assert nobody_left(claude.folder)


async def test_a_command_that_does_not_listen_is_forced(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_SECONDS", 0.2)
    cli, claude = runner("trap '' TERM; while :; do sleep 0.1; done", seconds=1)
    assert isinstance(await failing(cli), ModelTimeout)
    assert nobody_left(claude.folder)


async def test_a_flood_is_no_answer(runner: Runner) -> None:
    cli, claude = runner("head -c 50000000 /dev/zero; sleep 600")
    assert isinstance(await failing(cli), ProviderUnavailable)
    assert nobody_left(claude.folder)


async def test_who_stays_behind_does_not_hold_up_the_answer(runner: Runner) -> None:
    cli, claude = runner(f'sleep 600 & echo $! > "$here/behind-pid"\n{saying("ok")}')
    assert (await cli.ask(ACCOUNT, request())).content == "ok"
    assert len(pids(claude.folder)) == 2
    assert nobody_left(claude.folder)


async def test_a_cancelled_call_leaves_nobody(runner: Runner) -> None:
    cli, claude = runner('sleep 600 & echo $! > "$here/behind-pid"; sleep 600')
    call = asyncio.create_task(cli.ask(ACCOUNT, request()))
    await noted(claude.folder / "behind-pid")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(pids(claude.folder)) == 2
    assert nobody_left(claude.folder)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo 'Invalid API key · Please run /login'; exit 1", AuthenticationFailed),
        (saying("OAuth token has expired. Please run /login", failed=True), AuthenticationFailed),
        ("echo 'Credit balance is too low'; exit 1", QuotaExhausted),
        ("echo 'Prompt is too long'; exit 1", ContextOverflow),
        (saying("API Error: 429 {}", failed=True) + "\nexit 1", RateLimited),
        (saying("API Error: 529 Overloaded", failed=True) + "\nexit 1", ProviderUnavailable),
        ("echo 'There is an issue with the selected model (x).'; exit 1", BadRequest),
        ("exit 7", ProviderUnavailable),
        ("kill -9 $$", ProviderUnavailable),
    ],
)
async def test_its_complaints_say_what_to_do(runner: Runner, script: str, kind: type[LLMFailure]) -> None:
    cli, claude = runner(script)
    assert type(await failing(cli)) is kind
    assert claude.runs == 1
    assert nobody_left(claude.folder)


@pytest.mark.parametrize(
    ("script", "wait"),
    [
        ('echo "You\'ve hit your limit · resets 3pm (Europe/Lisbon)"; exit 1', timedelta(hours=2)),
        (f"echo 'Claude AI usage limit reached|{int(NOW.timestamp()) + 60}'; exit 1", timedelta(minutes=1)),
        (saying("You've hit your limit · resets 1pm (Europe/Lisbon)", failed=True) + "\nexit 1", timedelta(hours=24)),
        ('echo "You\'ve hit your limit"; exit 1', timedelta(hours=1)),
    ],
)
async def test_a_used_up_subscription_says_until_when(runner: Runner, script: str, wait: timedelta) -> None:
    cli, _ = runner(script)
    failed = await failing(cli)
    assert (type(failed), failed.retry_after) == (RateLimited, wait)


async def test_an_answer_that_speaks_of_limits_is_an_answer(runner: Runner) -> None:
    cli, _ = runner(saying("You've hit your limit · resets 3pm (UTC)"))
    assert (await cli.ask(ACCOUNT, request())).content.startswith("You've hit your limit")


async def test_a_command_that_is_not_there_is_named_with_the_fix(tmp_path: Path) -> None:
    cli = CliRunner(tmp_path, {"PATH": str(tmp_path)})
    failed = await failing(cli)
    assert isinstance(failed, ProviderUnavailable)
    assert "PATH" in str(failed)
    assert "Install Claude Code" in str(failed)
    (tmp_path / "claude").write_bytes(b"\x7fELF no program")
    (tmp_path / "claude").chmod(0o755)
    assert "cannot be started" in str(await failing(cli))


async def test_its_errors_are_logged_but_never_the_prompt(runner: Runner) -> None:
    cli, _ = runner(f'echo "Warning: a plugin is old" >&2; cat "$here/0-said" >&2\n{saying("ok")}')
    with structlog.testing.capture_logs() as logged:
        await cli.ask(ACCOUNT, request())
    [entry] = logged
    assert (entry["log_level"], entry["text"]) == ("warning", "Warning: a plugin is old")

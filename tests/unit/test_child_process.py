"""Programs are fed and ended whatever they do, and leave nobody behind."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from maestro import child_process
from maestro.child_process import (
    ProgramCommand,
    ProgramEnd,
    ProgramLimits,
    ProgramResult,
    plain_environment,
    run_program,
)
from tests.support.left_behind import nobody_left, nobody_stays, noted, pids

BOUNDS = ProgramLimits(seconds=30, output_bytes=1024 * 1024)
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def shell(folder: Path, script: str, said: bytes = b"") -> ProgramCommand:
    """A shell that first says who it is, in a file."""
    return ProgramCommand(("/bin/sh", "-c", f"echo $$ > pid; {script}"), folder, ENVIRONMENT, said)


MANY = "trap '' TERM; sleep 600 & echo $! > other.pid; wait"


async def test_a_program_reads_what_it_is_told_and_is_heard(tmp_path: Path) -> None:
    said = b"x" * 300_000
    ended = await run_program(shell(tmp_path, "wc -c; echo trouble >&2; exit 3", said), BOUNDS)
    assert (ended.outcome, ended.code, ended.output.strip()) == (ProgramEnd.EXITED, 3, b"300000")
    assert ended.errors == b"trouble\n"
    assert nobody_left(tmp_path)


async def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_program(ProgramCommand(("/no/such/program",), tmp_path, ENVIRONMENT), BOUNDS)


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, "echo begun; sleep 600"), ProgramLimits(0.5, 1024))
    assert (ended.outcome, ended.output) == (ProgramEnd.TOO_LONG, b"begun\n")
    assert nobody_left(tmp_path)


async def test_one_that_does_not_listen_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_SECONDS", 0.2)
    ended = await run_program(shell(tmp_path, "trap '' TERM; while :; do sleep 0.1; done"), ProgramLimits(0.5, 1024))
    assert ended.outcome is ProgramEnd.TOO_LONG
    assert nobody_left(tmp_path)


async def test_a_flood_is_stopped_and_cut(tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, "yes"), ProgramLimits(30, 10_000))
    assert (ended.outcome, len(ended.output)) == (ProgramEnd.TOO_MUCH, 10_000)
    assert nobody_left(tmp_path)


async def test_too_much_at_once_is_too_much_as_well(tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, "head -c 50000 /dev/zero"), ProgramLimits(30, 10_000))
    assert (ended.outcome, len(ended.output)) == (ProgramEnd.TOO_MUCH, 10_000)


async def test_who_stays_behind_with_the_output_open_keeps_nobody_waiting(tmp_path: Path) -> None:
    begun = time.monotonic()
    ended = await run_program(shell(tmp_path, "sleep 600 & echo $! > behind-pid; echo answer"), BOUNDS)
    assert (ended.outcome, ended.code, ended.output) == (ProgramEnd.EXITED, 0, b"answer\n")
    assert time.monotonic() - begun < BOUNDS.seconds
    assert len(pids(tmp_path)) == 2
    assert nobody_left(tmp_path)


async def test_a_cancelled_program_is_gone_when_the_cancellation_is_heard(tmp_path: Path) -> None:
    running = asyncio.create_task(run_program(shell(tmp_path, "sleep 600 & echo $! > behind-pid; sleep 600"), BOUNDS))
    await noted(tmp_path / "behind-pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(pids(tmp_path)) == 2
    assert nobody_left(tmp_path)


async def test_a_second_cancellation_waits_for_no_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_SECONDS", 600)
    stubborn = "trap 'echo asked > asked' TERM; while :; do sleep 0.1; done"
    running = asyncio.create_task(run_program(shell(tmp_path, stubborn), BOUNDS))
    await noted(tmp_path / "pid")
    running.cancel()
    await noted(tmp_path / "asked")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await nobody_stays(tmp_path)


async def test_what_is_cancelled_before_it_began_never_begins(tmp_path: Path) -> None:
    child = child_process._RunningProgram(shell(tmp_path, "sleep 600"))
    await child.end_process_group()
    child.start_program()
    child.close_files()
    assert pids(tmp_path) == []


async def test_where_the_system_does_not_tell_we_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    ended = await run_program(shell(tmp_path, "echo answer"), BOUNDS)
    assert ended == ProgramResult(ProgramEnd.EXITED, 0, b"answer\n", b"")


async def test_when_we_are_killed_nobody_stays(tmp_path: Path) -> None:
    ours = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, tmp_path)
    await noted(tmp_path / "pid")
    await noted(tmp_path / "other.pid")
    ours.kill()
    await ours.wait()
    await nobody_stays(tmp_path)


def test_the_plain_environment_holds_no_secret() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "k", "MAESTRO_WEBUI_PASSWORD": "p", "GITHUB_TOKEN": "t"}
    assert plain_environment(given) == {"PATH": "/bin", "LC_ALL": "C"}


if __name__ == "__main__":
    asyncio.run(run_program(shell(Path(sys.argv[1]), MANY), BOUNDS))

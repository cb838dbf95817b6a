"""The shell: begun in the folder, without keys, and gone afterwards."""

import asyncio
import os
from pathlib import Path

import pytest

from maestro.tools.base import ToolCaller, ToolFailure
from maestro.tools.files import RunShell

ENVIRONMENT = {**os.environ, "ANTHROPIC_API_KEY": "sk-secret", "MAESTRO_WEBUI_PASSWORD": "secret", "HOME": "/root"}


@pytest.fixture
def caller(tmp_path: Path) -> ToolCaller:
    return ToolCaller("job", 1, 1, tmp_path / "conversation")


async def shell(caller: ToolCaller, command: str, seconds: float = 30) -> str:
    return await RunShell(ENVIRONMENT, lambda: seconds).run({"command": command}, caller)


def alive(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


async def test_it_tells_code_output_and_errors(caller: ToolCaller) -> None:
    assert await shell(caller, "echo out; echo err >&2; exit 3") == "exit code 3\n--- output\nout\n\n--- errors\nerr\n"
    assert await shell(caller, "true") == "exit code 0\n(no output)"


async def test_it_begins_in_the_folder_which_keeps_its_files(caller: ToolCaller) -> None:
    await shell(caller, "echo kept > file; cd /")
    assert "kept" in await shell(caller, "pwd; cat file; echo $HOME")
    assert str(caller.folder.resolve()) in await shell(caller, "echo $HOME")


async def test_it_sees_no_key_and_reads_nothing_of_ours(caller: ToolCaller) -> None:
    told = await shell(caller, "env; cat")
    assert "secret" not in told
    assert "PATH=" in told


async def test_what_it_leaves_behind_is_ended(caller: ToolCaller) -> None:
    await shell(caller, "sleep 300 & echo $! > pid")
    assert not alive(caller.folder / "pid")


async def test_what_takes_too_long_is_ended_with_all_it_started(caller: ToolCaller) -> None:
    with pytest.raises(ToolFailure, match=r"ended after 1 seconds\.\n--- output\nbegun"):
        await shell(caller, "echo begun; sleep 300 & echo $! > pid; sleep 300", seconds=1)
    assert not alive(caller.folder / "pid")


async def test_a_cancelled_command_is_ended_with_all_it_started(caller: ToolCaller) -> None:
    caller.folder.mkdir()
    os.mkfifo(caller.folder / "ready")
    running = asyncio.create_task(shell(caller, "sleep 300 & echo $! > pid; echo > ready; sleep 300"))
    await asyncio.to_thread((caller.folder / "ready").read_text)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(caller.folder / "pid")


async def test_endless_output_is_ended(caller: ToolCaller) -> None:
    with pytest.raises(ToolFailure, match="wrote more than") as failure:
        await shell(caller, "yes")
    assert len(str(failure.value)) < 11_000


async def test_long_output_keeps_its_beginning_and_its_end(caller: ToolCaller) -> None:
    told = await shell(caller, "echo first; seq 20000; echo last")
    assert told.startswith("exit code 0\n--- output\nfirst\n1\n")
    assert told.endswith("20000\nlast\n")
    assert "characters were left out]" in told


async def test_a_command_that_is_none_is_a_failure(caller: ToolCaller) -> None:
    with pytest.raises(ToolFailure, match="cannot be started"):
        await shell(caller, "echo \0")
    assert (await shell(caller, "no-such-command")).startswith("exit code 127")

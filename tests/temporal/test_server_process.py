"""The process of a server: its watch, its record, and its end before that is written."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from temporal.server_process import (
    ServerConfig,
    ServerProcess,
    ServerRecord,
    Timing,
    find_process,
    read_process_from_proc,
    read_process_with_ps,
    read_record,
    start_watch_process,
)
from tests.support.forking import block_until_ended

ROOT = Path(__file__).parents[2]

DIES_TOO_EARLY = """
import asyncio, os, sys
from temporal.server_process import start_paused_process

async def main():
    with open(os.devnull, "ab") as nowhere:
        held = await start_paused_process(("/bin/sleep", "1000"), {}, nowhere)
    print(held.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_a_watch_ends_a_server_that_no_record_names_and_no_other(tmp_path: Path) -> None:
    config = ServerConfig(tmp_path, 1, 2, timing=Timing(orphaned=0.02, grace=0.1))
    database, file = config.database_path, config.record_path
    command = ("/bin/sh", "-c", "read _", "server", str(database))
    server = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    ServerRecord(pid=server.pid, started="", command=(), program="", port=1, ui_port=2).write_to(file)
    watch = await start_watch_process(server.pid, config)
    assert watch.stdin is not None
    watch.stdin.close()  # as when its Maestro is gone
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await server.wait()
    file.unlink()
    assert await server.wait() == -signal.SIGTERM
    await watch.wait()


async def test_a_server_that_ends_by_itself_while_it_is_ended_keeps_its_exit_code() -> None:
    codes = []
    for _ in range(20):
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        record = ServerRecord(pid=child.pid, started="", command=(), program="", port=1, ui_port=2)
        block_until_ended(child)
        await ServerProcess(record, child).end_process(5)
        codes.append(child.returncode)
    assert codes == [3] * 20


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "\xff"])
async def test_a_broken_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "temporal.json").write_text(text, encoding="latin-1")
    assert read_record(tmp_path / "temporal.json") is None


async def test_a_death_before_the_record_is_written_leaves_no_server() -> None:
    command = [sys.executable, "-c", DIES_TOO_EARLY]
    dead = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True)
    assert dead.returncode == -signal.SIGKILL
    seen = find_process(pid := int(dead.stdout))
    if seen is not None:
        record = ServerRecord(pid=pid, started=seen.started, command=(seen.command,), program="", port=1, ui_port=2)
        await asyncio.wait_for(ServerProcess(record).wait_for_end(), 10)


def test_both_ways_to_recognise_a_process_agree() -> None:
    by_ps = read_process_with_ps(os.getpid())
    assert by_ps == read_process_with_ps(os.getpid())
    assert by_ps is not None
    assert read_process_with_ps(2**22) is None
    if Path("/proc/self/stat").exists():
        by_proc = read_process_from_proc(os.getpid())
        assert by_proc is not None
        assert by_ps.command == by_proc.command.rstrip()

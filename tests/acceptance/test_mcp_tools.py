"""Tools of MCP servers: real servers, written with the official SDK, over both transports."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from maestro.child_process import plain_environment
from maestro.domain.settings.jobs import McpServerSettings
from maestro.domain.tools import ToolState
from maestro.llm.chat_format import PICTURES_OF_TOOLS
from maestro.tools.base import AsyncTool, ToolCaller, ToolFailure, ToolImage, ToolOutput
from maestro.tools.mcp_client import McpServers
from maestro.tools.registry import ToolRegistry, parse_arguments, run_tool
from tests.support.instance import running_instance, until
from tests.support.mcp_server import PICTURE
from tests.support.ports import free_port
from tests.support.tool_agents import agent_with
from tests.unit.architecture.source import ROOT

CALLER = ToolCaller("job", 1, 1, Path())
SERVER = (sys.executable, "-m", "tests.support.mcp_server")
KEY = "sk-secret-of-the-server"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def program(notes: Path, *words: str, name: str = "test", idempotent: Sequence[str] = ()) -> McpServerSettings:
    """Return a server that is a program of ours."""
    variables = {"NOTES": str(notes), "SERVER_KEY": KEY, "PYTHONPATH": str(ROOT)}
    environment = {name: SecretStr(value) for name, value in variables.items()}
    command, *args = words or SERVER
    return McpServerSettings(
        name=name, command=command, args=tuple(args), env=environment, idempotent=tuple(idempotent)
    )


@asynccontextmanager
async def tools_of(*servers: McpServerSettings) -> AsyncIterator[ToolRegistry]:
    """Serve the tools of these servers, all of them for everybody, and wait until they are there."""
    environment = plain_environment({**os.environ, "ANTHROPIC_API_KEY": "sk-ours"})
    tools = ToolRegistry([], [], McpServers(servers, environment))
    serving = asyncio.create_task(tools.keep_sources_open())
    try:
        await tools.wait_until_settled()
        yield tools
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def call(tools: ToolRegistry, name: str, arguments: str = "{}") -> str:
    """Call a tool the way a model does, and return its text."""
    made = await output(tools, name, arguments)
    assert isinstance(made, str)
    return made


async def output(tools: ToolRegistry, name: str, arguments: str = "{}") -> str | ToolOutput:
    """Call a tool the way a model does."""
    tool = tools.find_tool(name, agent_with([name]))
    assert isinstance(tool, AsyncTool)
    return await tool.run(parse_arguments(tool.spec.name, tool.spec.parameters, arguments), CALLER)


def offers(tools: ToolRegistry, name: str) -> bool:
    return bool(tools.list_tools(agent_with([name])))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


async def test_a_model_is_told_of_them_and_calls_them(notes: Path) -> None:
    with capture_logs() as logs:
        async with tools_of(program(notes, idempotent=["note"])) as tools:
            await until(lambda: offers(tools, "test_add"))
            (spec,) = tools.list_tools(agent_with(["test_add"]))
            assert spec.description == "Add two whole numbers.\nThey may be negative."
            assert '"required":["a","b"]' in spec.parameters
            assert await call(tools, "test_add", '{"a": 2, "b": -5}') == "-3"
            with pytest.raises(ToolFailure, match="b: 'x' is not of type 'integer'"):
                await call(tools, "test_add", '{"a": 2, "b": "x"}')
            with pytest.raises(ToolFailure, match="Error executing tool fail"):
                await call(tools, "test_fail")
            shown = await output(tools, "test_picture")
            assert isinstance(shown, ToolOutput)
            assert shown.text == "[image, image/png]\n[image, image/png: cannot be shown]\na word"
            assert shown.pictures == (ToolImage(PICTURE, "image/png"),)
            assert await call(tools, "test_odd_name") == "odd"

            flags = {
                name: tools.find_tool(f"test_{name}", agent_with([f"test_{name}"]))
                for name in ("add", "note", "setting", "fail")
            }
            assert {name: (tool.read_only, tool.idempotent) for name, tool in flags.items()} == {
                "add": (True, True),
                "note": (False, True),
                "setting": (False, True),
                "fail": (False, False),
            }
            assert await call(tools, "test_setting", '{"name": "SERVER_KEY"}') == KEY
            assert await call(tools, "test_setting", '{"name": "ANTHROPIC_API_KEY"}') == "(not set)"

            await call(tools, "test_grow")
            await until(lambda: offers(tools, "test_grown"))
            assert await call(tools, "test_grown") == "grown"
    assert any(entry.get("tool") == "odd_name" and "left out" in entry["event"] for entry in logs)
    assert any(entry.get("text") == "a word with *** in it" for entry in logs)
    assert KEY not in str(logs)


async def test_a_cancelled_call_is_cancelled_at_the_server_and_others_go_on(notes: Path) -> None:
    async with tools_of(program(notes)) as tools:
        await until(lambda: offers(tools, "test_slow"))
        slow = asyncio.create_task(call(tools, "test_slow"))
        await until(lambda: lines(notes) == ["begun"])
        assert await call(tools, "test_add", '{"a": 1, "b": 1}') == "2"
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await until(lambda: lines(notes) == ["begun", "cancelled"])
        assert await call(tools, "test_add", '{"a": 1, "b": 1}') == "2"


async def test_a_server_that_dies_fails_the_call_once_and_comes_back(notes: Path) -> None:
    async with tools_of(program(notes)) as tools:
        await until(lambda: offers(tools, "test_die"))
        with pytest.raises(ToolFailure, match="ended the connection during the call"):
            await call(tools, "test_die")
        await until(lambda: not offers(tools, "test_add"))
        with pytest.raises(ToolFailure, match="test_add is not available at the moment"):
            await call(tools, "test_add", '{"a": 1, "b": 1}')
        await until(lambda: offers(tools, "test_add"))
        assert await call(tools, "test_add", '{"a": 1, "b": 1}') == "2"
    assert lines(notes) == ["died"]


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "behind a shell"])
async def test_nothing_of_a_program_is_left_when_we_end(notes: Path, wrapped: bool) -> None:
    words = ("/bin/sh", "-c", '"$@"; true', "sh", *SERVER) if wrapped else SERVER
    async with tools_of(program(notes, *words)) as tools:
        await until(lambda: offers(tools, "test_spawn"))
        child = int(await call(tools, "test_spawn"))
        assert alive(child)
    await until(lambda: not alive(child))


async def test_a_slow_server_holds_up_nobody_and_is_ended_too(notes: Path, tmp_path: Path) -> None:
    silent = program(notes, "/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 300", name="silent")
    began = time.monotonic()
    async with tools_of(silent, program(notes)) as tools:
        assert time.monotonic() - began < 30
        await until(lambda: offers(tools, "test_add"))
        assert await call(tools, "test_add", '{"a": 1, "b": 1}') == "2"
        await tools.wait_until_settled()
    await until(lambda: not alive(int((tmp_path / "pid").read_text())))


async def test_a_server_that_is_none_is_reported_with_the_reason_and_stops_nothing(notes: Path) -> None:
    with capture_logs() as logs:
        servers = [program(notes, "no-such-program", name="a"), program(notes, "/bin/echo", "hello", name="b")]
        async with tools_of(*servers, McpServerSettings(name="c", url="http://127.0.0.1:9/mcp")) as tools:
            assert tools.list_tools(agent_with(["a_x", "b_x", "c_x"])) == ()
    away = {entry["server"]: entry["reason"] for entry in logs if "is not connected" in entry["event"]}
    assert "no-such-program" in away["a"]
    assert "closed" in away["b"]
    assert "Connect" in away["c"]


@asynccontextmanager
async def http_server(port: int, notes: Path) -> AsyncIterator[None]:
    """Run the server over HTTP, and wait until it listens."""
    environment = {**os.environ, "NOTES": str(notes), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*SERVER, "--port", str(port), env=environment, stdout=-3, stderr=-3)
    try:
        await until(lambda: _listens(port))
        yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


async def test_a_server_over_http_is_used_and_found_again_after_a_restart(notes: Path) -> None:
    port = free_port()
    server = McpServerSettings(
        name="web", url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": SecretStr("Bearer t0ken")}
    )
    async with http_server(port, notes), tools_of(server) as tools:
        await until(lambda: offers(tools, "web_add"))
        assert await call(tools, "web_add", '{"a": 2, "b": 3}') == "5"
        assert await call(tools, "web_note", '{"text": "once"}') == "noted once"
        with pytest.raises(ToolFailure, match=r"ended the connection|refused the call"):
            await call(tools, "web_die")
        async with http_server(port, notes):
            await until(lambda: offers(tools, "web_add"))
            assert await call(tools, "web_add", '{"a": 2, "b": 3}') == "5"
    assert lines(notes) == ["once", "died"]


async def test_headers_of_the_configuration_go_with_every_request() -> None:
    heads: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    with capture_logs() as logs:
        async with (
            listening,
            tools_of(McpServerSettings(name="web", url=url, headers={"Authorization": SecretStr("Bearer t0ken")})),
        ):
            await until(lambda: bool(heads))
    assert all("authorization: bearer t0ken" in head for head in heads)
    assert "t0ken" not in str(logs)


async def test_an_agent_answers_with_what_a_server_of_the_configuration_says(notes: Path, tmp_path: Path) -> None:
    server = {
        "name": "test",
        "command": SERVER[0],
        "args": SERVER[1:],
        "env": {"NOTES": str(notes), "PYTHONPATH": str(ROOT)},
    }
    tools = {
        "default": ["test_add", "test_spawn", "test_picture", "write_file", "run_shell"],
        "files": True,
        "shell": True,
    }
    async with running_instance(tmp_path, tools={**tools, "mcp": [server]}) as maestro:
        async with maestro.client("general") as client:
            calls = (
                ("test_add", '{"a": 40, "b": 2}'),
                ("write_file", '{"path": "a.txt", "content": "kept"}'),
                ("test_spawn", "{}"),
                ("test_picture", "{}"),
            )
            maestro.llm.script("work", calls=calls, rounds=0)
            shell = ("run_shell", '{"command": "cat a.txt"}')
            maestro.llm.script(PICTURES_OF_TOOLS, calls=(shell,), rounds=0)
            maestro.llm.script(PICTURES_OF_TOOLS, reply="done", rounds=1)
            await client.ask("hello")
            while "test_add" not in maestro.llm.requests[-1].tools:  # a busy machine takes long to start a server
                await client.ask("hello")
            assert await client.ask("work") == "done"
        last = maestro.llm.requests[-1]
        results = dict(last.results)
        assert (results["test_add"], results["run_shell"]) == ("42", "exit code 0\n--- output\nkept")
        assert last.images == [PICTURE], "in the last round, and in each before it"
        assert alive(int(results["test_spawn"]))
        assert [file.parent.parent.name for file in maestro.data_dir.rglob("a.txt")] == ["workspaces"]
    await until(lambda: not alive(int(results["test_spawn"])))


async def test_a_program_that_writes_anything_but_messages_is_given_up_soon(notes: Path) -> None:
    endless = program(
        notes, sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('y\\n' * 1000)", name="odd"
    )
    with capture_logs() as logs:
        async with tools_of(program(notes), endless) as tools:
            assert await call(tools, "test_add", '{"a": 1, "b": 2}') == "3"
            await until(lambda: any("tried again" in entry["event"] for entry in logs), what="an end of it")
    assert len(logs) < 400


async def test_a_program_that_stands_still_holds_up_neither_a_call_nor_our_end(notes: Path) -> None:
    """It is stopped as by a debugger: it reads nothing, and nobody tells us."""
    async with tools_of(program(notes)) as tools:
        pid = int(await call(tools, "test_pid"))
        os.kill(pid, signal.SIGSTOP)
        tool = tools.find_tool("test_note", agent_with(["test_note"]))
        assert isinstance(tool, AsyncTool)
        async with asyncio.timeout(10):
            said = await asyncio.gather(*(run_tool(tool, {"text": "x" * 200_000}, CALLER, 1) for _ in range(3)))
        assert all(one.state is ToolState.FAILED for one in said)
    assert not alive(pid)

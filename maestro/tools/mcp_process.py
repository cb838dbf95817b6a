"""An MCP server as a child process: messages over its standard input and output, its error output in the log.

The SDK's own transport leaves the children of a program that ends by itself, and writes the program's errors to
Maestro's error output. Here the whole process group ends with the session, however the session ends.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

GRACE_SECONDS = 2.0
"""How long a program may take to end after its input is closed, and again after SIGTERM."""
MAX_MESSAGE_BYTES = 32_000_000
LOGGED_CHARS = 500

_READ_BYTES = 64 * 1024
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

_log = structlog.get_logger(__name__)

_Incoming = MemoryObjectSendStream[SessionMessage | Exception]
_Outgoing = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@dataclass(frozen=True)
class Program:
    """A program to start; ``clean`` redacts its error output, ``ended`` is called when its output ends."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    clean: Callable[[str], str]
    ended: Callable[[], None]


@asynccontextmanager
async def run_program(program: Program) -> AsyncIterator[Streams]:
    """Start the program and yield the streams of its messages; raises ``OSError`` when it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *program.words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(program.environment),
        start_new_session=True,
    )
    incoming_end, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_end = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with incoming_end, incoming, outgoing, outgoing_end, anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, incoming_end, program)
            tasks.start_soon(_write_messages, process, outgoing_end)
            tasks.start_soon(_log_errors, process, program)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end_program(process)


async def _read_messages(process: asyncio.subprocess.Process, incoming: _Incoming, program: Program) -> None:
    """Forward the program's messages, one per line; skip other lines, up to a limit."""
    assert process.stdout is not None
    rest, odd = b"", 0
    try:
        async with incoming:
            while (chunk := await process.stdout.read(_READ_BYTES)) and len(rest) < MAX_MESSAGE_BYTES:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(bytes.strip, lines):
                    message = _parse_message(line)
                    if message is not None:
                        await incoming.send(message)
                        continue
                    odd += 1
                    if odd > 100:  # A program that prints more such lines does not speak MCP.
                        _log.warning("an MCP server writes no messages to its output", server=program.name)
                        return
    except _GONE:
        return
    finally:
        program.ended()


def _parse_message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        _log.warning("an MCP server wrote a line that is no message to its output")
        return None


async def _write_messages(process: asyncio.subprocess.Process, outgoing: _Outgoing) -> None:
    assert process.stdin is not None
    with suppress(*_GONE):
        async for message in outgoing:
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _log_errors(process: asyncio.subprocess.Process, program: Program) -> None:
    """Log the first lines of the program's error output; read and discard the rest, so that the program can go on."""
    assert process.stderr is not None
    rest, logged = b"", 0
    while chunk := await process.stderr.read(_READ_BYTES):
        *lines, rest = (rest[-_READ_BYTES:] + chunk).split(b"\n")
        texts = [text for line in lines if (text := program.clean(line.decode(errors="replace").strip()))]
        for text in texts[: max(0, 100 - logged)]:
            _log.info("an MCP server wrote to its error output", server=program.name, text=text[:LOGGED_CHARS])
        logged += len(texts)


async def _end_program(process: asyncio.subprocess.Process) -> None:
    """Close the program's input, as MCP demands; after a grace time send SIGTERM, then SIGKILL to its process group."""
    assert process.stdin is not None
    process.stdin.close()
    await _wait_for_exit(process)
    if process.returncode is None:
        _signal_group(process, signal.SIGTERM)
        await _wait_for_exit(process)
    _signal_group(process, signal.SIGKILL)
    await _wait_for_exit(process)
    # asyncio closes a pipe only after its last byte is read.
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            for pipe in filter(None, (process.stdout, process.stderr)):
                while await pipe.read(_READ_BYTES):
                    pass


async def _wait_for_exit(process: asyncio.subprocess.Process) -> None:
    """Return when the program has exited, or after the grace time; child processes may hold the pipes open."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            while process.returncode is None:  # noqa: ASYNC110 - Process.wait would wait for the pipes too
                await asyncio.sleep(0.02)


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # MacOS raises PermissionError when the group has only zombie processes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

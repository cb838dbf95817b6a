"""Starts, adopts, supervises and stops the embedded Temporal server.

If a killed Maestro leaves its server running, the next Maestro adopts the server.
"""

import asyncio
import errno
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import httpx
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import MaestroError, PortTaken, TemporalUnavailable
from temporal.namespace import ensure_search_attributes
from temporal.server_process import (
    ENVIRONMENT,
    HOST,
    NAMESPACE,
    Child,
    ServerConfig,
    ServerProcess,
    ServerRecord,
    Timing,
    end_orphaned_watch,
    end_watch,
    find_binary,
    find_process,
    open_log,
    program_version,
    read_last_line,
    read_record,
    release_paused_process,
    server_command,
    start_paused_process,
    start_watch_process,
)

_HEALTH_TIMEOUT = timedelta(seconds=2)

__all__ = ["NAMESPACE", "EmbeddedServer", "ServerConfig", "Timing"]

KILLS_AT_START = 3
"""How often the server's start is retried after the server was killed before it was ready."""
NOTICED_WITHIN = 1.0
"""The most seconds between the closing of a process's sockets and the detection of the process's end."""
LOOK_SECONDS = 0.05
"""Seconds between two requests that ask whether the server is ready."""


async def wait_until_ready(address: str, ui_url: str) -> Client:
    """Return a connected client when the server answers all kinds of requests; the caller sets the time limit."""
    client = await Client.connect(address, namespace=NAMESPACE, lazy=True)
    async with httpx.AsyncClient(timeout=_HEALTH_TIMEOUT.total_seconds(), trust_env=False) as http:
        while True:
            # The SDK raises RuntimeError when the first connection fails.
            with suppress(RPCError, RuntimeError, httpx.HTTPError):
                healthy = await client.service_client.check_health(timeout=_HEALTH_TIMEOUT)
                request = DescribeNamespaceRequest(namespace=NAMESPACE)
                await client.workflow_service.describe_namespace(request, timeout=_HEALTH_TIMEOUT)
                page = await http.get(ui_url)
                if healthy and page.is_success:
                    return client
            await asyncio.sleep(LOOK_SECONDS)


class _KilledAtStart(TemporalUnavailable):
    """Raised when the server was killed before it was healthy, by a user or for lack of memory."""

    def __init__(self) -> None:
        super().__init__("The Temporal server was killed while it started.")


class EmbeddedServer:
    """A Temporal server on this machine, with its data in the data folder.

    The caller holds the lock of the data folder from before ``start`` until after ``stop``: the lock makes it safe to
    end a server that an earlier run left behind.
    """

    def __init__(self, config: ServerConfig, report: Callable[[str], None]) -> None:
        """``report`` is called on the event loop with one sentence for each change of the server's state."""
        self._config = config
        self._report = report
        self._process: ServerProcess | None = None
        self._supervision: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Host and port of the server's gRPC service."""
        return f"{HOST}:{self._config.port}"

    @property
    def ui_url(self) -> str:
        """The address of the Temporal Web UI, without a slash at the end."""
        return f"http://{HOST}:{self._config.ui_port}"

    @property
    def pid(self) -> int | None:
        """The process id of the server last started or adopted; None before ``start`` and after ``stop``."""
        return self._process.record.pid if self._process else None

    async def start(self) -> None:
        """Adopt the server of an earlier run or start a server; return when the server is healthy and supervised.

        Raises PortTaken, and TemporalUnavailable when the program is missing, ends at once or does not become healthy.
        After an error, no server that this call started is left running; after a cancellation, no server at all.
        """
        command, program = await asyncio.to_thread(self._server_command)
        self._process = await self._adopt_running_server(command, program) or await self._launch_with_retries(
            command, program
        )
        self._supervision = asyncio.create_task(self._restart_until_stopped(), name="temporal-server")

    async def stop(self) -> None:
        """End the supervision and the server, adopted or not; return when the server's process has ended."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)
            self._supervision = None
        if self._process is not None:
            await self._end_process(self._process)
            self._process = None

    def _server_command(self) -> tuple[tuple[str, ...], str]:
        binary = find_binary()
        return server_command(self._config, binary), program_version(binary)

    async def _adopt_running_server(self, command: tuple[str, ...], program: str) -> ServerProcess | None:
        """Return the healthy server of an earlier run with the same command line; end any other and return None."""
        record = await asyncio.to_thread(read_record, self._config.record_path)
        if record is None or not await asyncio.to_thread(record.is_running):
            return None
        left_behind = ServerProcess(record)
        if not await asyncio.to_thread(record.matches_command):
            # The server was killed together with Maestro: its ports stay open until its last thread has ended.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.timing.adopted_ready):
                    await left_behind.wait_for_end()
            return None
        if (record.command, record.program) != (command, program):
            self._report(f"Replacing the Temporal server of an earlier run (pid {record.pid}): its settings differ.")
        elif await self._is_healthy(left_behind):
            self._report(f"Using the Temporal server of an earlier run (pid {record.pid}) at {self.address}.")
            return await self._replace_watch_process(record)
        else:
            self._report(f"Replacing the Temporal server of an earlier run (pid {record.pid}): it does not answer.")
        await self._end_process(left_behind)
        return None

    async def _replace_watch_process(self, record: ServerRecord) -> ServerProcess:
        """Return an adopted server with a new watch process; the old one still watches for an ended Maestro."""
        await asyncio.to_thread(end_orphaned_watch, record, self._config.database_path)
        try:
            watch = await start_watch_process(record.pid, self._config)
            ours = record.model_copy(update={"watch": watch.pid})
            await asyncio.to_thread(ours.write_to, self._config.record_path)
        except BaseException:  # Also after a cancellation, no server may run without supervision.
            await self._end_process(ServerProcess(record))
            raise
        return ServerProcess(ours, watch=watch)

    async def _is_healthy(self, left_behind: ServerProcess) -> bool:
        try:
            async with asyncio.timeout(self._config.timing.adopted_ready):
                await self._wait_until_ready()
        except (TimeoutError, TemporalUnavailable):
            return False
        except asyncio.CancelledError:  # Maestro's start was cancelled: end the server that it took over
            await self._end_process(left_behind)
            raise
        return True

    async def _launch_with_retries(self, command: tuple[str, ...], program: str) -> ServerProcess:
        """Start a server by ``_launch_server``, and retry a few times if the server is killed during its start."""
        for _ in range(KILLS_AT_START):
            try:
                return await self._launch_server(command, program)
            except _KilledAtStart as error:
                self._report(f"{error} Starting it again.")
        return await self._launch_server(command, program)

    async def _launch_server(self, command: tuple[str, ...], program: str) -> ServerProcess:
        """Start a server and return it when it is healthy; after a failure or cancellation, no server runs."""
        await asyncio.to_thread(self._check_ports)
        log = await asyncio.to_thread(open_log, self._config.log_path)
        with log:
            offset = log.tell()
            child = await start_paused_process(command, ENVIRONMENT, log)
        process: ServerProcess | None = None
        watch: Child | None = None
        try:
            watch = await start_watch_process(child.pid, self._config)
            record = await asyncio.to_thread(self._save_record, (child.pid, watch.pid), command, program)
            process = ServerProcess(record, child, watch)
            await release_paused_process(child)
            self._report(f"Starting the Temporal server (pid {child.pid}) at {self.address}.")
            await self._wait_until_healthy(process, offset)
        except BaseException:  # A cancelled start must also leave no server running.
            if process is not None:
                await self._end_process(process)
                raise
            if child.returncode is None:
                child.kill()  # The process has not executed the server yet, so there is nothing to close.
            await child.wait()
            if watch is not None:
                await end_watch(watch)
            raise
        self._report(f"The Temporal server is ready at {self.address}; its Web UI is at {self.ui_url}.")
        return process

    def _save_record(self, pids: tuple[int, int], command: tuple[str, ...], program: str) -> ServerRecord:
        pid, watch = pids
        seen = find_process(pid)
        if seen is None:
            raise _KilledAtStart
        ports = {"port": self._config.port, "ui_port": self._config.ui_port}
        record = ServerRecord(pid=pid, started=seen.started, command=command, program=program, watch=watch, **ports)
        record.write_to(self._config.record_path)
        return record

    async def _wait_until_healthy(self, process: ServerProcess, offset: int) -> None:
        ended = asyncio.create_task(process.wait_for_end())
        ready = asyncio.create_task(self._wait_until_ready())
        limit = self._config.timing.ready
        try:
            await asyncio.wait({ended, ready}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            # The error may mean that the server has ended; that is noticed a moment later.
            if ready.done() and ready.exception() is not None:
                await asyncio.wait({ended}, timeout=NOTICED_WITHIN)
            if ended.done():
                raise (_KilledAtStart if process.was_killed else await asyncio.to_thread(self._early_end_error, offset))
            if not ready.done():
                raise TemporalUnavailable(
                    f"The Temporal server did not become healthy within {limit:g} seconds. See {self._config.log_path}."
                )
            await ready
        finally:
            ended.cancel()
            ready.cancel()
            await asyncio.gather(ended, ready, return_exceptions=True)

    async def _wait_until_ready(self) -> None:
        """Return when the server has all search attributes; raises TemporalUnavailable if they cannot be added.

        The server's flags add attributes only to a new database, so the attributes of a newer release are added here.
        """
        while True:
            client = await wait_until_ready(self.address, self.ui_url)
            # A server that is paused or overloaded for a moment; the caller sets the time limit.
            with suppress(RPCError):
                await ensure_search_attributes(client, NAMESPACE)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _restart_until_stopped(self) -> None:
        """Restart the server whenever it ends, after a delay that grows while the server ends soon after each start."""
        timing = self._config.timing
        clock = asyncio.get_running_loop().time
        delay = timing.first_restart
        while True:
            assert self._process is not None
            since = clock()
            await self._process.wait_for_end()
            await self._process.end_watch_process()
            if clock() - since >= timing.stable:
                delay = timing.first_restart
            self._report(f"The Temporal server (pid {self.pid}) has ended; starting it again in {delay:g} s.")
            delay = await self._restart_server(delay)

    async def _restart_server(self, delay: float) -> float:
        """Start the server after ``delay`` seconds, with retries; return the delay in seconds for its next restart."""
        while True:
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._config.timing.longest_restart)
            try:
                # The program is looked up at each restart: a new release may have been installed while the server ran.
                command, program = await asyncio.to_thread(self._server_command)
                self._process = await self._launch_server(command, program)
            except (MaestroError, OSError) as error:  # The cause, such as a full disk, may pass.
                self._report(f"{error} Trying again in {delay:g} s.")
            else:
                return delay

    async def _end_process(self, process: ServerProcess) -> None:
        await process.end_process(self._config.timing.grace)
        await asyncio.to_thread(self._config.record_path.unlink, missing_ok=True)

    def _check_ports(self) -> None:
        config = self._config
        for port, setting in ((config.port, config.port_setting), (config.ui_port, config.ui_port_setting)):
            with socket.socket() as probe:
                # The server also sets SO_REUSEADDR: lingering connections of an earlier run do not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise port_taken_error(port, setting, error) from error

    def _early_end_error(self, offset: int) -> MaestroError:
        """Return the error for a server that ended before it was healthy, with the last line of its log."""
        line = read_last_line(self._config.log_path, offset)
        if "can't set frontend port" in line:
            return port_taken_error(self._config.port, self._config.port_setting)
        if "can't set UI port" in line:
            return port_taken_error(self._config.ui_port, self._config.ui_port_setting)
        # A full disk may leave the log empty, so the free space is checked: below 4 MB the database cannot grow.
        if shutil.disk_usage(self._config.database_path.parent).free < 4 * 1024**2:
            return TemporalUnavailable(
                f"The Temporal server ended at once: the disk of {self._config.data_dir} is full. Free some space on "
                "it, or move the folder and set dataDir to its new place."
            )
        return TemporalUnavailable(
            f"The Temporal server ended at once: {line or 'no output'} (full log: {self._config.log_path}). "
            f"If {self._config.database_path} is damaged or unreadable, move it away together with its -wal and "
            "-shm files and start again: open jobs are resumed from Maestro's own database."
        )


def port_taken_error(port: int, setting: str, error: OSError | None = None) -> PortTaken:
    if error is not None and error.errno != errno.EADDRINUSE:
        return PortTaken(f"Port {port} ({setting}) cannot be used: {error.strerror}. Choose another port there.")
    return PortTaken(
        f"Port {port} ({setting}) is already in use by another program. Stop that program or choose another port there."
    )

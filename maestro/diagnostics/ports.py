"""The installation that ``maestro doctor`` examines, and the checks of its ports."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.installation.data_folder import FolderHolder
from maestro.settings import Settings, Survey
from temporal.server_process import HOST, ServerRecord

PROC = Path("/proc")
TABLES = ("net/tcp", "net/tcp6")
LISTEN_STATE = "0A"

ASK_SECONDS = 2.0


@dataclass(frozen=True)
class Examined:
    """The installation that ``maestro doctor`` examines.

    ``holder`` is the process that uses the data folder, ``server`` the running embedded Temporal server of the folder.
    """

    survey: Survey
    environment: Mapping[str, str]
    holder: FolderHolder = field(default_factory=FolderHolder)
    server: ServerRecord | None = None

    @property
    def settings(self) -> Settings:
        """The settings, without the invalid entries."""
        return self.survey.settings


def fine(check: str, found: str) -> Diagnosis:
    """Return a diagnosis that needs no action."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.FINE, found=found)


def note(check: str, found: str, fix: str = "") -> Diagnosis:
    """Return a diagnosis for information; ``fix`` is an optional action."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


def broken(check: str, found: str, fix: str) -> Diagnosis:
    """Return a diagnosis of a fault that keeps Maestro from working."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.BROKEN, found=found, fix=fix)


@dataclass(frozen=True)
class PortListener:
    """A process that listens on a port, and the name of its program."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def find_listener(port: int) -> PortListener | None:
    """Return the process that listens on the port; None if there is none, or if this user may not see it."""
    sockets = {f"socket:[{inode}]" for table in TABLES for inode in _listener_inodes(PROC / table, port)}
    if not sockets:
        return None
    for process in PROC.glob("[0-9]*"):
        if any(target in sockets for target in _open_files(process)):
            try:
                name = (process / "comm").read_text().strip()
            except OSError:
                name = ""
            return PortListener(int(process.name), name or "a program")
    return None


def _listener_inodes(table: Path, port: int) -> Iterator[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for fields in (line.split() for line in lines):
        if fields[3] == LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        for file in os.scandir(process / "fd"):
            yield os.readlink(file.path)
    except OSError:  # The inspected process belongs to another user, or has just ended.
        return


@dataclass(frozen=True)
class PortUse:
    """A server of Maestro: its name, its address, the settings that change the port, and its health check's path."""

    name: str
    host: str
    port: int
    settings: str
    health: str = ""

    @property
    def url(self) -> str:
        """The address of the server's health check."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.health}"


def port_uses(settings: Settings) -> Iterator[PortUse]:
    """Yield every server of Maestro that would listen on this machine."""
    webui, web, temporal, health = settings.webui, settings.web, settings.temporal, settings.health
    if webui.enabled:
        yield PortUse("dashboard and API", webui.host, webui.port, "webui.port (--port)", "/healthz")
    if web.enabled:
        yield PortUse("web connector", web.host, web.port, "web.port (--web-port)", "/health")
    if temporal.embedded:
        yield PortUse("Temporal server", HOST, temporal.port, "temporal.port (--temporal-port)")
        yield PortUse("Temporal Web UI", HOST, temporal.ui_port, "temporal.uiPort (--temporal-ui-port)")
    else:
        worker, connect = "health.workerPort (--health-port)", "health.connectPort (--health-port)"
        yield PortUse("health of the worker", health.host, health.worker_port, worker, "/healthz")
        yield PortUse("health of connectors", health.host, health.connect_port, connect, "/healthz")


async def check_ports(subject: Examined) -> list[Diagnosis]:
    """Return a diagnosis for each port that Maestro uses."""
    uses = tuple(port_uses(subject.settings))
    return list(await asyncio.gather(*(_diagnose_port(subject, use, uses) for use in uses)))


async def _diagnose_port(subject: Examined, use: PortUse, uses: Sequence[PortUse]) -> Diagnosis:
    check = f"port {use.port}"
    others = [other.name for other in uses if other.port == use.port and other is not use]
    if others:
        found = f"{use.name}: the same port as {', '.join(others)}"
        return broken(check, found, f"Choose another port with {use.settings}.")
    error = await asyncio.to_thread(_bind_error, use)
    if error is None:
        if subject.holder.running and not subject.holder.shared:
            fix = "If that Maestro was started with other ports, give `maestro doctor` the same options."
            return note(check, f"{use.name}: free, although the data folder is held by {subject.holder}", fix)
        return fine(check, f"{use.name}: free")
    if error.errno != errno.EADDRINUSE:
        found = f"{use.name}: {use.host}:{use.port} cannot be used: {error.strerror}"
        return broken(check, found, f"Set {use.settings}, and its host, to values that this user may use.")
    process = await asyncio.to_thread(find_listener, use.port)
    return _diagnose_taken_port(subject, use, process, bool(use.health) and await is_healthy(use))


def _diagnose_taken_port(subject: Examined, use: PortUse, process: PortListener | None, is_maestro: bool) -> Diagnosis:
    check, server = f"port {use.port}", subject.server
    pid = subject.holder.pid
    # With a Temporal cluster, or if the listening process is unknown, an answer from any Maestro suffices.
    uses_this_folder = not subject.settings.temporal.embedded or (
        subject.holder.running and (pid is None or process is None or process.pid == pid)
    )
    if is_maestro and uses_this_folder:
        return fine(check, f"{use.name}: served by the running Maestro")
    if use.health and process is not None and process.pid == pid:
        late = f"{use.name}: served by the running Maestro, which did not answer within {ASK_SECONDS:g} s"
        return note(check, late, "If it stays so, look at the log and at the load of this machine.")
    if not use.health and server is not None and use.port in (server.port, server.ui_port):
        return fine(check, f"{use.name}: served by this folder's own Temporal server")
    by = str(process) if process else "another program"
    if is_maestro:
        by = f"a Maestro on another data folder{f', process {process.pid}' if process else ''}"
    return broken(
        check, f"{use.name}: taken by {by}", f"Stop that program, or choose another port with {use.settings}."
    )


def _bind_error(use: PortUse) -> OSError | None:
    """Return the error that a server would get at this address; the probe binds without listening for clients."""
    try:
        found = socket.getaddrinfo(use.host, use.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error
    errors = [_try_bind(family, address) for family, _, _, _, address in found]
    relevant = [error for error in errors if error and error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)]
    return next(iter(relevant), None) or (errors[0] if all(errors) else None)


def _try_bind(family: socket.AddressFamily, address: tuple[object, ...]) -> OSError | None:
    try:
        with socket.socket(family) as probe:
            # As in the servers: closed connections of an earlier run (TIME_WAIT) must not count as a listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


async def is_healthy(use: PortUse) -> bool:
    """Tell whether a server answers the health check as a healthy Maestro does."""
    try:
        async with httpx.AsyncClient(timeout=ASK_SECONDS, trust_env=False) as http:
            answer = (await http.get(use.url)).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("status") == "ok"

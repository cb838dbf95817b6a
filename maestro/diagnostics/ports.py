"""The checks of ports: free, or used by which process."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from maestro.diagnostics.subject import Examined, broken, fine, note
from maestro.domain.health import Diagnosis
from maestro.settings import Settings
from temporal.server_process import HOST

PROC = Path("/proc")
TABLES = ("net/tcp", "net/tcp6")
LISTEN_STATE = "0A"

ASK_SECONDS = 2.0


@dataclass(frozen=True)
class PortListener:
    """A process and the name of its program."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def listener(port: int) -> PortListener | None:
    """Return the process that listens on the port; None when there is none, or this user may not see it."""
    sockets = {f"socket:[{inode}]" for table in TABLES for inode in _inodes(PROC / table, port)}
    if not sockets:
        return None
    for process in PROC.glob("[0-9]*"):
        if any(target in sockets for target in _open_files(process)):
            return PortListener(int(process.name), _name(process))
    return None


def _inodes(table: Path, port: int) -> Iterator[str]:
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
    except OSError:  # a process of another user, or one that has just ended
        return


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip() or "a program"
    except OSError:
        return "a program"


@dataclass(frozen=True)
class PortUse:
    """A server that listens: its name, its address, the settings of the address, and the path of its health check."""

    name: str
    host: str
    port: int
    settings: str
    health: str = ""

    @property
    def check(self) -> str:
        """The name of its check."""
        return f"port {self.port}"

    @property
    def url(self) -> str:
        """The address of its health check."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.health}"


def port_uses(settings: Settings) -> Iterator[PortUse]:
    """Yield every server that would listen on this machine."""
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


async def ports(subject: Examined) -> list[Diagnosis]:
    """One line for each port."""
    places = tuple(port_uses(subject.settings))
    return list(await asyncio.gather(*(_port(subject, place, places) for place in places)))


async def _port(subject: Examined, place: PortUse, places: Sequence[PortUse]) -> Diagnosis:
    others = [other.name for other in places if other.port == place.port and other is not place]
    if others:
        found = f"{place.name}: the same port as {', '.join(others)}"
        return broken(place.check, found, f"Choose another port with {place.settings}.")
    obstacle = await asyncio.to_thread(_obstacle, place)
    if obstacle is None:
        return _free(subject, place)
    if obstacle.errno != errno.EADDRINUSE:
        found = f"{place.name}: {place.host}:{place.port} cannot be used: {obstacle.strerror}"
        return broken(place.check, found, f"Set {place.settings} to a port, and its host to an address, of your own.")
    who = await asyncio.to_thread(listener, place.port)
    maestro = bool(place.health) and await answers(place)
    return _taken(subject, place, who, maestro)


def _free(subject: Examined, place: PortUse) -> Diagnosis:
    if subject.holder.running and not subject.holder.shared:
        fix = "If it was started with other ports, give `maestro doctor` the same options."
        return note(place.check, f"{place.name}: free, although the data folder is held by {subject.holder}", fix)
    return fine(place.check, f"{place.name}: free")


def _taken(subject: Examined, place: PortUse, who: PortListener | None, maestro: bool) -> Diagnosis:
    by = str(who) if who else "another program"
    if maestro and _ours(subject, who):
        return fine(place.check, f"{place.name}: served by the running Maestro")
    if not place.health and _server(subject, place):
        return fine(place.check, f"{place.name}: served by this folder's own Temporal server")
    if maestro:
        by = f"a Maestro on another data folder{f', process {who.pid}' if who else ''}"
    return broken(
        place.check, f"{place.name}: taken by {by}", f"Stop that program, or choose another port with {place.settings}."
    )


def _ours(subject: Examined, who: PortListener | None) -> bool:
    """Say whether the Maestro that answers uses this data folder.

    On a cluster, or if the listening process is hidden, an answer from any Maestro suffices.
    """
    if not subject.settings.temporal.embedded:
        return True
    pid = subject.holder.pid
    return subject.holder.running and (pid is None or who is None or who.pid == pid)


def _server(subject: Examined, place: PortUse) -> bool:
    """Say whether the port belongs to the server that was started on this data folder."""
    server = subject.server
    return server is not None and place.port in (server.port, server.ui_port)


def _obstacle(place: PortUse) -> OSError | None:
    """Return the error that listening there would meet; the probe binds without listening, so no client can connect."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error
    refusals = [_refusal(family, address) for family, _, _, _, address in found]
    telling = [error for error in refusals if error and error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)]
    return next(iter(telling), None) or (refusals[0] if all(refusals) else None)


def _refusal(family: socket.AddressFamily, address: tuple[object, ...]) -> OSError | None:
    try:
        with socket.socket(family) as probe:
            # The servers set SO_REUSEADDR too: lingering connections of an earlier run must not count as a listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


async def answers(place: PortUse) -> bool:
    """Say whether the listening server reports itself healthy in Maestro's format."""
    try:
        async with httpx.AsyncClient(timeout=ASK_SECONDS, trust_env=False) as http:
            answer = (await http.get(place.url)).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("status") == "ok"

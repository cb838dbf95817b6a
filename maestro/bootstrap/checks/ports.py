"""Whether the ports are free, or held by the Maestro that runs on this data folder."""

import asyncio
import errno
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from maestro.bootstrap.checks.listeners import Listener, listener
from maestro.bootstrap.checks.subject import Subject, broken, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.settings import Settings
from temporal.server_process import HOST

ASK_SECONDS = 2.0


@dataclass(frozen=True)
class Listening:
    """Something that listens: what it is, where, the settings that say so, and where it tells how it is."""

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
        """Where it is asked how it is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.health}"


def listening(settings: Settings) -> Iterator[Listening]:
    """Yield everything that would listen on this machine."""
    webui, web, temporal, health = settings.webui, settings.web, settings.temporal, settings.health
    if webui.enabled:
        yield Listening("dashboard and API", webui.host, webui.port, "webui.port (--port)", "/healthz")
    if web.enabled:
        yield Listening("web connector", web.host, web.port, "web.port (--web-port)", "/health")
    if temporal.embedded:
        yield Listening("Temporal server", HOST, temporal.port, "temporal.port (--temporal-port)")
        yield Listening("Temporal Web UI", HOST, temporal.ui_port, "temporal.uiPort (--temporal-ui-port)")
    else:
        worker, connect = "health.workerPort (--health-port)", "health.connectPort (--health-port)"
        yield Listening("health of the worker", health.host, health.worker_port, worker, "/healthz")
        yield Listening("health of connectors", health.host, health.connect_port, connect, "/healthz")


async def ports(subject: Subject) -> list[Diagnosis]:
    """One line for each port."""
    places = tuple(listening(subject.settings))
    return list(await asyncio.gather(*(_port(subject, place, places) for place in places)))


async def _port(subject: Subject, place: Listening, places: Sequence[Listening]) -> Diagnosis:
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


def _free(subject: Subject, place: Listening) -> Diagnosis:
    if subject.holder.running and not subject.holder.shared:
        fix = "If it was started with other ports, give `maestro doctor` the same options."
        return note(place.check, f"{place.name}: free, although the data folder is held by {subject.holder}", fix)
    return fine(place.check, f"{place.name}: free")


def _taken(subject: Subject, place: Listening, who: Listener | None, maestro: bool) -> Diagnosis:
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


def _ours(subject: Subject, who: Listener | None) -> bool:
    """Say whether a Maestro that answers works on this data folder.

    Where several machines share a cluster, or who listens cannot be seen, its answer has to do.
    """
    if not subject.settings.temporal.embedded:
        return True
    pid = subject.holder.pid
    return subject.holder.running and (pid is None or who is None or who.pid == pid)


def _server(subject: Subject, place: Listening) -> bool:
    """Say whether the port belongs to the server that was started on this data folder."""
    server = subject.server
    return server is not None and place.port in (server.port, server.ui_port)


def _obstacle(place: Listening) -> OSError | None:
    """Return what keeps us from listening there; nobody can connect meanwhile, as nothing listens."""
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
            # As the servers do it: connections of an earlier run that linger are no listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


async def answers(place: Listening) -> bool:
    """Say whether what listens there says of itself that it is well, as Maestro does."""
    try:
        async with httpx.AsyncClient(timeout=ASK_SECONDS, trust_env=False) as http:
            answer = (await http.get(place.url)).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("status") == "ok"

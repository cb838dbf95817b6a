"""Two hosts that share PostgreSQL and Temporal and nothing else: a data folder, ports and processes for each."""

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.support.database import query
from tests.support.forking import PATIENCE, Around
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.support.postgresql import database_url
from tests.support.separate import READY, STANDS_BY, ForkedPart, Part, TemporalApart

KEY = base64.b64encode(b"a key that both hosts of it have").decode()
LEASE = "web-default"
LOOK = 0.1

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Forwarder:
    """A TCP port that passes connections on; it can be cut, which no one at either end is told of."""

    def __init__(self, port: int, reach: Callable[[], Awaitable[Streams]]) -> None:
        """``reach`` opens the connection to which a new one is passed on; raises ``OSError``."""
        self.port = port
        self._reach = reach
        self._whole = asyncio.Event()
        self._whole.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    @property
    def is_cut(self) -> bool:
        """Whether it passes nothing on."""
        return not self._whole.is_set()

    def cut(self) -> None:
        """Pass nothing on any more, in either direction, and tell nobody."""
        self._whole.clear()

    def mend(self) -> None:
        """Pass on new connections; those from before the cut are lost."""
        self.drop()
        self._whole.set()

    def drop(self) -> None:
        """Lose all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        """End it."""
        self.mend()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*filter(None, self._connections))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.current_task())
        self._writers.add(writer)
        further = None
        try:
            await self._whole.wait()
            there, further = await self._reach()
            self._writers.add(further)
            _, left = await asyncio.wait(
                [
                    asyncio.create_task(self._pass_on(reader, further)),
                    asyncio.create_task(self._pass_on(there, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in left:
                task.cancel()
        except OSError:
            pass
        finally:
            for one in filter(None, (writer, further)):
                self._writers.discard(one)
                one.transport.abort()
            self._connections.discard(asyncio.current_task())

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()


class Host:
    """One host: its folder, its way to the database, and its processes."""

    def __init__(
        self, folder: Path, database: str, ports: Sequence[int], shared: dict[str, Any], around: Around = nullcontext
    ) -> None:
        self.data = folder / "data"
        folder.mkdir()
        self.web_port, self.api_port, worker, connect, way = ports
        url = make_url(database)
        server = f"{url.query['host']}/.s.PGSQL.{url.port or 5432}"
        self.way = Forwarder(way, lambda: asyncio.open_unix_connection(server))
        own = {
            "dataDir": str(self.data),
            "store": {"url": f"postgresql://{url.username}@127.0.0.1:{way}/{url.database}"},
            "webui": {"port": self.api_port},
            "web": {"port": self.web_port, "typingSeconds": 0.5},
            "health": {"workerPort": worker, "connectPort": connect},
        }
        self.config = folder / "maestro.json"
        self.config.write_text(json.dumps({**shared, **own}))
        self._around = around
        commands = {"worker": ("worker",), "api": ("api",), "connect": ("connect", "web")}
        self.parts: dict[str, Part] = {part: self.another(*command) for part, command in commands.items()}

    def another(self, *command: str) -> Part:
        """Return one more process, not yet started."""
        return ForkedPart(["--config", str(self.config), *command], self.config.parent, self._around)

    async def revive(self, name: str) -> None:
        """Start a process, and return when it is ready, or waits for the lease of the other host."""
        part = self.parts[name]
        await part.says(READY[name], await part.begin(), STANDS_BY if name == "connect" else "")

    def pause(self) -> None:
        """Stop every process where it stands."""
        for part in self.parts.values():
            part.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let every process go on."""
        for part in self.parts.values():
            part.send_signal(signal.SIGCONT)


class TwoHosts:
    """Both hosts, a Temporal server, and a load balancer in front of the two web connectors."""

    def __init__(self, folder: Path, llm: LLMServer, sections: dict[str, Any]) -> None:
        temporal, web, *ports = free_ports(12)
        self.temporal = TemporalApart(folder, temporal)
        self.store = folder / "maestro.db"
        account = {"name": "main", "provider": "openai", "model": "gpt-4o-mini", "apiKey": "key-of-the-account"}
        shared = {
            "keys": {"signing": KEY, "secrets": KEY},
            "temporal": {"address": f"127.0.0.1:{temporal}", "heartbeatSeconds": 2},
            "llm": {"accounts": [{**account, "baseUrl": llm.base_url("openai")}]},
            "jobs": {"backoffBaseMinutes": 0.005, "reconcileSeconds": 0.5, "drainSeconds": 2},
            "logs": {"level": "error"},
            **sections,
        }
        database = database_url(self.store)
        self.hosts = [
            Host(folder / name, database, ports[start : start + 5], shared) for name, start in (("one", 0), ("two", 5))
        ]
        self.web = Forwarder(web, self._reach_connector)
        self.unfit: Sequence[Host] = ()
        """The hosts to which the load balancer passes nothing, as its health checks would have it."""

    async def start(self) -> None:
        """Start everything; the first host gets the lease."""
        await self.temporal.start()
        for forwarder in (self.web, *(host.way for host in self.hosts)):
            await forwarder.start()
        for name in READY:
            for host in self.hosts:
                await host.revive(name)

    async def end(self) -> None:
        """Leave nothing behind."""
        for host in self.hosts:
            host.way.mend()
        await asyncio.gather(*(part.end() for host in self.hosts for part in host.parts.values()))
        for forwarder in (self.web, *(host.way for host in self.hosts)):
            await forwarder.close()
        await self.temporal.end()

    def lease(self) -> tuple[int, str]:
        """Return the number of the lease of the web connector, and the process that took it last."""
        (row,) = query(self.store, "SELECT number, holder FROM leases WHERE name = ?", LEASE)
        return int(row["number"]), str(row["holder"])

    def holder(self) -> Host:
        """Return the host that took the lease last."""
        _, holder = self.lease()
        (host,) = [one for one in self.hosts if holder.startswith(f"process {one.parts['connect'].pid} on ")]
        return host

    def other(self, host: Host) -> Host:
        """Return the other host."""
        return next(one for one in self.hosts if one is not host)

    async def taken(self, after: int) -> None:
        """Return when the lease has been taken again after it had this number."""
        async with asyncio.timeout(PATIENCE):
            while self.lease()[0] <= after:  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(LOOK)

    async def _reach_connector(self) -> Streams:
        for host in self.hosts:
            if host not in self.unfit:
                with contextlib.suppress(OSError):
                    return await asyncio.open_connection("127.0.0.1", host.web_port)
        raise ConnectionRefusedError


@asynccontextmanager
async def two_hosts(folder: Path, llm: LLMServer, **sections: Any) -> AsyncIterator[TwoHosts]:
    """Run everything for the length of a block."""
    assert not {name for name in os.environ if name.startswith("MAESTRO_") and not name.startswith("MAESTRO_TEST_")}
    hosts = TwoHosts(folder, llm, sections)
    try:
        await hosts.start()
        yield hosts
    finally:
        await hosts.end()

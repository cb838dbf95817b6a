"""A server for tests of downloads: it says byte for byte what it was told to, and keeps what it was asked."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpcore

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """A running server; ``asked`` has the heads of all requests, ``answers`` what to say by path."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    answers: dict[str, bytes | Answer] = field(default_factory=dict)

    @classmethod
    @asynccontextmanager
    async def running(cls, tls: ssl.SSLContext | None = None) -> AsyncIterator["RawServer"]:
        """Listen on a free port of the loopback interface."""
        itself = cls()
        server = await asyncio.start_server(itself._serve, "127.0.0.1", 0, ssl=tls)
        itself.port = server.sockets[0].getsockname()[1]
        try:
            yield itself
        finally:
            server.close()

    def requested(self, path: str) -> list[str]:
        """Return the heads of the requests for this path."""
        return [head for head in self.asked if head.split()[1] == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            answer = self.answers.get(
                head.split()[1].partition("?")[0], answer_of(b"nothing here", status="404 Not Found")
            )
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)
            await writer.drain()
        writer.close()


def answer_of(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def redirect_to(location: str) -> bytes:
    """Return an answer that sends the client elsewhere."""
    return answer_of(b"", f"Location: {location}", status="302 Found")


class FakeResolver:
    """A resolver that answers from a script; the last answer for a host is given again and again."""

    def __init__(self, **hosts: Sequence[Iterable[str]]) -> None:
        """``hosts`` are names with ``_`` for each stop; each has a list of answers, one for each time it is asked."""
        self._answers = {name.replace("_", "."): list(answers) for name, answers in hosts.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the next answer; a name it does not know does not exist, an address stands for itself."""
        self.asked.append(host)
        if host not in self._answers:
            if host[0].isdigit() or ":" in host:
                return [host]
            raise OSError("Name or service not known")
        answers = self._answers[host]
        return list(answers.pop(0) if len(answers) > 1 else answers[0])


class Detour(httpcore.AnyIOBackend):
    """Leads connections to any address to a server of the test, and keeps where they were meant to go."""

    def __init__(self, server: RawServer, dead: Iterable[str] = ()) -> None:
        """Nobody listens at the addresses that are ``dead``."""
        self._server = server
        self._dead = set(dead)
        self.targets: list[tuple[str, int]] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the server of the test."""
        self.targets.append((host, port))
        if host in self._dead:
            raise httpcore.ConnectError("nobody listens there")
        return await super().connect_tcp("127.0.0.1", self._server.port, timeout, local_address, socket_options)

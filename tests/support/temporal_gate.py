"""A Temporal server, and what may stand before it in the world: a terminator of TLS, a gate that asks for a key."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import trustme

from temporal.server import EmbeddedServer, ServerConfig
from tests.support.ports import free_port

CHUNK = 65536
NAMES = ("localhost", "127.0.0.1")
BEARER = "Bearer "

Metadata = Sequence[tuple[str, str | bytes]]


UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


NO_WORKERS = ("--dynamic-config-value", "worker.perNamespaceWorkerCount=0")
"""With these arguments, a server has no workers of its own, as in the first seconds after a start when it is busy.

Such workers answer questions about schedules and deployments.
"""


@contextlib.asynccontextmanager
async def temporal_server(folder: Path, *arguments: str) -> AsyncIterator[EmbeddedServer]:
    """Run a real Temporal server with its data in an existing folder; its namespace has what Maestro needs."""
    server = EmbeddedServer(ServerConfig(folder, free_port(), free_port(), extra_args=arguments), report=lambda _: None)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def port_of(server: EmbeddedServer) -> int:
    """Return the port of the gRPC service."""
    return int(server.address.rpartition(":")[2])


@dataclass(frozen=True)
class TlsGate:
    """A TLS server whose certificate only ``ca_pem`` vouches for, and the client certificate that it accepts."""

    port: int
    ca_pem: str
    client_cert_pem: str
    client_key_pem: str

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def tls_gate(
    target_port: int, client_auth: bool = False, names: Sequence[str] = NAMES, port: int = 0
) -> AsyncIterator[TlsGate]:
    """Take TLS connections and pass what they say to a server in plain text.

    ``client_auth``: refuse who shows no certificate of our authority. ``names``: what the server's certificate is for.
    """
    authority = trustme.CA()
    ours = authority.issue_cert("maestro@example.org")
    gate = TlsGate(
        port=port or free_port(),
        ca_pem=authority.cert_pem.bytes().decode(),
        client_cert_pem=b"".join(blob.bytes() for blob in ours.cert_chain_pems).decode(),
        client_key_pem=ours.private_key_pem.bytes().decode(),
    )
    context = _server_context(authority, names, client_auth)
    relay = _Relay(target_port)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", gate.port, ssl=context), relay:
        yield gate


@contextlib.asynccontextmanager
async def plain_gate(target_port: int, port: int = 0) -> AsyncIterator[int]:
    """Pass connections through as they are; when the block ends they are cut, as when a server goes away."""
    port = port or free_port()
    relay = _Relay(target_port)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", port), relay:
        yield port


@contextlib.asynccontextmanager
async def cutting_gate(target_port: int) -> AsyncIterator["CuttingGate"]:
    """Pass connections through, and cut those on which a request comes while ``cuts`` are left."""
    relay = CuttingGate(target_port)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", relay.port), relay:
        yield relay


def _server_context(authority: trustme.CA, names: Sequence[str], client_auth: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2"])
    if client_auth:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Relay:
    """Copies bytes between those who connect and the target, until it is left."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._left = False
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "_Relay":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        if self._left:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(back)
            try:
                await asyncio.gather(self.pass_on(reader, back), _copy(there, writer))
            finally:
                self._writers.discard(back)
                back.transport.abort()
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    async def pass_on(self, reader: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass what a client says on to the target."""
        await _copy(reader, target)


class CuttingGate(_Relay):
    """A gate that cuts connections; ``cuts`` is the number of times that it still does."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.port = free_port()
        self.cuts = 0

    async def pass_on(self, reader: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on, or cut the connection instead of passing on what came."""
        while block := await reader.read(CHUNK):
            if self.cuts:
                self.cuts -= 1
                raise ConnectionAbortedError
            target.write(block)
            await target.drain()
        target.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while block := await reader.read(CHUNK):
            writer.write(block)
            await writer.drain()
    writer.close()


@dataclass
class KeyGate:
    """A gRPC server that asks for ``key``; change what it says or does at any time."""

    port: int
    key: str
    refusal: str = "api key expired"
    """The text for who shows another key."""
    missing: str = "Request unauthorized."
    """The text for who shows none."""
    denied: frozenset[str] = frozenset()
    """The last parts of the methods that nobody may call, such as ``DescribeNamespace``; ``*`` is all of them."""
    busy: frozenset[str] = frozenset()
    """The methods that are too much for the server at the moment."""

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    refused: int = 0
    """How many calls have been refused so far."""

    def verdict(self, method: str, authorization: str) -> tuple[grpc.StatusCode, str] | None:
        """Say with which status and text a call is refused; None lets it pass."""
        if authorization != BEARER + self.key:
            return UNAUTHENTICATED, self.refusal if authorization else self.missing
        if self.denied & {"*", method.rpartition("/")[2]}:
            return PERMISSION_DENIED, "Request unauthorized."
        if method.rpartition("/")[2] in self.busy:
            return EXHAUSTED, "namespace rate limit exceeded"
        return None


@contextlib.asynccontextmanager
async def key_gate(target_port: int, key: str = "the-right-key", port: int = 0) -> AsyncIterator[KeyGate]:
    """Pass calls that show the key as a bearer token to a Temporal server, and refuse all others."""
    gate = KeyGate(port or free_port(), key)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{target_port}", options=_UNLIMITED) as channel:
        server = grpc.aio.server(options=_UNLIMITED)
        server.add_generic_rpc_handlers((_PassThrough(gate, channel),))
        assert server.add_insecure_port(gate.address) == gate.port
        await server.start()
        try:
            yield gate
        finally:
            await server.stop(grace=None)


_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class _PassThrough(grpc.GenericRpcHandler):
    """Passes the bytes of every call on, whatever its service."""

    def __init__(self, gate: KeyGate, channel: grpc.aio.Channel) -> None:
        self._gate = gate
        self._channel = channel

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return what answers calls of a method."""
        method = handler_call_details.method

        async def answer(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            metadata = [(name, value) for name, value in context.invocation_metadata() or ()]
            refused = self._gate.verdict(method, str(dict(metadata).get("authorization", "")))
            if refused is not None:
                self._gate.refused += 1
                await context.abort(*refused)
            return await self._passed_on(method, request, metadata, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _passed_on(
        self, method: str, request: bytes, metadata: Metadata, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
        try:
            answer: bytes = await ask(request, metadata=metadata, timeout=context.time_remaining())
        except grpc.aio.AioRpcError as error:
            details = tuple(
                (name, value) for name, value in error.trailing_metadata() if name.startswith("grpc-status")
            )
            await context.abort(error.code(), error.details() or "", details)
            raise
        return answer

"""Downloads files from untrusted URLs: only from public hosts (SSRF protection), and within limits.

A host name is resolved once. All its IP addresses are checked, and the connection goes to a checked address, so that a
later DNS answer cannot redirect it. Proxies of the environment are not used.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpcore
import httpx
from pydantic import SecretStr

from maestro.domain.errors import FailureSource, MaestroError
from maestro.domain.network import DEFAULT_PORTS, is_plain_host, is_public
from maestro.domain.release import release

CONNECT_SECONDS = 10.0
"""The most seconds for connecting to one IP address of a host; then the host's next address is tried."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A function that returns the IP addresses of a host and port, best first; raises ``OSError``."""

_Write = Callable[[bytes], Awaitable[object]]
_FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError, zlib.error)
_REDIRECTS = (301, 302, 303, 307, 308)


class FetchRefused(MaestroError):
    """The error for a forbidden URL or redirect; the message says why, and quotes at most the host."""

    public = "An address may not be fetched."


class FetchFailed(MaestroError):
    """The error for a host that cannot be reached or answers invalidly; the message quotes at most the host."""

    public = "An address could not be fetched."
    retryable = True
    source = FailureSource.PLATFORM


@dataclass(frozen=True)
class FetchLimits:
    """The limits of a download: bytes of the decompressed body, seconds in total, number of redirects.

    With ``cut``, a longer body is truncated at the limit; otherwise it is refused.
    """

    max_bytes: int
    seconds: float
    redirects: int = 5
    cut: bool = False


@dataclass(frozen=True)
class FetchAccess:
    """The allowed targets of a download: ``hosts`` and ``ports``, each unrestricted when empty.

    ``private_hosts`` may have IP addresses that are not public. ``bearer`` is a token that is sent to the origin of the
    first URL only, never to another origin after a redirect.
    """

    hosts: frozenset[str] = frozenset()
    private_hosts: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    bearer: SecretStr = field(default=SecretStr(""))


@dataclass(frozen=True)
class Fetched:
    """A response: ``url`` is the URL after redirects, ``content_type`` the Content-Type header as sent.

    ``cut`` says that the body was truncated. ``body`` is decompressed; it is empty if it was written to a file.
    """

    status: int
    content_type: str
    url: str
    cut: bool = False
    body: bytes = field(default=b"", repr=False)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses of a host from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class Network:
    """The resolver, connections and TLS settings of a download; tests replace them."""

    resolve: Resolve = resolve_host
    backend: httpcore.AsyncNetworkBackend = field(default_factory=httpcore.AnyIOBackend)
    tls: Callable[[], ssl.SSLContext] = httpcore.default_ssl_context


async def fetch_response(
    url: str, limits: FetchLimits, access: FetchAccess | None = None, network: Network | None = None
) -> Fetched:
    """Return the response from a URL, whatever its HTTP status; raises ``FetchRefused`` and ``FetchFailed``."""
    body = bytearray()

    async def append(chunk: bytes) -> None:
        body.extend(chunk)

    head = await send_request(url, append, limits, access, network)
    return replace(head, body=bytes(body))


async def download(
    url: str, path: Path, limits: FetchLimits, access: FetchAccess | None = None, network: Network | None = None
) -> Fetched:
    """Write the body of a response to a new file, whatever the HTTP status; after a failure the file is incomplete."""
    file = await asyncio.to_thread(path.open, "xb")
    try:
        return await send_request(url, lambda chunk: asyncio.to_thread(file.write, chunk), limits, access, network)
    finally:
        await asyncio.to_thread(file.close)


async def send_request(
    url: str, write: _Write, limits: FetchLimits, access: FetchAccess | None, network: Network | None
) -> Fetched:
    access, network = access or FetchAccess(), network or Network()
    first = target = _parse_allowed_url(url, access)
    try:
        async with asyncio.timeout(limits.seconds):
            for _ in range(limits.redirects + 1):
                bearer = access.bearer.get_secret_value() if url_origin(target) == url_origin(first) else ""
                async with _open_response(target, bearer, access, network) as response:
                    location = _header_value(response, b"location") if response.status in _REDIRECTS else ""
                    if not location:
                        cut = await _read_body(response, write, limits)
                        return Fetched(response.status, _header_value(response, b"content-type"), str(target), cut)
                target = _parse_allowed_url(location, access, target)
    except TimeoutError:
        raise FetchFailed(f"{target.host} took longer than {limits.seconds:g} seconds") from None
    except _FAILURES as error:
        raise FetchFailed(f"{target.host}: {str(error)[:200] or type(error).__name__}") from None
    raise FetchRefused(f"{first.host} redirects more than {limits.redirects} times")


def _parse_allowed_url(url: str, access: FetchAccess, base: httpx.URL | None = None) -> httpx.URL:
    """Return the absolute form of a URL; raises ``FetchRefused`` if the URL is not allowed."""
    try:
        target = base.join(url) if base else httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise FetchRefused("this is not a valid address") from None
    if target.scheme not in DEFAULT_PORTS or not target.host:
        raise FetchRefused("the address must start with http:// or https:// and name a host")
    if target.userinfo:
        raise FetchRefused("the address must not contain a user name or a password")
    _, host, port = url_origin(target)
    if host not in access.private_hosts and not is_plain_host(host):
        raise FetchRefused(f"{host[:100]} is neither a host name nor an address in its usual spelling")
    if access.hosts and host not in access.hosts:
        raise FetchRefused(f"{host} is not one of the hosts that are allowed")
    if port > 65_535 or (access.ports and port not in access.ports):
        raise FetchRefused(f"port {port} is not allowed")
    return target


def url_origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.raw_host.decode("ascii").lower(), url.port or DEFAULT_PORTS.get(url.scheme, 0)


@asynccontextmanager
async def _open_response(
    url: httpx.URL, bearer: str, access: FetchAccess, network: Network
) -> AsyncIterator[httpcore.Response]:
    """Send one GET request over a new connection, and yield the response."""
    headers = [("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("User-Agent", f"Maestro/{release()}")]
    if bearer:
        headers.append(("Authorization", f"Bearer {bearer}"))
    scheme, host, port = url_origin(url)
    target = httpcore.URL(scheme=scheme, host=host, port=port, target=url.raw_path)
    backend = _CheckedBackend(network, access.private_hosts)
    tls = await asyncio.to_thread(network.tls) if scheme == "https" else None
    async with (
        httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=backend) as pool,
        pool.stream("GET", target, headers=headers, extensions={"timeout": {"connect": CONNECT_SECONDS}}) as response,
    ):
        yield response


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """A network backend that connects only to checked IP addresses; TLS still verifies the host's name."""

    def __init__(self, network: Network, private_hosts: frozenset[str]) -> None:
        self._network = network
        self._private_hosts = private_hosts

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - required by the interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the host's first IP address that answers; raises ``FetchRefused`` if one is not allowed."""
        addresses = await self._network.resolve(host, port)
        if host not in self._private_hosts and not all(is_public(address) for address in addresses):
            raise FetchRefused(f"{host} has an address that is not public")
        failure: Exception = httpcore.ConnectError("the host has no address")
        for address in addresses:
            try:
                return await self._network.backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _header_value(response: httpcore.Response, name: bytes) -> str:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[-1].decode("latin-1") if values else ""


async def _read_body(response: httpcore.Response, write: _Write, limits: FetchLimits) -> bool:
    """Write the body as it arrives; return whether it was truncated at the limit."""
    remaining = limits.max_bytes
    length = _header_value(response, b"content-length")
    if not limits.cut and length.isdecimal() and int(length) > remaining:
        raise FetchRefused(f"the file is larger than {limits.max_bytes:,} bytes")
    decompressor = _Decompressor(_header_value(response, b"content-encoding").strip().lower())
    async for packed in response.aiter_stream():
        for chunk in decompressor.decompress(packed):
            await write(chunk[:remaining])
            remaining -= len(chunk)
            if remaining < 0 and not limits.cut:
                raise FetchRefused(f"the file is larger than {limits.max_bytes:,} bytes")
            if remaining < 0:
                return True
    decompressor.check_end()
    return False


class _Decompressor:
    """A decompressor that works in small chunks, so that a gzip bomb cannot fill the memory."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise FetchFailed(f"the response is compressed with {encoding[:20]}, which was not requested")
        self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding.endswith("gzip") else None
        self._has_data = False

    def decompress(self, packed: bytes) -> Iterator[bytes]:
        """Yield the decompressed form of these bytes, in small chunks."""
        if self._inflater is None:
            yield packed
            return
        self._has_data = self._has_data or bool(packed)
        while packed and not self._inflater.eof:
            yield self._inflater.decompress(packed, 64 * 1024)
            packed = self._inflater.unconsumed_tail

    def check_end(self) -> None:
        """Raise ``FetchFailed`` if the compressed body is incomplete."""
        if self._inflater is not None and self._has_data and not self._inflater.eof:
            raise FetchFailed("the compressed response is incomplete")

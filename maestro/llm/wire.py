"""Observes the HTTP exchange of a model call: at most one request, and the status, headers and body of its answer.

litellm may retry, follow redirects with the key in its headers, and report statuses of its own; the transport in this
module sees the real exchange.

With a listener, the request asks for a stream, and litellm gets the assembled answer. litellm's own stream parser
accepts a stream that was cut off, and loses tool calls of some providers. A model that refuses to stream is called
again without a stream.
"""

import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import httpx

from maestro.llm.streams import Listener, StreamBroken, StreamFormat, assemble_answer, stream_format

STREAMS = ("text/event-stream", "application/x-ndjson")
"""Content types of a streamed answer."""

BODY_LIMIT = 4 * 1024 * 1024
"""The most bytes of an error body that are read: enough for JSON that quotes a whole prompt."""

ANSWER_LIMIT = 16 * 1024 * 1024
"""The default limit of an answer in bytes; parsing an answer takes several times its size in memory."""

STREAM_FACTOR = 4
"""The limit of a stream is this many times the limit of an answer, because each few letters come in a JSON frame."""


@dataclass(slots=True)
class HttpExchange:
    """The HTTP exchange of one model call; ``status`` is None without an answer, ``body`` is an error answer's body.

    ``limit`` is the size in bytes of the largest answer that is read.
    """

    limit: int = ANSWER_LIMIT
    requests: int = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


PIECE = 64 * 1024
"""The most bytes that are decompressed at once: a compressed body may grow a thousandfold."""

Unpack = Callable[[bytes], Iterator[bytes]]
"""A function that yields the decompressed pieces of compressed bytes."""


class SecondRequestError(Exception):
    """The error for a second HTTP request by litellm within one model call; retries are Temporal's task.

    See docs/invariants.md: one layer retries.
    """


class OversizedBody(Exception):
    """The error for an answer with more bytes than the limit."""


_current: ContextVar[HttpExchange | None] = ContextVar("exchange", default=None)
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def stream_to(listener: Listener) -> Iterator[None]:
    """Stream every answer that is requested within the block to ``listener``, if the account can stream."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def current_listener() -> Listener | None:
    """Return the listener for the stream of the current call, None where no stream is requested."""
    return _listener.get()


@contextmanager
def observe_exchange(limit: int = ANSWER_LIMIT) -> Iterator[HttpExchange]:
    """Observe the one request of a model call within the block, and refuse any further request.

    Reading an answer of more than ``limit`` bytes raises ``OversizedBody``.
    """
    exchange = HttpExchange(limit)
    token = _current.set(exchange)
    try:
        yield exchange
    finally:
        _current.reset(token)


class ObservedTransport(httpx.AsyncBaseTransport):
    """Wraps an HTTP transport so that ``observe_exchange`` sees each request and answer."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._unstreamed: set[tuple[str, str]] = set()
        """The addresses and models that have refused to stream."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; raises ``SecondRequestError`` for a second one in the same call."""
        exchange = _current.get()
        if exchange is None:
            return await self._inner.handle_async_request(request)
        exchange.requests += 1
        if exchange.requests > 1:
            raise SecondRequestError
        listener = current_listener()
        if listener is not None and (streamed := stream_format(request.url.path)) is not None:
            return await self._stream_answer(exchange, request, streamed, listener)
        return await self._send_request(exchange, request)

    async def _send_request(self, exchange: HttpExchange, request: httpx.Request) -> httpx.Response:
        request.headers["accept-encoding"] = "identity"  # A compressed answer may be huge when decompressed.
        response = await self._inner.handle_async_request(request)
        exchange.status, exchange.headers = response.status_code, dict(response.headers)
        of_encoding = (b"content-encoding", b"content-length")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in of_encoding]
        if response.is_success:
            limit = exchange.limit * (STREAM_FACTOR if read_content_type(response) in STREAMS else 1)
            body, extensions = _limited_body(response, limit), response.extensions
            return httpx.Response(response.status_code, headers=headers, stream=body, extensions=extensions)
        content = await _read_beginning(response)
        failed = httpx.Response(response.status_code, headers=headers, content=content, request=request)
        exchange.body = failed.text
        return failed

    async def _stream_answer(
        self, exchange: HttpExchange, request: httpx.Request, streamed: tuple[str, StreamFormat], listener: Listener
    ) -> httpx.Response:
        """Request a stream and return the assembled answer; a model that cannot stream is called again without one."""
        ending, stream_format = streamed
        body = json.loads(request.content)
        target = (request.url.host + request.url.path, str(body.get("model")))
        if target in self._unstreamed:
            return await self._send_request(exchange, request)
        response = await self._send_request(
            exchange, _streaming_request(request, body | stream_format.fields, ending, stream_format.method)
        )
        if is_streaming_refused(exchange):
            self._unstreamed.add(target)
            exchange.body = ""
            return await self._send_request(exchange, request)
        if not response.is_success or read_content_type(response) not in STREAMS:
            return response
        try:
            whole = await assemble_answer(response.aiter_bytes(), stream_format.answer(), listener)
        # A stream in an unknown format counts as interrupted; its text must not reach the log.
        except (StreamBroken, ValueError, LookupError, TypeError, AttributeError):
            raise httpx.RemoteProtocolError("the stream broke") from None
        finally:
            await response.aclose()
        # ASCII output escapes the halves of a surrogate pair that came in two pieces; reading the JSON joins them.
        headers, content = {"content-type": "application/json"}, json.dumps(whole).encode()
        if len(content) > exchange.limit:
            raise OversizedBody
        return httpx.Response(response.status_code, headers=headers, content=content, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def read_content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip()


def is_streaming_refused(exchange: HttpExchange) -> bool:
    """Return whether a request was refused only because it asks for a stream."""
    if exchange.status not in (400, 422):
        return False
    try:
        data = json.loads(exchange.body)
    except ValueError:
        return False
    error = data.get("error") if isinstance(data, dict) else None
    if isinstance(error, dict) and error.get("param") is not None:
        return str(error["param"]).partition(".")[0] in ("stream", "stream_options")
    # A quoted prompt may contain any word, but hardly the name of the field that asks for a stream.
    return "stream_options" in exchange.body


def _streaming_request(request: httpx.Request, body: dict[str, object], ending: str, method: str) -> httpx.Request:
    headers, url = httpx.Headers(request.headers), request.url
    headers.pop("content-length", None)
    if method:
        url = url.copy_with(path=url.path.removesuffix(ending) + method).copy_merge_params({"alt": "sse"})
    content = json.dumps(body).encode()
    return httpx.Request(request.method, url, headers=headers, content=content, extensions=request.extensions)


class LimitedBody(httpx.AsyncByteStream):
    """A decompressed body; reading more than the limit raises ``OversizedBody`` before the excess is held in memory."""

    def __init__(self, body: httpx.AsyncByteStream, encoding: str, limit: int) -> None:
        """``encoding`` is the answer's Content-Encoding. Raises ``httpx.DecodingError`` for an unknown encoding."""
        self._body = body
        self._unpack = create_decompressor(encoding.strip().lower())
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body, decompressed."""
        room = self._limit
        async for packed in self._body:
            for piece in self._unpack(packed):
                yield piece[:room]
                room -= len(piece)
                if room < 0:
                    raise OversizedBody

    async def aclose(self) -> None:
        await self._body.aclose()


async def _read_beginning(response: httpx.Response) -> bytes:
    """Return at most ``BODY_LIMIT`` bytes from the start of a body, and close the response without reading more."""
    read = bytearray()
    try:
        async for piece in _limited_body(response, BODY_LIMIT):
            read += piece
    except OversizedBody:
        pass
    finally:
        await response.aclose()
    return bytes(read)


def _limited_body(response: httpx.Response, limit: int) -> LimitedBody:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return LimitedBody(response.stream, response.headers.get("content-encoding", ""), limit)


def create_decompressor(encoding: str) -> Unpack:
    """Return the decompressor for a Content-Encoding.

    Every request asks for uncompressed bodies, but some gateways compress them nevertheless, usually with gzip.
    """
    if encoding in ("", "identity"):
        return lambda packed: iter((packed,))
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise httpx.DecodingError("the answer is compressed in a way that was not requested")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # Adding 32 accepts gzip and zlib headers.

    def decompress(packed: bytes) -> Iterator[bytes]:
        try:
            while packed:
                yield inflate.decompress(packed, PIECE)
                packed = inflate.unconsumed_tail
        except zlib.error as error:
            raise httpx.DecodingError("the compressed answer is invalid") from error

    return decompress

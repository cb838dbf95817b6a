"""Bodies of providers' answers: read and unpacked piece by piece, up to a limit."""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator

import httpx

PIECE = 64 * 1024
"""Bytes unpacked at once: a packed body may be a thousand times as large as what was sent."""

Unpack = Callable[[bytes], Iterator[bytes]]


class OversizedBody(Exception):
    """An answer has more bytes than the limit."""


class LimitedBody(httpx.AsyncByteStream):
    """A body without its packing; reading it raises ``OversizedBody`` at the limit, before more is kept."""

    def __init__(self, body: httpx.AsyncByteStream, encoding: str, limit: int) -> None:
        """``encoding`` is the answer's Content-Encoding. Raises ``httpx.DecodingError`` for one nobody asked for."""
        self._body = body
        self._unpack = _unpacker(encoding.strip().lower())
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what the provider answers."""
        room = self._limit
        async for packed in self._body:
            for piece in self._unpack(packed):
                yield piece[:room]
                room -= len(piece)
                if room < 0:
                    raise OversizedBody

    async def aclose(self) -> None:
        """Read no more."""
        await self._body.aclose()


def limited(response: httpx.Response, limit: int) -> httpx.Response:
    """Return a response that was not read yet with its body limited."""
    body, headers = _body_of(response, limit), plain(response.headers)
    return httpx.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


def plain(headers: httpx.Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that also hold for a body that was unpacked."""
    return [(name, value) for name, value in headers.raw if name.lower() not in _OF_THE_PACKING]


async def beginning(response: httpx.Response, limit: int) -> bytes:
    """Return at most the first bytes of a body, and read no more of it."""
    read = bytearray()
    try:
        async for piece in _body_of(response, limit):
            read += piece
    except OversizedBody:
        pass
    finally:
        await response.aclose()
    return bytes(read)


_OF_THE_PACKING = (b"content-encoding", b"content-length")


def _body_of(response: httpx.Response, limit: int) -> LimitedBody:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return LimitedBody(response.stream, response.headers.get("content-encoding", ""), limit)


def _unpacker(encoding: str) -> Unpack:
    """Every request asks for plain bodies; some gateways pack them all the same, as gzip if anything."""
    if encoding in ("", "identity"):
        return lambda packed: iter((packed,))
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise httpx.DecodingError("the answer is packed in a way that was not asked for")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip and zlib, whichever it is

    def unpack(packed: bytes) -> Iterator[bytes]:
        try:
            while packed:
                yield inflate.decompress(packed, PIECE)
                packed = inflate.unconsumed_tail
        except zlib.error as error:
            raise httpx.DecodingError("the answer is packed wrongly") from error

    return unpack

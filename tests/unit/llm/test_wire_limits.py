"""Answers are read up to a limit, packed or not, at once or streamed."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from maestro.llm.wire import BODY_LIMIT, PIECE, ObservedTransport, OversizedBody, observe_exchange, stream_to

LIMIT = 200_000
JSON = {"content-type": "application/json"}


class Sent(httpx.AsyncByteStream):
    """A body in pieces; counts those that were read."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.read += 1
            yield piece


def client_that_gets(body: Sent, headers: dict[str, str], status: int = 200) -> httpx.AsyncClient:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, stream=body))
    return httpx.AsyncClient(transport=ObservedTransport(transport), base_url="http://model")


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("packing", PACKED)
async def test_an_answer_within_the_limit_comes_back_whole(packing: str) -> None:
    text = "a word or two " * 10_000
    packed = PACKED[packing](text.encode())
    body = Sent([packed[start : start + 1000] for start in range(0, len(packed), 1000)])
    headers = {"content-encoding": packing} if packing else {}
    with observe_exchange(LIMIT):
        assert (await client_that_gets(body, headers).get("/")).text == text


async def test_a_larger_answer_is_not_read_to_its_end() -> None:
    body = Sent([b"x" * 50_000] * 100)
    with observe_exchange(LIMIT), pytest.raises(OversizedBody):
        await client_that_gets(body, JSON).get("/")
    assert body.read == 5


async def test_a_small_packed_answer_is_not_unpacked_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    unpacked: list[int] = []
    make = zlib.decompressobj

    class Counted:
        def __init__(self, bits: int) -> None:
            self._inner = make(bits)

        def decompress(self, packed: bytes, most: int) -> bytes:
            piece = self._inner.decompress(packed, most)
            unpacked.append(len(piece))
            return piece

        @property
        def unconsumed_tail(self) -> bytes:
            return self._inner.unconsumed_tail

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    with observe_exchange(LIMIT), pytest.raises(OversizedBody):
        await client_that_gets(Sent([bomb]), {"content-encoding": "gzip"}).get("/")
    assert sum(unpacked) <= LIMIT + PIECE


async def test_packing_that_nobody_asked_for_is_refused() -> None:
    asked: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"content-encoding": "br"}, stream=Sent([b"?"]))

    client = httpx.AsyncClient(transport=ObservedTransport(httpx.MockTransport(respond)), base_url="http://model")
    with observe_exchange(LIMIT), pytest.raises(httpx.DecodingError):
        await client.get("/")
    assert asked == ["identity"]


async def test_a_large_error_is_cut_and_keeps_its_status() -> None:
    body = Sent([b"x" * BODY_LIMIT] * 100)
    with observe_exchange(LIMIT) as exchange:
        assert (await client_that_gets(body, JSON, 500).get("/")).status_code == 500
    assert len(exchange.body) == BODY_LIMIT
    assert body.read == 2


@pytest.mark.parametrize("letters", [1, 60_000])
async def test_a_stream_may_have_more_bytes_than_its_answer_but_not_without_end(letters: int) -> None:
    line = json.dumps({"message": {"content": "x" * letters}, "done": False}).encode() + b"\n"
    body = Sent([line] * (100 * LIMIT // len(line)))
    client = client_that_gets(body, {"content-type": "application/x-ndjson"})
    heard: list[str] = []
    with stream_to(heard.append), observe_exchange(LIMIT), pytest.raises(OversizedBody):
        await client.post("/api/chat", content='{"messages": []}')
    assert body.read * len(line) <= 4 * LIMIT + 2 * len(line)


async def test_the_answer_of_a_stream_has_the_limit_of_any_other() -> None:
    lines = [{"message": {"content": "x" * 60_000}, "done": last} for last in (False, False, False, True)]
    body = Sent([json.dumps(line).encode() + b"\n" for line in lines])
    client = client_that_gets(body, {"content-type": "application/x-ndjson"})
    with stream_to(lambda _: None), observe_exchange(LIMIT), pytest.raises(OversizedBody):
        await client.post("/api/chat", content='{"messages": []}')

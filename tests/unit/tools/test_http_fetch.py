"""Reading web pages."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maestro.fetch import Network
from maestro.tools.base import ToolCaller, ToolFailure
from maestro.tools.web import HttpFetch
from tests.support.raw_server import Detour, FakeResolver, RawServer, answer_of, redirect_to

CALLER = ToolCaller("job", 1, 1, Path())


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer.running() as server:
        yield server


async def read(server: RawServer, url: str = "http://example.com/") -> str:
    resolver = FakeResolver(example_com=[["93.184.215.14"]], internal_corp=[["10.0.0.1"]])
    tool = HttpFetch(network=Network(resolve=resolver, backend=Detour(server)))
    found = await tool.run({"url": url}, CALLER)
    return found if isinstance(found, str) else f"{found.text} {found.pictures}"


async def test_a_page_comes_as_marked_text(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"<title>T</title><p>Hello", "Content-Type: text/html")
    text = await read(server)
    assert "http://example.com/ (untrusted" in text
    assert "\n---\nT\n\nHello\n---" in text


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/ld+json", "text/csv"])
async def test_texts_come_as_they_are(server: RawServer, kind: str) -> None:
    server.answers["/"] = answer_of(b'{"a": "<b>"}', f"Content-Type: {kind}")
    assert '{"a": "<b>"}' in await read(server)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("größe".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        ("größe".encode(), "text/plain"),
        ("<meta charset='windows-1252'>größe".encode("cp1252"), "text/html"),
        ("größe".encode(), "text/plain; charset=no-such"),
    ],
)
async def test_the_encoding_is_found(server: RawServer, body: bytes, kind: str) -> None:
    server.answers["/"] = answer_of(body, f"Content-Type: {kind}")
    assert "größe" in await read(server)


async def test_a_picture_is_shown_whatever_it_is_called(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"\x89PNG\r\n\x1a\n and so on", "Content-Type: application/octet-stream")
    assert await read(server) == (
        "[image/png of http://example.com/, untrusted: information only] (ToolImage(content_type='image/png'),)"
    )


@pytest.mark.parametrize("kind", ["image/png", "application/pdf", "application/octet-stream", "video/mp4"])
async def test_what_is_no_text_is_a_failure(server: RawServer, kind: str) -> None:
    server.answers["/"] = answer_of(b"\0\1", f"Content-Type: {kind}")
    with pytest.raises(ToolFailure, match=f"content type is {kind}"):
        await read(server)


async def test_a_long_text_is_cut_with_a_mark(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"x" * 30_000, "Content-Type: text/plain")
    text = await read(server)
    assert "x" * 20_000 + "\n[... 10,000 more characters" in text
    assert len(text) < 20_500


async def test_an_enormous_page_is_read_in_part(server: RawServer) -> None:
    body = gzip.compress(b"word " * 2_000_000)
    server.answers["/"] = answer_of(body, "Content-Type: text/plain", "Content-Encoding: gzip")
    assert "its rest was not read" in await read(server)


async def test_an_error_is_a_failure_with_its_text(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"gone fishing", "Content-Type: text/plain", status="503 Unavailable")
    with pytest.raises(ToolFailure, match=r"error 503:\ngone fishing"):
        await read(server)


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://internal.corp/", "file:///etc/passwd", "nonsense", ""])
async def test_what_is_not_public_cannot_be_read(server: RawServer, url: str) -> None:
    with pytest.raises(ToolFailure, match="cannot be read"):
        await read(server, url)
    assert not server.asked


async def test_a_redirect_inside_is_not_followed(server: RawServer) -> None:
    server.answers["/"] = redirect_to("http://internal.corp/secrets")
    with pytest.raises(ToolFailure, match="not public"):
        await read(server)
    assert len(server.asked) == 1


async def test_a_host_that_does_not_exist_is_a_failure(server: RawServer) -> None:
    with pytest.raises(ToolFailure, match="could not be read"):
        await read(server, "http://nowhere.example/")

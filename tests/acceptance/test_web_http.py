"""The HTTP side of port 5070: one-shot messages, uploads, health, and pages of other origins."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors.web import WebConfig, WebConnector
from maestro.domain.errors import StoreBusy
from maestro.domain.messages import Attachment
from tests.support.bot import Bot
from tests.support.memory_context import MemoryContext
from tests.support.web_client import web_client
from tests.support.web_server import KEY, SIGNING_KEY, WebServer, web_server

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


async def test_health_counts_the_sockets(http: httpx.AsyncClient) -> None:
    async with web_server() as server, web_client(server.port), web_client(server.port):
        answer = await http.get(f"{server.url}/health")
    assert answer.json() == {"status": "ok", "clients": 2}


# ---- POST /api/message ----


async def test_a_message_by_http_is_kept_and_answered_on_the_socket(http: httpx.AsyncClient) -> None:
    async with web_server(api_key=KEY) as server:
        answer = await http.post(
            f"{server.url}/api/message",
            headers=BEARER,
            json={"content": "hello", "userName": " Ada \n", "clientId": "x"},
        )
        body = answer.json()
        assert body == {
            "ok": True,
            "messageId": server.context.inbox[0].id,
            "channelId": server.context.inbox[0].address.channel,
            "duplicate": False,
            "resumeToken": body["resumeToken"],
        }
        assert server.context.inbox[0].user_name == "Ada"
        await server.answer(body["channelId"], "hi")
        async with web_client(
            server.port, resumeToken=body["resumeToken"], channelId=body["channelId"], lastId=0
        ) as client:
            assert (await client.next())["content"] == "hi"


@pytest.mark.parametrize("where", ["header", "body"])
async def test_a_resume_token_makes_a_repeat_a_duplicate(http: httpx.AsyncClient, where: str) -> None:
    async with web_server(api_key=KEY) as server:
        url, message = f"{server.url}/api/message", {"content": "hello", "clientId": "x"}
        first = (await http.post(url, headers=BEARER, json=message)).json()
        token = first["resumeToken"]
        again = await http.post(
            url,
            headers={"Authorization": f"Bearer {token}"} if where == "header" else BEARER,
            json={**message, "channelId": first["channelId"], "resumeToken": token if where == "body" else None},
        )
    assert (again.json()["duplicate"], again.json()["messageId"]) == (True, first["messageId"])
    assert len(server.context.inbox) == 1


@pytest.mark.parametrize(
    ("status", "error", "request_parts"),
    [
        (400, "InvalidMessage", {"content": b"not json"}),
        (400, "InvalidMessage", {"content": b"[]"}),
        (400, "InvalidMessage", {"content": b"\xff"}),
        (400, "InvalidMessage", {"json": {}}),
        (400, "InvalidMessage", {"json": {"content": " "}}),
        (400, "InvalidMessage", {"json": {"content": "x", "channelId": "a b"}}),
        (401, "Unauthorized", {"json": {"content": "x"}, "headers": {}}),
        (401, "Unauthorized", {"json": {"content": "x"}, "headers": {"Authorization": "Bearer wrong"}}),
        (401, "Unauthorized", {"json": {"content": "x"}, "headers": {"Authorization": f"Basic {KEY}"}}),
        (403, "ChannelTaken", {"json": {"content": "x", "channelId": "taken"}}),
        (403, "ChannelTaken", {"json": {"content": "x", "channelId": "dashboard-agent-1"}}),
        (413, "TooLarge", {"content": b"x" * 5_000_000}),
        (415, "UnsupportedMedia", {"content": b"{}", "headers": {**BEARER, "Content-Type": "text/plain"}}),
    ],
)
async def test_a_bad_request_says_why(
    http: httpx.AsyncClient, status: int, error: str, request_parts: dict[str, object]
) -> None:
    headers = {"Content-Type": "application/json", **BEARER}
    if "headers" in request_parts:
        headers = {"Content-Type": "application/json", **request_parts.pop("headers")}  # type: ignore[dict-item]
    async with web_server(api_key=KEY) as server, web_client(server.port, apiKey=KEY, channelId="taken"):
        answer = await http.post(f"{server.url}/api/message", headers=headers, **request_parts)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["message"]
    assert server.context.inbox == []


async def test_busy_and_draining_are_503(http: httpx.AsyncClient) -> None:
    async with web_server(MemoryContext(limit=0)) as server:
        busy = await http.post(f"{server.url}/api/message", json={"content": "x"})
        server.connector.stop_accepting()
        stopping = await http.post(f"{server.url}/api/message", json={"content": "x"})
    assert (busy.status_code, busy.json()["error"]) == (503, "Backlogged")
    assert (stopping.status_code, stopping.json()["error"]) == (503, "ShuttingDown")


@pytest.mark.parametrize(
    ("failure", "status", "error"),
    [(StoreBusy("locked"), 503, "StoreBusy"), (RuntimeError("a private word"), 500, "InternalError")],
)
async def test_whatever_fails_is_json(http: httpx.AsyncClient, failure: Exception, status: int, error: str) -> None:
    async with web_server(MemoryContext(failure=failure)) as server:
        answer = await http.post(f"{server.url}/api/message", json={"content": "x"})
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert "try again" in answer.json()["message"]
    assert "private" not in answer.text


async def test_guessed_keys_are_429(http: httpx.AsyncClient) -> None:
    async with web_server(api_key=KEY) as server:
        url, body = f"{server.url}/api/message", {"content": "x"}
        for _ in range(5):
            assert (await http.post(url, headers={"Authorization": "Bearer wrong"}, json=body)).status_code == 401
        locked = await http.post(url, headers={"Authorization": "Bearer wrong"}, json=body)
        right = await http.post(url, headers=BEARER, json=body)
    assert (locked.status_code, locked.json()["error"], locked.headers["retry-after"]) == (429, "TooManyAttempts", "10")
    assert right.status_code == 200


async def test_a_new_channel_by_http_is_on_record_with_its_message(http: httpx.AsyncClient) -> None:
    async with web_server() as server:
        refused = await http.post(f"{server.url}/api/message", json={"content": "x", "attachments": ["nobody's"]})
        assert (refused.status_code, server.context.owners) == (400, {})
        kept = await http.post(f"{server.url}/api/message", json={"content": "x"})
    assert [address.channel for address in server.context.owners] == [kept.json()["channelId"]]


# ---- POST /api/upload ----


async def test_an_upload_is_referred_to_by_its_id(http: httpx.AsyncClient) -> None:
    async with web_server() as server, web_client(server.port) as client:
        body = (await upload(http, server, "../../ho\nme/cat.png", PNG, "text/html")).json()
        assert (body["filename"], body["contentType"], body["size"]) == ("cat.png", "image/png", len(PNG))
        assert (await client.say("", attachments=[body["id"], body["id"]]))["type"] == "ack"
    kept = server.context.inbox[0].attachments
    assert kept == (Attachment(id=body["id"], filename="cat.png", content_type="image/png", size=len(PNG)),)
    assert server.context.files[body["id"]][2] == PNG


async def test_another_users_upload_is_not_for_me(http: httpx.AsyncClient) -> None:
    async with web_server(api_key=KEY) as server:
        body = (await upload(http, server, "a.png", PNG, headers=BEARER)).json()
        async with web_client(server.port, apiKey=KEY) as stranger:
            assert body["id"] in (await stranger.say("look", attachments=[body["id"]]))["message"]
        async with web_client(server.port, resumeToken=body["resumeToken"]) as owner:
            assert (await owner.say("look", attachments=[body["id"]]))["type"] == "ack"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xd8\xff\xe0 jpeg", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-1.7", "application/pdf"),
        (b"OggS", "audio/ogg"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        ("Grüße,\n".encode() * 30_000, "text/plain"),
        (b"name,age\n<b>Ada</b>,36\n", "text/plain"),
    ],
)
async def test_the_bytes_tell_the_type(http: httpx.AsyncClient, content: bytes, expected: str) -> None:
    async with web_server() as server:
        answer = await upload(http, server, "file.exe", content)
    assert (answer.status_code, answer.json()["contentType"]) == (200, expected)


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html><p>",
        b"\xef\xbb\xbf \n<HTML>",
        b"<script>alert(1)</script>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"<?xml version='1.0'?><svg/>",
        b"\x00\xaa\x00",
        b"text and\x00zero",
        b"MZ\x90\x00\x03",
        b"PK\x03\x04",
        b"caf\xe9",
        b"",
    ],
)
async def test_what_we_do_not_take_is_415(http: httpx.AsyncClient, content: bytes, tmp_path: Path) -> None:
    async with web_server(upload_dir=tmp_path) as server:
        answer = await upload(http, server, "picture.png", content, "image/png")
    assert (answer.status_code, answer.json()["error"]) == (415, "UnsupportedMedia")
    assert os.listdir(tmp_path) == []


async def test_an_upload_over_the_cap_is_413_and_leaves_nothing(http: httpx.AsyncClient, tmp_path: Path) -> None:
    async with web_server(max_upload_bytes=100_000, upload_dir=tmp_path) as server:
        fits = await upload(http, server, "a.png", PNG.ljust(100_000))
        over = await upload(http, server, "a.png", PNG.ljust(100_001))
        far_over = await upload(http, server, "a.png", PNG.ljust(5_000_000))
    assert [answer.status_code for answer in (fits, over, far_over)] == [200, 413, 413]
    assert "100000" in over.json()["message"]
    assert os.listdir(tmp_path) == []


async def test_an_upload_is_refused_before_it_has_all_arrived() -> None:
    async with web_server(max_upload_bytes=100_000) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        writer.write(
            b"POST /api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: 1000000000\r\n\r\n" + part + PNG.ljust(200_000)
        )
        async with asyncio.timeout(5):
            status = await reader.readline()
        writer.close()
    assert b" 413 " in status


async def test_a_malformed_upload_is_400_or_415(http: httpx.AsyncClient) -> None:
    async with web_server() as server:
        url = f"{server.url}/api/upload"
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        torn = await http.post(url, headers=form, content=b"--b\r\nnonsense")
        no_file = await http.post(url, files={"note": (None, "text")})
        no_boundary = await http.post(url, headers={"Content-Type": "multipart/form-data"}, content=b"x")
        plain = await http.post(url, json={})
    assert [answer.status_code for answer in (torn, no_file, no_boundary, plain)] == [400, 400, 400, 415]


async def test_an_upload_needs_to_know_who_sends_it(http: httpx.AsyncClient) -> None:
    async with web_server(api_key=KEY) as server:
        answer = await upload(http, server, "a.png", PNG)
    assert (answer.status_code, server.context.files) == (401, {})


async def upload(
    http: httpx.AsyncClient,
    server: WebServer,
    name: str,
    content: bytes,
    content_type: str = "application/octet-stream",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """Send one file as a browser's form would."""
    return await http.post(
        f"{server.url}/api/upload", files={"file": (name, io.BytesIO(content), content_type)}, headers=headers
    )


# ---- pages of other origins ----


async def test_a_page_of_ours_gets_cors_and_a_foreign_one_nothing(http: httpx.AsyncClient) -> None:
    async with web_server(dashboard_origins=("http://localhost:8080",)) as server:
        url, ours = f"{server.url}/api/message", {"Origin": "http://localhost:8080"}
        preflight = await http.options(url, headers={**ours, "Access-Control-Request-Method": "POST"})
        answer = await http.post(url, headers=ours, json={"content": "x"})
        foreign = await http.post(url, headers={"Origin": "https://evil.example"}, json={"content": "x"})
        foreign_preflight = await http.options(url, headers={"Origin": "https://evil.example"})
        no_origin = await http.post(url, json={"content": "x"})
    assert preflight.status_code == 204
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:8080"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (foreign.status_code, foreign_preflight.status_code) == (403, 403)
    assert "Access-Control-Allow-Origin" not in foreign.headers
    assert "Access-Control-Allow-Origin" not in no_origin.headers
    assert len(server.context.inbox) == 2


async def test_a_rebound_name_reaches_nothing(http: httpx.AsyncClient) -> None:
    async with web_server() as server:
        for path in ("/health", "/api/message", "/nowhere"):
            answer = await http.get(f"{server.url}{path}", headers={"Host": f"evil.example:{server.port}"})
            assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")


async def test_a_wildcard_bind_answers_to_addresses_but_not_to_names(http: httpx.AsyncClient) -> None:
    async with web_server(host="0.0.0.0", api_key=KEY) as server:
        for host, status in (("192.168.1.5:5070", 200), ("[fe80::1]:5070", 200), ("evil.example", 403)):
            assert (await http.get(f"{server.url}/health", headers={"Host": host})).status_code == status


# ---- webhooks of platforms ----


class Hooked(Bot):
    """A connector that its platform calls by webhook."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return one webhook."""
        return [Route("/events", self._events, methods=["POST"])]

    async def _events(self, _request: Request) -> Response:
        return PlainTextResponse("taken")


async def test_platform_webhooks_share_the_port_under_any_name(http: httpx.AsyncClient) -> None:
    config = WebConfig(signing_key=SIGNING_KEY, port=0, local_owner=True)
    web = WebConnector(config, MemoryContext())
    running = asyncio.create_task(web.run())
    await web.wait_until_started()
    url = f"http://127.0.0.1:{web.port}/platforms/slack/default/events"
    before = await http.post(url)
    with web.webhooks.serve_connector(Hooked("slack")):
        answer = await http.post(url, headers={"Host": "tunnel.example"})
    after = await http.post(url)
    running.cancel()
    await asyncio.wait([running])
    assert answer.text == "taken"
    assert (before.status_code, after.status_code) == (404, 404), "only while its connector runs"

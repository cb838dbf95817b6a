"""Files and buttons that come out of port 5070: told in the frame, the same on resuming, fetched by whose they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from connectors.base import Identity, IdentityRole
from maestro.domain.messages import Address, Button, OutgoingMessage
from tests.support.memory_context import MemoryContext
from tests.support.web_client import web_client
from tests.support.web_server import KEY, WebServer, web_server

NAME = "the plan – „A“.html"
PAGE = b"<script>alert(1)</script>"


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "kept"
    path.write_bytes(PAGE)
    return path


async def sent(server: WebServer, channel: str, kept: Path) -> OutgoingMessage:
    """Send a file that a browser would run if it took it for a page."""
    return await server.answer(channel, "Here it is.", filename=NAME, path=kept, content_type="text/html")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_frame_tells_of_the_file_and_tells_it_again_on_resuming(http: httpx.AsyncClient, kept: Path) -> None:
    buttons = (Button(label="Yes", value="yes #7"), Button(label="No", value="no #7"))
    async with web_server(api_key=KEY) as server:
        async with web_client(server.port, apiKey=KEY, channelId="mine") as client:
            await sent(server, "mine", kept)
            await server.answer("mine", "May I?", buttons=buttons)
            live = [await client.wait_for("message"), await client.wait_for("message")]
        async with web_client(server.port, resumeToken=client.resume_token, channelId="mine", lastId=0) as again:
            resumed = [await again.wait_for("message"), await again.wait_for("message")]
        fetched = await http.get(server.url + live[0]["file"]["url"], headers=bearer(client.resume_token))
    assert live == resumed
    assert (live[0]["content"], live[0]["file"]["filename"], live[0]["file"]["size"]) == (
        "Here it is.",
        NAME,
        len(PAGE),
    )
    assert live[1]["buttons"] == [{"label": "Yes", "value": "yes #7"}, {"label": "No", "value": "no #7"}]
    assert fetched.content == PAGE


async def test_no_browser_takes_a_file_for_a_page(http: httpx.AsyncClient, kept: Path) -> None:
    async with web_server() as server:
        message = await sent(server, "mine", kept)
        fetched = await http.get(f"{server.url}/api/file/mine/{message.id}")
    assert fetched.status_code == 200
    assert fetched.headers["content-disposition"].startswith("attachment; filename*=UTF-8''the%20plan%20")
    assert fetched.headers["x-content-type-options"] == "nosniff"
    assert fetched.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert fetched.headers["cross-origin-resource-policy"] == "same-origin"
    assert "no-store" in fetched.headers["cache-control"]


async def test_a_file_is_there_before_its_receipt_is_and_after_a_restart(http: httpx.AsyncClient, kept: Path) -> None:
    message = OutgoingMessage(
        id=9, address=Address(platform="web", channel="mine"), content="", filename=NAME, path=kept
    )
    async with web_server() as server:
        await server.connector.send(message)
        assert (await http.get(f"{server.url}/api/file/mine/9")).content == PAGE
    async with web_server(MemoryContext(sent=[message])) as server:
        fetched = await http.get(f"{server.url}/api/file/mine/9")
        assert (fetched.content, fetched.headers["content-type"]) == (PAGE, "application/octet-stream")
        await asyncio.to_thread(kept.unlink)
        gone = await http.get(f"{server.url}/api/file/mine/9")
    assert (gone.status_code, gone.json()["error"]) == (404, "NotFound")


async def test_a_text_that_went_as_a_file_is_fetched_as_one(http: httpx.AsyncClient) -> None:
    async with web_server() as server:
        message = await server.answer("mine", "löng", filename="answer.md")
        fetched = await http.get(f"{server.url}/api/file/mine/{message.id}")
    assert (fetched.text, fetched.headers["content-type"]) == ("löng", "text/markdown; charset=utf-8")


async def test_only_whose_the_channel_is_may_fetch_and_nobody_else_learns_what_there_is(
    http: httpx.AsyncClient, kept: Path
) -> None:
    context = MemoryContext(tickets={"ticket": Identity("operator", "Ada", IdentityRole.OWNER)})
    async with web_server(context, api_key=KEY) as server:
        async with (
            web_client(server.port, apiKey=KEY, channelId="mine") as grace,
            web_client(server.port, apiKey=KEY, channelId="other") as alan,
            web_client(server.port, ticket="ticket", channelId="dashboard-agent-1") as operator,
        ):
            url = f"{server.url}/api/file/mine/{(await sent(server, 'mine', kept)).id}"
            of_operator = (
                f"{server.url}/api/file/dashboard-agent-1/{(await sent(server, 'dashboard-agent-1', kept)).id}"
            )
        statuses = [
            (await http.get(at, headers=headers)).status_code
            for at, headers in (
                (url, {}),
                (url, bearer("wrong")),
                (url, bearer(KEY)),
                (url, bearer(alan.resume_token)),
                (url, bearer(grace.resume_token)),
                (of_operator, bearer(grace.resume_token)),
                (of_operator, bearer(operator.resume_token)),
            )
        ]
        assert statuses == [401, 401, 404, 404, 200, 404, 200]
        for path in (
            "mine/999",
            "nobodys/1",
            "mine/-1",
            f"mine/{2**63}",
            "mine/x",
            f"mine/{'9' * 5000}",
            "%2e%2e/1",
            "a%20b/1",
        ):
            missing = await http.get(f"{server.url}/api/file/{path}", headers=bearer(grace.resume_token))
            assert missing.status_code == 404, path
        assert Address(platform="web", channel="nobodys") not in context.owners
        words = await server.answer("mine", "no file")
        told = await http.get(f"{server.url}/api/file/mine/{words.id}", headers=bearer(grace.resume_token))
        assert told.status_code == 404


async def test_a_page_of_ours_on_another_port_may_fetch_and_a_foreign_one_may_not(
    http: httpx.AsyncClient, kept: Path
) -> None:
    async with web_server(dashboard_origins=("http://localhost:8080",)) as server:
        url = f"{server.url}/api/file/mine/{(await sent(server, 'mine', kept)).id}"
        ours = {"Origin": "http://localhost:8080"}
        asked = await http.options(url, headers={**ours, "Access-Control-Request-Method": "GET"})
        assert "GET" in asked.headers["access-control-allow-methods"]
        assert (await http.get(url, headers=ours)).headers["access-control-allow-origin"] == "http://localhost:8080"
        assert (await http.get(url, headers={"Origin": "http://evil.example"})).status_code == 403

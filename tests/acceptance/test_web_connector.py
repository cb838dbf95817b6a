"""What clients of port 5070 rely on, over real sockets."""

import asyncio
import contextlib
import random
import socket

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from connectors.base import ConnectorState, Identity, IdentityRole
from connectors.web import WebConfig, WebConnector
from maestro.domain.errors import ConfigurationError, PortTaken
from maestro.domain.messages import Address, OutgoingMessage
from tests.support.memory_context import MemoryContext
from tests.support.web_client import WebClient, web_client
from tests.support.web_server import KEY, SIGNING_KEY, web_server

OPERATOR = Identity("operator", "Ada", IdentityRole.OWNER)


# ---- messages ----


async def test_a_message_is_acknowledged_once_it_is_kept() -> None:
    context = MemoryContext(before_accept=asyncio.Event())
    assert context.before_accept is not None
    async with web_server(context) as server, web_client(server.port, userName="Ada") as client:
        await client.send({"type": "message", "clientId": "one", "content": "hello"})
        assert await client.silent()
        context.before_accept.set()
        ack = await client.wait_for("ack")
    [kept] = context.inbox
    assert ack == {"type": "ack", "messageId": kept.id, "duplicate": False, "clientId": "one"}
    assert (kept.user_id, kept.user_name, kept.content, kept.is_direct) == ("local", "Ada", "hello", True)
    assert kept.address == Address(platform="web", channel=client.channel)


async def test_a_resent_client_id_is_a_duplicate() -> None:
    async with web_server() as server, web_client(server.port) as client:
        first, second = await client.say("hello", "one"), await client.say("hello", "one")
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["messageId"] == second["messageId"]
    assert len(server.context.inbox) == 1


async def test_messages_without_a_client_id_are_all_kept_in_order() -> None:
    async with web_server() as server, web_client(server.port) as client:
        for number in range(50):
            await client.send({"type": "message", "content": str(number)})
        for _ in range(50):
            assert (await client.next())["duplicate"] is False
    assert [kept.content for kept in server.context.inbox] == [str(number) for number in range(50)]


async def test_two_users_may_use_the_same_client_id() -> None:
    async with (
        web_server(api_key=KEY) as server,
        web_client(server.port, apiKey=KEY) as one,
        web_client(server.port, apiKey=KEY) as two,
    ):
        assert (await one.say("from one", "same"))["duplicate"] is False
        assert (await two.say("from two", "same"))["duplicate"] is False
    assert len({kept.id for kept in server.context.inbox}) == 2


async def test_a_full_inbox_says_busy_and_keeps_nothing() -> None:
    async with web_server(MemoryContext(limit=0)) as server, web_client(server.port) as client:
        refused = await client.say("hello", "one")
        assert refused["error"] == "Backlogged"
        assert "try again" in refused["message"]
        assert refused["clientId"] == "one"
        server.context.limit = 1
        assert (await client.say("hello", "one"))["duplicate"] is False


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"content": ""}, "empty"),
        ({"content": " \n"}, "empty"),
        ({"content": 7}, "content"),
        ({}, "content"),
        ({"content": "x" * 300_001}, "300000"),
        ({"content": "x", "clientId": ""}, "clientId"),
        ({"content": "x", "clientId": 5}, "clientId"),
        ({"content": "x", "clientId": "y" * 129}, "clientId"),
        ({"content": "x", "clientId": "a\nb"}, "clientId"),
        ({"content": "x", "attachments": "id"}, "attachments"),
        ({"content": "x", "attachments": ["nobody's"]}, "nobody's"),
        ({"content": "x", "attachments": ["id"] * 11}, "attachments"),
    ],
)
async def test_a_message_that_breaks_a_rule_is_refused_by_name(fields: dict[str, object], names: str) -> None:
    async with web_server() as server, web_client(server.port) as client:
        await client.send({"type": "message", **fields})
        error = await client.next()
        assert error["type"] == "error"
        assert names in error["message"]
        assert (await client.say("x" * 10))["type"] == "ack"
    assert len(server.context.inbox) == 1


async def test_what_no_store_takes_is_cleaned_away() -> None:
    async with web_server() as server, web_client(server.port) as client:
        await client.send('{"type":"message","content":"a\\u0000b \\ud83d c \\ud83d\\ude42"}')
        assert (await client.next())["type"] == "ack"
    assert server.context.inbox[0].content == "ab \ufffd c 🙂"


async def test_stop_reaches_the_intake_as_a_control_word() -> None:
    async with web_server() as server, web_client(server.port) as client:
        for _ in range(2):
            await client.send({"type": "stop"})
            assert (await client.next())["duplicate"] is False
    assert [kept.content for kept in server.context.inbox] == ["/stop", "/stop"]


async def test_ping_pong_and_frames_that_make_no_sense() -> None:
    async with web_server() as server, web_client(server.port) as client:
        nonsense: list[str | bytes] = [
            "not json",
            "[]",
            "5",
            "[" * 50_000,
            "{}",
            '{"type":"hm"}',
            '{"type":["x"]}',
            '{"type":"auth"}',
            b"\x00",
        ]
        for frame in nonsense:
            await client.send(frame)
            assert (await client.next())["type"] == "error", frame
        await client.send({"type": "ping"})
        assert await client.next() == {"type": "pong"}


async def test_a_frame_over_the_cap_closes_with_1009() -> None:
    async with web_server(max_frame_bytes=1024 * 1024) as server, web_client(server.port) as client:
        await client.send("x" * (2 * 1024 * 1024))
        assert await client.closed() == 1009


# ---- who is who ----


async def test_without_key_and_password_the_local_person_is_the_owner() -> None:
    async with web_server() as server, web_client(server.port, channelId="dashboard-agent-7") as client:
        await client.say("hello")
        assert client.user == "local"
    assert (server.context.inbox[0].is_owner, server.context.inbox[0].user_name) == (True, "you")


async def test_a_client_with_the_key_is_a_user_of_its_own() -> None:
    async with web_server(api_key=KEY) as server:
        async with web_client(server.port, apiKey=KEY) as one, web_client(server.port, apiKey=KEY) as two:
            assert one.user.startswith("web-")
            assert one.user != two.user
            await one.say("hello")
        token, channel = one.resume_token, one.channel
        async with web_client(server.port, apiKey=KEY, resumeToken=token, channelId=channel) as again:
            assert again.user == one.user
    assert server.context.inbox[0].is_owner is False


async def test_a_ticket_makes_the_operator_and_works_once() -> None:
    context = MemoryContext(tickets={"t-1": OPERATOR})
    async with web_server(context, api_key=KEY) as server:
        async with web_client(server.port, ticket="t-1", channelId="dashboard-agent-coder") as client:
            await client.say("hello")
        assert (context.inbox[0].user_id, context.inbox[0].is_owner) == ("operator", True)
        await refused(server.port, 4401, ticket="t-1")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"apiKey": "wrong"},
        {"apiKey": KEY + "x"},
        {"apiKey": 5},
        {"ticket": "unknown"},
        {"resumeToken": "a.b"},
        {"resumeToken": "...."},
        {"resumeToken": "ü.ü"},
        {"apiKey": KEY, "lastId": -1},
        {"apiKey": KEY, "lastId": True},
        {"apiKey": KEY, "lastId": "x"},
        {"apiKey": KEY, "channelId": "no spaces"},
        {"apiKey": KEY, "channelId": "x" * 129},
    ],
)
async def test_a_bad_auth_frame_gets_a_reason_and_the_door(fields: dict[str, object]) -> None:
    async with web_server(api_key=KEY) as server:
        await refused(server.port, 4401, **fields)
        assert await server.clients() == 0


async def test_a_password_without_a_key_leaves_only_tickets() -> None:
    async with web_server(local_owner=False) as server:
        await refused(server.port, 4401)
        await refused(server.port, 4401, apiKey="anything")


async def test_a_resume_token_cannot_be_changed() -> None:
    async with web_server(api_key=KEY) as server:
        async with web_client(server.port, apiKey=KEY) as client:
            body, _, signature = client.resume_token.partition(".")
        for forged in (body[:-2] + "AA." + signature, body + "." + signature[:-2] + "AA", body, "." + signature):
            await refused(server.port, 4401, resumeToken=forged)
        await refused(server.port, 4401, resumeToken=client.resume_token, apiKey="wrong")


async def test_a_local_token_is_worth_nothing_once_a_key_is_set() -> None:
    async with web_server() as server, web_client(server.port) as client:
        token = client.resume_token
    async with web_server(api_key=KEY) as server:
        await refused(server.port, 4401, resumeToken=token)


async def test_a_channel_belongs_to_who_opened_it() -> None:
    async with web_server(api_key=KEY) as server, web_client(server.port, apiKey=KEY, channelId="mine") as client:
        await refused(server.port, 4403, apiKey=KEY, channelId="mine")
        await refused(server.port, 4403, apiKey=KEY, channelId="dashboard-agent-1")
        async with web_client(server.port, apiKey=KEY) as other:
            await server.answer("mine", "secret")
            assert await other.silent()
        assert (await client.next())["content"] == "secret"


async def test_a_new_channel_is_the_openers_and_on_record_once_something_is_said() -> None:
    async with web_server(api_key=KEY) as server:
        async with web_client(server.port, apiKey=KEY) as client:
            assert server.context.owners == {}
            await refused(server.port, 4403, apiKey=KEY, channelId=client.channel)
            await client.say("hello")
            await client.say("again")
            await refused(server.port, 4403, apiKey=KEY, channelId=client.channel)
        await refused(server.port, 4403, apiKey=KEY, channelId=client.channel)
        async with web_client(server.port, apiKey=KEY) as silent:
            pass
    assert server.context.owners == {Address(platform="web", channel=client.channel): client.user}
    assert silent.channel != client.channel


async def test_wrong_keys_are_slowed_down() -> None:
    async with web_server(api_key=KEY) as server:
        for _ in range(5):
            await refused(server.port, 4401, apiKey="wrong")
        await refused(server.port, 1013, apiKey="wrong")
        async with web_client(server.port, apiKey=KEY) as client:
            assert client.auth["type"] == "auth_ok"


async def test_nothing_happens_before_auth() -> None:
    async with web_server(auth_timeout=0.2) as server:
        for frame in ({"type": "message", "content": "x"}, {"type": "ping"}, "not json", b"\x01"):
            async with web_client(server.port, auth=False) as client:
                await client.send(frame)
                assert (await client.next())["type"] == "error"
                assert await client.closed() == 4401
        async with web_client(server.port, auth=False) as client:
            assert "in time" in (await client.next())["message"]
            assert await client.closed() == 4401
    assert server.context.inbox == []


async def refused(port: int, code: int, **fields: object) -> None:
    """Expect an error frame with a text, then this close code."""
    async with web_client(port, auth=False) as client:
        answer = await client.authenticate(**fields)
        assert answer["type"] == "error"
        assert answer["message"]
        assert await client.closed() == code


# ---- answers and resuming ----


async def test_every_socket_of_a_channel_hears_everything() -> None:
    answer = {"type": "message", "id": 1, "channelId": "c", "content": "hi", "replyTo": "local:one"}
    async with (
        web_server() as server,
        web_client(server.port, channelId="c") as one,
        web_client(server.port, channelId="c") as two,
    ):
        await server.connector.typing(Address(platform="web", channel="c"))
        await server.answer("c", "hi", reply_to="local:one")
        for client in (one, two):
            assert await client.next() == {"type": "typing", "channelId": "c"}
            assert await client.next() == answer


async def test_auth_ok_names_the_installation() -> None:
    async with web_server() as server, web_client(server.port) as one, web_client(server.port) as two:
        assert one.auth["clientId"] != two.auth["clientId"]
        assert one.auth["instance"] == two.auth["instance"]
    async with web_server(signing_key=b"of another data folder") as server, web_client(server.port) as other:
        assert other.auth["instance"] != one.auth["instance"]


async def test_a_reconnect_gets_exactly_what_it_missed() -> None:
    async with web_server() as server:
        async with web_client(server.port) as client:
            await server.answer(client.channel, "seen")
            await client.wait_for("message")
        await server.answer("somebody-elses", "not for us")
        for text in ("missed 1", "missed 2"):
            await server.answer(client.channel, text)
        async with web_client(server.port, channelId=client.channel, lastId=str(client.last_id)) as again:
            assert [(await again.next())["content"] for _ in range(2)] == ["missed 1", "missed 2"]
            assert await again.next() == {"type": "resumed", "lastId": 4}
            await server.answer(client.channel, "live")
            assert (await again.next())["content"] == "live"
            assert await again.silent()


async def test_without_last_id_nothing_old_is_sent() -> None:
    async with web_server() as server:
        await server.answer("c", "old")
        async with web_client(server.port, channelId="c") as client:
            assert await client.silent()
        async with web_client(server.port, channelId="c", lastId=0) as client:
            assert (await client.next())["content"] == "old"
            assert await client.next() == {"type": "resumed", "lastId": 1}


async def test_what_is_sent_during_the_replay_comes_after_it_and_once() -> None:
    context = MemoryContext(before_replay=asyncio.Event())
    assert context.before_replay is not None
    async with web_server(context) as server:
        await server.answer("c", "1")
        async with web_client(server.port, channelId="c", lastId=0) as client:
            first = await server.answer("c", "2")
            await server.connector.send(first)
            context.before_replay.set()
            assert [(await client.next()).get("content") for _ in range(2)] == ["1", "2"]
            assert await client.next() == {"type": "resumed", "lastId": 2}
            await server.connector.send(first)
            assert await client.silent()


async def test_what_is_sent_but_not_yet_on_record_is_not_missed() -> None:
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="just now")
    async with web_server() as server:
        await server.connector.send(message)
        async with web_client(server.port, channelId="c", lastId=6) as client:
            assert (await client.next())["content"] == "just now"
            assert await client.next() == {"type": "resumed", "lastId": 7}


async def test_no_gap_and_no_double_however_often_a_client_comes_back() -> None:
    total, source = 400, random.Random(5)
    async with web_server() as server:

        async def deliver() -> None:
            for number in range(total):
                await server.answer("c", str(number))
                await asyncio.sleep(source.random() * 0.003)

        delivering = asyncio.create_task(deliver())
        got: list[int] = []
        while len(got) < total:
            async with web_client(server.port, channelId="c", lastId=got[-1] if got else 0) as client:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(source.random() * 0.08):
                        while len(got) < total:
                            got.append((await client.wait_for("message"))["id"])
                got.extend(
                    frame["id"] for frame in client.frames if frame["type"] == "message" and frame["id"] > got[-1]
                )
        await delivering
    assert got == list(range(1, total + 1))


async def test_a_client_that_does_not_read_is_dropped_and_resumes() -> None:
    async with web_server(queue_limit=8) as server:
        async with connect(f"ws://127.0.0.1:{server.port}/", max_queue=1, compression=None) as slow:
            client = WebClient(slow)
            await client.authenticate(channelId="c")
            for _ in range(400):
                await server.answer("c", "x" * 30_000)
                await asyncio.sleep(0)
            await asyncio.sleep(0.3)
            assert await server.clients() == 0
            assert await client.closed() == 1013
        assert 0 < client.last_id < 400
        async with web_client(server.port, channelId="c", lastId=client.last_id) as again:
            assert (await again.wait_for("resumed"))["lastId"] == 400
            assert [f["id"] for f in again.frames if f["type"] == "message"] == list(range(client.last_id + 1, 401))


# ---- start, drain, stop ----


async def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        connector = WebConnector(WebConfig(signing_key=SIGNING_KEY, port=port, local_owner=True), MemoryContext())
        with pytest.raises(PortTaken, match=rf"{port}.*web\.port.*--web-port"):
            await connector.run()
        with pytest.raises(PortTaken):
            await connector.wait_until_started()


def test_a_bind_beyond_loopback_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match=r"web\.apiKey"):
        WebConfig(signing_key=SIGNING_KEY, host="0.0.0.0")


async def test_localhost_answers_on_both_families() -> None:
    async with web_server(host="localhost") as server:
        for host in ("127.0.0.1", "localhost"):
            async with web_client(server.port, host=host) as client:
                assert (await client.say("hello"))["type"] == "ack"


async def test_a_drain_refuses_what_is_new_and_delivers_what_is_owed() -> None:
    async with web_server() as server, web_client(server.port, channelId="c") as client:
        server.connector.stop_accepting()
        refusal = await client.say("late", "one")
        assert refusal["error"] == "ShuttingDown"
        await server.answer("c", "owed")
        assert (await client.wait_for("message"))["content"] == "owed"
        server.task.cancel()
        assert await client.closed() == 1012
    assert server.context.inbox == []
    assert [state for state, _ in server.context.states] == [
        ConnectorState.STARTING,
        ConnectorState.RUNNING,
        ConnectorState.STOPPED,
    ]


async def test_a_stop_with_idle_sockets_is_quick() -> None:
    async with web_server() as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(web_client(server.port)) for _ in range(20)]
        server.task.cancel()
        async with asyncio.timeout(2):
            await asyncio.wait([server.task])
        for client in clients:
            with pytest.raises(ConnectionClosed):
                await client.next()


# ---- foreign pages ----


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8081"},
        {"Origin": "https://localhost:8080"},
        {"Origin": "http://localhost:8080.evil.example"},
        {"Origin": "file://"},
    ],
)
async def test_a_foreign_origin_is_refused_before_the_upgrade(headers: dict[str, str]) -> None:
    async with web_server(dashboard_origins=("http://localhost:8080",)) as server:
        with pytest.raises(InvalidStatus, match="403"):
            async with web_client(server.port, headers=headers):
                pass


async def test_our_own_origins_pass() -> None:
    ours, others = ("http://localhost:8080",), ("https://chat.example",)
    async with web_server(dashboard_origins=ours, allowed_origins=others) as server:
        own = f"http://127.0.0.1:{server.port}"
        for origin in ("http://localhost:8080", "https://chat.example", "HTTPS://chat.example:443", own):
            async with web_client(server.port, headers={"Origin": origin}) as client:
                assert client.user == "local"


async def test_a_name_that_is_not_ours_is_refused() -> None:
    async with web_server(allowed_hosts=("maestro.lan",)) as server:
        for host, status in (
            ("evil.example", "403"),
            ("", "403"),
            ("localhost@evil", "403"),
            ("maestro.lan:5070", "101"),
        ):
            assert await upgrade_status(server.port, host) == status


async def upgrade_status(port: int, host: str) -> str:
    """Ask for a WebSocket under a made-up Host header and return the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    status = (await reader.readline()).split()[1].decode()
    writer.close()
    return status

"""The client of ``maestro chat`` against the real web connector: it comes back, and says again what was not heard."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from connectors.web_client import ChatClient, ChatFailed, ChatVisit, ForeignChannel, Frame
from maestro.cli.chat import ChatScreen, ask_once
from maestro.domain.messages import Address
from tests.support.command import maestro
from tests.support.instance import until
from tests.support.memory_context import MemoryContext
from tests.support.ports import free_port
from tests.support.web_server import KEY, WebServer, web_server

PATIENCE = 30.0
CHANNEL = "terminal-grace-1"


@dataclass
class Guest:
    """A client that listens in the background; ``heard`` is all it yields, ``kept`` what it remembers."""

    client: ChatClient
    heard: list[Frame] = field(default_factory=list)
    kept: list[ChatVisit] = field(default_factory=list)

    async def listen(self) -> None:
        async with contextlib.aclosing(self.client.receive_frames()) as frames:
            async for frame in frames:
                self.heard.append(frame)

    def said(self, kind: str) -> list[Frame]:
        return [frame for frame in self.heard if frame["type"] == kind]

    async def hears(self, kind: str, count: int = 1) -> None:
        await until(lambda: len(self.said(kind)) >= count, PATIENCE, what=f"{count} frames {kind}")


def url_of(port: int) -> str:
    return f"ws://127.0.0.1:{port}/"


@contextlib.asynccontextmanager
async def listening(somebody: Guest) -> AsyncIterator[None]:
    """Let a client listen for the length of a block."""
    task = asyncio.create_task(somebody.listen())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def guest(port: int, visit: ChatVisit | None = None, key: str = "") -> AsyncIterator[Guest]:
    """Let a new client listen for the length of a block."""
    kept: list[ChatVisit] = []
    visit = visit or ChatVisit(url=url_of(port), channel=CHANNEL, last_id=0)
    listener = Guest(ChatClient(url_of(port), {"apiKey": key, "userName": "Grace"}, visit, kept.append), kept=kept)
    async with listening(listener):
        yield listener


@contextlib.asynccontextmanager
async def returning(port: int, context: MemoryContext) -> AsyncIterator[Guest]:
    """Let a client listen that was let in once, so that it waits while nobody is there."""
    async with web_server(context, port=port), guest(port) as somebody:
        await somebody.hears("resumed")
    somebody.heard.clear()
    async with listening(somebody):
        yield somebody


async def refusal(port: int, visit: ChatVisit | None = None, key: str = "") -> Exception:
    """Return why a client is not let in."""
    visit = visit or ChatVisit(url=url_of(port), channel=CHANNEL, last_id=0)
    listener = Guest(ChatClient(url_of(port), {"apiKey": key, "userName": "Grace"}, visit, lambda _: None))
    with pytest.raises(ChatFailed) as caught:
        await asyncio.wait_for(listener.listen(), PATIENCE)
    return caught.value


async def replied(server: WebServer, *contents: str, count: int = 1) -> None:
    """Answer the message of this number when it is there, in as many chunks as there are texts."""
    await until(lambda: len(server.context.inbox) == count, PATIENCE)
    message = server.context.inbox[-1]
    for number, content in enumerate(contents, start=1):
        reply_to = message.id if number == 1 else ""
        await server.answer(message.address.channel, content, reply_to, more=number < len(contents))


# Nothing is lost, nothing is doubled


async def test_what_was_never_acknowledged_is_said_again_under_its_id() -> None:
    port, context = free_port(), MemoryContext(before_accept=asyncio.Event())
    async with returning(port, context) as somebody:
        async with web_server(context, port=port):
            await somebody.hears("resumed")
            await somebody.client.send_message("one", "hello")
            await until(lambda: bool(somebody.client.unacknowledged))
        await somebody.hears("away")
        context.before_accept = None
        async with web_server(context, port=port):
            await somebody.hears("ack")
            assert not somebody.client.unacknowledged
    assert [(kept.id, kept.content) for kept in context.inbox] == [("local:one", "hello")]


async def test_what_is_said_while_nobody_is_there_goes_out_later_in_order() -> None:
    port, context = free_port(), MemoryContext()
    async with returning(port, context) as somebody:
        await somebody.client.send_message("one", "first")
        await somebody.client.send_message("two", "second")
        async with web_server(context, port=port):
            await somebody.hears("ack", 2)
    assert [kept.content for kept in context.inbox] == ["first", "second"]


async def test_what_was_missed_is_heard_once_over_two_connections() -> None:
    async with web_server() as server:
        async with guest(server.port) as first:
            await first.hears("resumed")
            await server.answer(CHANNEL, "live")
            await first.hears("message")
        await server.answer(CHANNEL, "missed")
        async with guest(server.port, first.kept[-1]) as second:
            await second.hears("resumed")
    assert [frame["content"] for frame in (*first.said("message"), *second.said("message"))] == ["live", "missed"]


async def test_who_has_never_been_in_a_channel_does_not_hear_its_history() -> None:
    async with web_server() as server:
        await server.answer(CHANNEL, "long ago")
        async with guest(server.port, ChatVisit(url=url_of(server.port), channel=CHANNEL)) as somebody:
            await somebody.hears("resumed")
            await server.answer(CHANNEL, "now")
            await somebody.hears("message")
    assert [frame["content"] for frame in somebody.said("message")] == ["now"]
    assert somebody.kept[-1].last_id == 2


async def test_ids_of_another_installation_mean_nothing_here() -> None:
    visit = ChatVisit(url="ws://x/", channel=CHANNEL, resume_token="of.another", instance="another", last_id=1_000)
    async with web_server() as server, guest(server.port, visit) as somebody:
        await somebody.hears("resumed")
        await server.answer(CHANNEL, "hello")
        await somebody.hears("message")
    assert (somebody.kept[-1].last_id, somebody.kept[-1].channel) == (1, CHANNEL)


async def test_a_full_inbox_is_tried_again_until_there_is_room() -> None:
    context = MemoryContext(limit=0)
    async with web_server(context) as server, guest(server.port) as somebody:
        await somebody.hears("resumed")
        await somebody.client.send_message("one", "hello")
        context.limit = 1
        await somebody.hears("ack")
    assert somebody.said("error") == []
    assert [kept.id for kept in context.inbox] == ["local:one"]


async def test_what_will_never_be_taken_is_told_once() -> None:
    async with web_server() as server, guest(server.port) as somebody:
        await somebody.hears("resumed")
        await somebody.client.send_message("one", "x" * 300_001)
        await somebody.hears("error")
        assert not somebody.client.unacknowledged
    assert "300000" in somebody.said("error")[0]["message"]


# Who is who


async def test_a_key_makes_a_user_and_the_token_keeps_them_the_same() -> None:
    async with web_server(api_key=KEY) as server:
        async with guest(server.port, key=KEY) as first:
            await first.hears("resumed")
            await first.client.send_message("one", "hello")
            await first.hears("ack")
        async with guest(server.port, first.kept[-1], key=KEY) as second:
            await second.hears("resumed")
            await second.client.send_message("two", "again")
            await second.hears("ack")
    assert len({kept.user_id for kept in server.context.inbox}) == 1
    assert {kept.user_name for kept in server.context.inbox} == {"Grace"}


async def test_an_expired_token_is_left_out_the_next_time() -> None:
    visit = ChatVisit(url="ws://x/", channel=CHANNEL, resume_token="not.valid", last_id=0)
    async with web_server() as server, guest(server.port, visit) as somebody:
        await somebody.hears("resumed")
    assert somebody.kept[-1].resume_token not in ("", "not.valid")


async def test_a_person_with_a_key_is_one_user_to_all_agents(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path), "MAESTRO_WEB_API_KEY": KEY}
    async with web_server(api_key=KEY) as server:
        for count, options in enumerate(((), ("--agent", "ada"), ("--channel", "third")), start=1):
            words = ("hello", "--url", url_of(server.port), *options)
            asking = asyncio.create_task(maestro("chat", *words, folder=tmp_path, environment=environment))
            await replied(server, "yes", count=count)
            assert (await asking).output == "yes\n"
    assert len({message.user_id for message in server.context.inbox}) == 1
    assert len({message.address for message in server.context.inbox}) == 3


async def test_a_channel_that_is_not_ours_any_more_is_replaced_by_another(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path), "MAESTRO_WEB_API_KEY": KEY}
    async with web_server(api_key=KEY) as server:
        for count, said in enumerate(("first", "second"), start=1):
            asking = asyncio.create_task(
                maestro("chat", said, "--url", url_of(server.port), folder=tmp_path, environment=environment)
            )
            await replied(server, "yes", count=count)
            ended = await asking
            assert (ended.code, ended.output) == (0, "yes\n")
            (kept,) = (tmp_path / "maestro" / "chat").iterdir()
            visit = ChatVisit.model_validate_json(kept.read_text())
            kept.write_text(visit.model_copy(update={"resume_token": ""}).model_dump_json())
    assert "now belongs to another user" in ended.errors
    assert len({message.address for message in server.context.inbox}) == 2


async def test_a_channel_of_somebody_else_is_refused() -> None:
    context = MemoryContext(owners={Address(platform="web", channel=CHANNEL): "somebody"})
    async with web_server(context) as server:
        error = await refusal(server.port)
    assert isinstance(error, ForeignChannel)
    assert "--channel" in str(error)


async def test_a_missing_key_is_refused_with_the_name_of_the_setting() -> None:
    async with web_server(api_key=KEY) as server:
        for key in ("", "wrong"):
            assert "web.apiKey" in str(await refusal(server.port, key=key))


async def test_nobody_there_is_told_at_once() -> None:
    assert "does not answer at" in str(await refusal(free_port()))


# One message and its answer


def newcomer(server: WebServer) -> ChatClient:
    """Return a client that has not been in the channel before."""
    return ChatClient(url_of(server.port), {}, ChatVisit(url="ws://x/", channel=CHANNEL, last_id=0), lambda _: None)


async def test_an_answer_in_several_chunks_is_whole_however_short_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    async with web_server() as server:
        answering = asyncio.create_task(replied(server, "one", "two", "the end"))
        await ask_once(newcomer(server), "tell me everything", PATIENCE, ChatScreen(as_json=False))
        await answering
    assert capsys.readouterr().out.splitlines() == ["one", "two", "the end"]


async def test_an_answer_of_which_a_part_is_missing_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with web_server() as server:
        asking = asyncio.create_task(ask_once(newcomer(server), "tell me", 3, ChatScreen(as_json=False)))
        await until(lambda: len(server.context.inbox) == 1, PATIENCE)
        await server.answer(CHANNEL, "one", server.context.inbox[0].id, more=True)
        with pytest.raises(ChatFailed, match="only a part of the answer"):
            await asking
    assert capsys.readouterr().out == "one\n"


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_notice_in_the_place_of_an_answer_is_a_failure(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async with web_server() as server:
        asking = asyncio.create_task(ask_once(newcomer(server), "tell me", PATIENCE, ChatScreen(as_json)))
        await until(lambda: len(server.context.inbox) == 1, PATIENCE)
        await server.answer(CHANNEL, "Sorry.", server.context.inbox[0].id, notice=True)
        with pytest.raises(ChatFailed, match=r"Sorry\."):
            await asking
    written = capsys.readouterr().out
    assert (json.loads(written)["notice"] if as_json else written == "") is True


async def test_a_message_that_is_not_taken_in_time_is_told_apart_from_one_without_an_answer() -> None:
    async with web_server() as server:
        for context_limit, words in ((10, "no answer within"), (0, "has not confirmed the message")):
            server.context.limit = context_limit
            with pytest.raises(ChatFailed, match=words):
                await ask_once(newcomer(server), "hello", 1, ChatScreen(as_json=False))

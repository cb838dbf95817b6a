"""How chunks leave, what Discord's errors mean, and that a repeat is seen once, met with the real discord.py."""

from datetime import UTC, datetime, timedelta

import pytest

from connectors.base import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from connectors.discord.connector import CAPABILITIES
from maestro.domain.messages import Address
from tests.support.discord_bot import address, bot, chunk, connected
from tests.support.discord_server import Channel, DiscordServer, Fault, User
from tests.support.discord_server.faults import Cut
from tests.support.instance import until
from tests.support.memory_context import MemoryContext

SUPPRESS_EMBEDS = 4


def contents(discord: DiscordServer, channel: Channel) -> list[str]:
    """Return what the bot sent to a channel."""
    return [message.content for message in discord.posts(channel)]


async def test_nobody_is_pinged_and_no_link_is_previewed(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        receipt = await connector.send(
            chunk(square, "@everyone see https://example.com/?secret", key="0123456789abcdefghijklmno")
        )
    [post] = discord.posts(square)
    assert (str(post.id), post.nonce) == (receipt.platform_message_id, "0123456789abcdefghijklmno")
    assert post.allowed_mentions == {"parse": []}
    assert post.flags & SUPPRESS_EMBEDS


async def test_a_chunk_goes_to_its_thread_and_may_reply(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    thread = discord.channel("thread", parent=square)
    said = discord.write(ann, thread, "hello")
    async with connected(discord, context) as connector:
        await connector.send(chunk(thread, "answer", reply_to=str(said.id)))
    assert [post.reply_to for post in discord.posts(thread)] == [said.id]
    assert discord.asked("messages")[0].body["message_reference"]["fail_if_not_exists"] is False


async def test_a_long_text_goes_as_a_file(discord: DiscordServer, context: MemoryContext, square: Channel) -> None:
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "much\n" * 5000, filename="answer.md"))
    [post] = discord.posts(square)
    assert (post.content, post.nonce) == ("", "key1")
    assert [(file["filename"], file["text"]) for file in post.attachments] == [("answer.md", "much\n" * 5000)]


async def test_a_repeat_with_the_same_key_is_one_message(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        first = await connector.send(chunk(square, "answer"))
        again = await connector.send(chunk(square, "answer"))
        await connector.send(chunk(square, "answer", key="key2"))
    assert first == again
    assert contents(discord, square) == ["answer", "answer"]


async def test_a_connection_cut_after_the_server_took_it_is_ambiguous_and_its_repeat_no_second_message(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        discord.fail("POST", "messages", Fault.cut_after())
        with pytest.raises(AmbiguousSend):
            await connector.send(chunk(square, "answer"))
        receipt = await connector.send(chunk(square, "answer"))
    assert [str(post.id) for post in discord.posts(square)] == [receipt.platform_message_id]


async def test_a_limit_is_waited_for(discord: DiscordServer, context: MemoryContext, square: Channel) -> None:
    async with connected(discord, context) as connector:
        discord.fail("POST", "messages", Fault.limited(0.05))
        await connector.send(chunk(square, "answer"))
    assert contents(discord, square) == ["answer"]


@pytest.mark.parametrize(
    ("fault", "expected", "scope"),
    [
        (Fault(503), AmbiguousSend, None),
        (Fault(status=0, cut=Cut.BEFORE), AmbiguousSend, None),
        (Fault(403, 50013), PermanentSend, FailureScope.CHANNEL),
        (Fault(403, 50001), PermanentSend, FailureScope.CHANNEL),
        (Fault(403, 50007), PermanentSend, FailureScope.CHANNEL),
        (Fault(404, 10003), PermanentSend, FailureScope.CHANNEL),
        (Fault(400, 50035), PermanentSend, FailureScope.MESSAGE),
        (Fault(401), PermanentSend, FailureScope.ACCOUNT),
        (Fault.limited(7, cloudflare=True), RetryableSend, None),
        (Fault.limited(3600), RetryableSend, None),
    ],
)
async def test_what_an_error_means(
    discord: DiscordServer,
    context: MemoryContext,
    square: Channel,
    fault: Fault,
    expected: type[SendFailure],
    scope: FailureScope | None,
) -> None:
    async with connected(discord, context) as connector:
        discord.fail("POST", "messages", fault)
        with pytest.raises(expected) as failed:
            await connector.send(chunk(square, "a secret answer"))
    assert len(discord.asked("messages")) == 1
    assert getattr(failed.value, "scope", None) is scope
    assert "secret" not in str(failed.value)
    if isinstance(failed.value, RetryableSend):
        assert failed.value.retry_after == timedelta(seconds=fault.retry_after)


async def test_without_a_connection_nothing_is_sent(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    with pytest.raises(NotDispatched):
        await bot(discord, context).send(chunk(square, "answer"))


async def test_what_is_no_channel_of_discord_is_refused_for_good(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    nowhere = chunk(square, "answer").model_copy(update={"address": Address(platform="discord", channel="general")})
    async with connected(discord, context) as connector:
        with pytest.raises(PermanentSend):
            await connector.send(nowhere)
    assert discord.asked("messages") == []


async def test_a_message_sent_long_ago_is_found_again(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    begun = datetime.now(UTC)
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "answer"))
        discord.write(ann, square, "other")
        assert await connector.find(chunk(square, "answer", tried_at=begun)) == receipt
        assert await connector.find(chunk(square, "other", tried_at=begun)) is None
        assert await connector.find(chunk(square, "answer", tried_at=begun + timedelta(hours=1))) is None
        filed = await connector.send(chunk(square, "much", key="key2", filename="answer.md"))
        assert await connector.find(chunk(square, "much", tried_at=begun, filename="answer.md")) == filed


async def test_the_same_words_in_reply_to_somebody_else_are_another_message(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    begun = datetime.now(UTC)
    questions = [str(discord.write(ann, square, "?").id) for _ in range(2)]
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "Yes.", reply_to=questions[0]))
        lost = chunk(square, "Yes.", key="key2", tried_at=begun, reply_to=questions[1])
        assert await connector.find(lost) is None
        assert await connector.find(lost.model_copy(update={"reply_to": questions[0]})) == receipt


async def test_typing_is_shown(discord: DiscordServer, context: MemoryContext, square: Channel) -> None:
    thread = discord.channel("thread", parent=square)
    async with connected(discord, context) as connector:
        await connector.typing(address(thread))
        discord.fail("POST", "typing", Fault(403, 50001))
        with pytest.raises(PermanentSend):
            await connector.typing(address(square))
    assert discord.typed == [thread.id]
    assert CAPABILITIES.typing_interval < 10


async def test_a_slash_command_is_acknowledged_and_answered_to_nobody_else(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        await until(lambda: discord.commands == ["stop", "status", "new"])
        token = discord.command(ann, square, "stop")
        await until(lambda: len(context.inbox) == 1)
        [message] = context.inbox
        assert (message.content, message.user_id, message.address) == ("/stop", str(ann.id), address(square))
        await connector.send(chunk(square, "Stopped.", reply_to=message.id))
    deferred, replied = discord.said_to(token)
    assert (deferred["type"], deferred["data"]["flags"]) == (5, 64)
    assert replied["content"] == "Stopped."
    assert discord.posts(square) == []


async def test_a_reply_to_a_command_of_another_life_is_a_message(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        await until(lambda: len(discord.commands) == 3)
        discord.command(ann, square, "status")
        await until(lambda: len(context.inbox) == 1)
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Nothing is running here.", reply_to=context.inbox[0].id))
    assert contents(discord, square) == ["Nothing is running here."]


async def test_who_gets_no_reply_is_told_so(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.discord.gateway.UNANSWERED_SECONDS", 0.01)
    async with connected(discord, context):
        await until(lambda: len(discord.commands) == 3)
        token = discord.command(ann, square, "new")
        await until(lambda: len(discord.said_to(token)) == 2)
    assert "no answer" in discord.said_to(token)[1]["content"]

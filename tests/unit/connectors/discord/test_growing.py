"""Messages that are written anew, reactions, files of the store and quotes, met with the real discord.py."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors.base import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, SendFailure
from maestro.domain.messages import Button
from tests.support.discord_bot import address, bot, chunk, connected
from tests.support.discord_server import Channel, DiscordServer, Fault, User
from tests.support.memory_context import MemoryContext

EYES = "👀"
CUSTOM = "<:wave:123456789012345678>"


async def test_answers_grow_only_where_it_is_said(discord: DiscordServer, context: MemoryContext) -> None:
    assert bot(discord, context).capabilities.edit_interval == 0
    growing = bot(discord, context, streaming=True, streaming_seconds=2)
    assert growing.capabilities.edit_interval == 2


async def test_a_message_of_ours_is_written_anew_as_it_would_be_sent(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "The answ"))
        whole = chunk(square, "#### The answer\n@everyone", edits=receipt.platform_message_id)
        await connector.edit(whole)
        await connector.edit(whole)
        await connector.edit(whole.model_copy(update={"buttons": (Button(label="More", value="more"),)}))
    [post] = discord.posts(square)
    assert (post.content, post.allowed_mentions) == ("**The answer**\n@everyone", {"parse": []})
    assert [one["custom_id"] for one in post.buttons] == ["key1:0"]


@pytest.mark.parametrize(
    ("fault", "scope"),
    [
        (Fault(404, 10008), FailureScope.MESSAGE),
        (Fault(403, 50005), FailureScope.MESSAGE),
        (Fault(400, 50035), FailureScope.MESSAGE),
        (Fault(404, 10003), FailureScope.CHANNEL),
        (Fault(403, 50001), FailureScope.CHANNEL),
        (Fault(401), FailureScope.ACCOUNT),
    ],
)
async def test_what_cannot_be_written_anew_is_told(
    discord: DiscordServer, context: MemoryContext, square: Channel, fault: Fault, scope: FailureScope
) -> None:
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "The answ"))
        discord.fail("PATCH", "edit", fault)
        with pytest.raises(PermanentSend) as failed:
            await connector.edit(chunk(square, "The answer", edits=receipt.platform_message_id))
    assert failed.value.scope is scope
    assert len(discord.asked("edit")) == 1


async def test_a_message_that_is_gone_or_none_is_the_messages_own_matter(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        for known_as in ("12345", "not a number"):
            with pytest.raises(PermanentSend) as failed:
                await connector.edit(chunk(square, "The answer", edits=known_as))
            assert failed.value.scope is FailureScope.MESSAGE


async def test_an_edit_whose_outcome_is_unknown_may_be_made_again(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "The answ"))
        discord.fail("PATCH", "edit", Fault.cut_after())
        anew = chunk(square, "The answer", edits=receipt.platform_message_id)
        with pytest.raises(AmbiguousSend):
            await connector.edit(anew)
        await connector.edit(anew)
    assert [post.content for post in discord.posts(square)] == ["The answer"]


@pytest.mark.parametrize(("emoji", "shown"), [(EYES, EYES), (CUSTOM, "wave:123456789012345678")])
async def test_a_message_is_acknowledged_at_itself_and_again_without_harm(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, emoji: str, shown: str
) -> None:
    said = discord.write(ann, square, "hello")
    async with connected(discord, context, ack_reaction=emoji) as connector:
        for _ in range(2):
            await connector.acknowledge(address(square), str(said.id))
    assert said.reactions == [shown]


async def test_nothing_is_put_to_what_is_no_message_or_without_a_reaction(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    said = discord.write(ann, square, "hello")
    await bot(discord, context).acknowledge(address(square), str(said.id))
    async with connected(discord, context, ack_reaction=EYES) as connector:
        for known_as in ("command:123", f"{said.id}:456"):
            await connector.acknowledge(address(square), known_as)
    with pytest.raises(NotDispatched):
        await bot(discord, context, ack_reaction=EYES).acknowledge(address(square), str(said.id))
    assert discord.asked("reaction") == []


async def test_a_channel_that_allows_no_reaction_is_asked_once(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    said = discord.write(ann, square, "hello")
    discord.fail("PUT", "reaction", Fault(403, 50013), times=9)
    async with connected(discord, context, ack_reaction=EYES) as connector:
        for _ in range(2):
            await connector.acknowledge(address(square), str(said.id))
    assert len(discord.asked("reaction")) == 1


async def test_an_emoji_that_discord_does_not_know_is_told(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    said = discord.write(ann, square, "hello")
    async with connected(discord, context, ack_reaction="eyes") as connector:
        with pytest.raises(SendFailure) as failed:
            await connector.acknowledge(address(square), str(said.id))
    assert isinstance(failed.value, PermanentSend)
    assert failed.value.scope is FailureScope.MESSAGE


async def test_a_file_of_the_store_goes_with_its_words_and_is_found_again(
    discord: DiscordServer, context: MemoryContext, square: Channel, tmp_path: Path
) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"\x89PNG\xff")
    begun = datetime.now(UTC)
    file = chunk(square, "#### A plan", filename="the plan.png", path=path, content_type="image/png", tried_at=begun)
    async with connected(discord, context) as connector:
        assert await connector.find(file) is None
        receipt = await connector.send(file)
        assert await connector.send(file) == receipt
        assert await connector.find(file) == receipt
        await connector.send(chunk(square, "", key="key2", filename="bare.png", path=path))
    first, second = discord.posts(square)
    assert (first.content, first.attachments[0]["filename"]) == ("**A plan**", "the_plan.png")
    assert first.attachments[0]["size"] == 5
    assert (second.content, second.attachments[0]["filename"]) == ("", "bare.png")


@pytest.mark.parametrize(("quotes", "quoted"), [("always", True), ("never", False)])
async def test_an_answer_quotes_what_it_answers_unless_it_is_said_otherwise(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, quotes: str, quoted: bool
) -> None:
    said = discord.write(ann, square, "hello")
    async with connected(discord, context, quote_replies=quotes) as connector:
        await connector.send(chunk(square, "answer", reply_to=str(said.id)))
    assert [post.reply_to for post in discord.posts(square)] == [said.id if quoted else 0]

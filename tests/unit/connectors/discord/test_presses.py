"""Buttons below a message and what a press of one comes to, met with the real discord.py."""

from datetime import UTC, datetime

import pytest

from connectors.discord.connector import CAPABILITIES
from maestro.domain.errors import StoreBusy
from maestro.domain.messages import Addressing, Button
from tests.support.discord_bot import address, chunk, connected
from tests.support.discord_server import Channel, DiscordServer, Fault, User
from tests.support.instance import until
from tests.support.memory_context import MemoryContext

COLOURS = (Button(label="Red", value="Red #7"), Button(label="Dark blue", value="Dark blue #7"))
REPLY, TAKEN = 4, 6
"""Types of what is said to an interaction."""
EPHEMERAL = 64


@pytest.fixture
def context() -> MemoryContext:
    return MemoryContext(buttons={"key1": COLOURS})


async def test_buttons_stand_in_rows_of_five_and_name_their_message(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    many = tuple(Button(label=f"{number}", value=f"say {number}") for number in range(CAPABILITIES.max_buttons))
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
        await connector.send(chunk(square, "Which number?", key="key2", buttons=many))
    first, second = discord.posts(square)
    assert [(one["label"], one["custom_id"]) for one in first.buttons] == [("Red", "key1:0"), ("Dark blue", "key1:1")]
    assert [len(row["components"]) for row in second.components] == [5] * 5
    assert [one["custom_id"] for one in second.buttons] == [f"key2:{number}" for number in range(25)]


async def test_the_longest_key_and_label_are_taken(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    longest = Button(label="x" * 60, value="x")
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "?", key="k" * 25, buttons=(longest,) * 10))
    [post] = discord.posts(square)
    assert (post.buttons[-1]["custom_id"], post.buttons[-1]["label"]) == (f"{'k' * 25}:9", "x" * 60)


@pytest.mark.parametrize("kind", ["channel", "thread", "direct"])
async def test_a_press_is_committed_and_then_acknowledged(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, kind: str
) -> None:
    places = {"channel": square, "thread": discord.channel("t", parent=square), "direct": discord.direct(ann)}
    channel = places[kind]
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(channel, "Which colour?", buttons=COLOURS))
        [post] = discord.posts(channel)
        token = discord.press(ann, post, 1)
        await until(lambda: discord.said_to(token) != [])
    [message] = context.inbox
    assert (message.content, message.user_id, message.address) == ("Dark blue #7", str(ann.id), address(channel))
    assert (message.reply_to, message.is_direct) == (receipt.platform_message_id, kind == "direct")
    assert message.addressing is Addressing.NOBODY
    assert message.id == f"{post.id}:{token.removeprefix('interaction-')}"
    assert [said["type"] for said in discord.said_to(token)] == [TAKEN]


async def test_a_reply_to_a_press_quotes_the_message_with_the_button(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
        [post] = discord.posts(square)
        discord.press(ann, post, 0)
        await until(lambda: context.inbox != [])
        await connector.send(chunk(square, "Red it is.", key="key2", reply_to=context.inbox[0].id))
    assert discord.posts(square)[-1].reply_to == post.id


async def test_a_press_is_understood_in_another_life(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
    async with connected(discord, context):
        token = discord.press(ann, discord.posts(square)[0], 0)
        await until(lambda: discord.said_to(token) != [])
    assert [message.content for message in context.inbox] == ["Red #7"]


@pytest.mark.parametrize("custom_id", ["key1:2", "unknown:0", "key1:x", "something else", ":0"])
async def test_a_button_that_is_for_nothing_says_so_to_nobody_else(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, custom_id: str
) -> None:
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
        token = discord.press(ann, discord.posts(square)[0], 0, custom_id=custom_id)
        await until(lambda: discord.said_to(token) != [])
    [said] = discord.said_to(token)
    assert (said["type"], said["data"]["flags"]) == (REPLY, EPHEMERAL)
    assert "has expired" in said["data"]["content"]
    assert context.inbox == []


async def test_a_press_that_the_store_does_not_take_is_not_acknowledged_and_may_be_made_again(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    context.failure = StoreBusy("the database is locked")
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
        [post] = discord.posts(square)
        token = discord.press(ann, post, 0)
        await until(lambda: discord.said_to(token) != [])
        context.failure = None
        again = discord.press(ann, post, 0)
        await until(lambda: discord.said_to(again) != [])
    assert "press the button again" in discord.said_to(token)[0]["data"]["content"]
    assert [message.content for message in context.inbox] == ["Red #7"]


async def test_a_press_whose_acknowledgement_is_refused_counts_all_the_same(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    discord.fail("POST", "callback", Fault(404, 10062))
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "Which colour?", buttons=COLOURS))
        token = discord.press(ann, discord.posts(square)[0], 0)
        await until(lambda: discord.asked("callback") != [])
        discord.say(ann, square, "and on")
        await until(lambda: len(context.inbox) == 2)
    assert [message.content for message in context.inbox] == ["Red #7", "and on"]
    assert discord.said_to(token) == []


async def test_what_has_buttons_is_found_again_by_its_key(
    discord: DiscordServer, context: MemoryContext, square: Channel
) -> None:
    begun = datetime.now(UTC)
    async with connected(discord, context) as connector:
        message = chunk(square, "Which colour?", buttons=COLOURS, tried_at=begun)
        assert await connector.find(message) is None
        receipt = await connector.send(message)
        assert await connector.find(message) == receipt

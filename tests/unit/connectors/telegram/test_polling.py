"""Asking for messages: nothing is confirmed that is not stored."""

import asyncio
from typing import Any

import pytest

from connectors.base import AccountRefused, ConnectorState
from connectors.telegram.updates import WAIT_SECONDS, OpenAlbums, confirmable_groups, group_albums
from maestro.domain.errors import Backlogged, StoreBusy
from maestro.domain.messages import Button
from tests.support.instance import until
from tests.support.memory_context import MemoryContext
from tests.support.telegram_bot import TelegramBot, chunk, telegram_bot
from tests.support.telegram_server import ADA, TOKEN, ZOE, Fault, TelegramServer

GROUP = -100200


async def test_it_begins_without_an_offset_and_ends_an_older_webhook_without_losing_what_waits(
    telegram: TelegramServer,
) -> None:
    telegram.bots[TOKEN].url = "https://elsewhere.example"
    await telegram.bots[TOKEN].tell("message", telegram.chats.write(ADA, ADA, "while nobody listened"))
    async with telegram_bot(telegram) as bot:
        await bot.heard(1)
        await telegram.say(ADA, ADA, "and now")
        await bot.heard(2)
    assert [one.content for one in bot.context.inbox] == ["while nobody listened", "and now"]
    first, second, *_ = telegram.bots[TOKEN].polls
    assert ("offset" in first, int(second["offset"]) > 0) == (False, True)
    assert "callback_query" in first["allowed_updates"]


async def test_what_is_not_stored_is_not_confirmed(telegram: TelegramServer) -> None:
    context = MemoryContext(failure=StoreBusy("the database is locked"))
    async with telegram_bot(telegram, context) as bot:
        await telegram.say(ADA, ADA, "one")
        await telegram.say(ADA, ADA, "two")
        await bot.told(ConnectorState.DEGRADED)
        assert len(telegram.bots[TOKEN].waiting) == 2
        context.failure = None
        await bot.heard(2)
        await bot.told(ConnectorState.RUNNING)
        await until(lambda: telegram.bots[TOKEN].waiting == [])
    assert [one.content for one in context.inbox] == ["one", "two"]


async def test_a_full_inbox_lets_telegram_keep_the_rest(telegram: TelegramServer) -> None:
    context = MemoryContext(limit=1)
    async with telegram_bot(telegram, context) as bot:
        for text in ("one", "two"):
            await telegram.say(ADA, ADA, text)
        await bot.told(ConnectorState.DEGRADED, str(Backlogged()))
        context.limit = 2
        assert [one.content for one in await bot.heard(2)] == ["one", "two"]


async def test_what_cannot_be_read_holds_up_nobody(bot: TelegramBot) -> None:
    for shapeless in ({}, 5, {"message_id": 1}, {"message_id": 1, "date": "x", "chat": None}):
        await bot.telegram.tell("message", shapeless)  # type: ignore[arg-type]
    await bot.telegram.tell("something_new", {"id": 1})
    broken = bot.telegram.chats.write(ADA, ADA, "hi", entities=[{"type": "mention", "offset": 90, "length": 5}])
    await bot.telegram.tell("message", broken)
    await bot.telegram.say(ADA, ADA, "the next one")
    await until(lambda: "the next one" in [one.content for one in bot.context.inbox])
    await until(lambda: bot.telegram.bots[TOKEN].waiting == [])


async def test_another_poller_is_told_of_and_outlived(bot: TelegramBot) -> None:
    bot.telegram.fail("getUpdates", *[Fault.refused("Conflict: terminated by other getUpdates request", 409)] * 2)
    await bot.telegram.say(ADA, ADA, "hi")
    assert "another process" in await bot.told(ConnectorState.DEGRADED)
    await bot.telegram.say(ADA, ADA, "still there")
    assert [one.content for one in await bot.heard(2)] == ["hi", "still there"]


async def test_two_that_ask_with_one_token_do_not_take_turns_without_a_pause(telegram: TelegramServer) -> None:
    """After a short look each would think that it is alone again, and take the other's place at once."""
    async with telegram_bot(telegram) as bot, telegram_bot(telegram, start=False) as other:
        other.start()
        await bot.told(ConnectorState.DEGRADED)
        await other.told(ConnectorState.DEGRADED)
        count = len(telegram.bots[TOKEN].polls)
        await until(lambda: len(telegram.bots[TOKEN].polls) >= count + 3)
        assert {one["timeout"] for one in telegram.bots[TOKEN].polls[count:]} == {str(WAIT_SECONDS)}
        assert [state for state, _ in bot.context.states].count(ConnectorState.RUNNING) == 1


@pytest.mark.parametrize("fault", [Fault.broken(), Fault.cut_before(), Fault.limited(1), Fault(status=200)])
async def test_trouble_while_asking_costs_nothing(bot: TelegramBot, fault: Fault) -> None:
    bot.telegram.fail("getUpdates", fault)
    await bot.telegram.say(ADA, ADA, "one")
    await bot.heard(1)
    await bot.telegram.say(ADA, ADA, "two")
    assert [one.content for one in await bot.heard(2)] == ["one", "two"]


@pytest.mark.parametrize("status", [401, 404])
async def test_a_wrong_token_is_the_operators(telegram: TelegramServer, status: int) -> None:
    telegram.fail("getMe", Fault.refused("Unauthorized" if status == 401 else "Not Found", status))
    async with telegram_bot(telegram, start=False) as bot:
        with pytest.raises(AccountRefused, match="@BotFather"):
            await bot.connector.run()
        assert TOKEN not in await bot.told(ConnectorState.FAILED)


async def test_a_token_that_is_taken_away_ends_it(bot: TelegramBot) -> None:
    bot.telegram.fail("getUpdates", Fault.refused("Unauthorized", 401))
    await bot.telegram.say(ADA, ADA, "hi")
    assert bot.running is not None
    with pytest.raises(AccountRefused):
        await bot.running
    bot.running = None


async def test_the_commands_are_offered(bot: TelegramBot) -> None:
    assert [one["command"] for one in bot.telegram.bots[TOKEN].commands] == ["stop", "status", "new", "pair"]


async def test_commands_that_cannot_be_offered_cost_nothing(telegram: TelegramServer) -> None:
    telegram.fail("setMyCommands", Fault.broken())
    async with telegram_bot(telegram) as bot:
        await telegram.say(ADA, ADA, "/stop")
        assert [one.content for one in await bot.heard(1)] == ["/stop"]


async def test_privacy_mode_is_told_of_where_every_line_is_wanted(telegram: TelegramServer) -> None:
    telegram.bots[TOKEN].hears_all = False
    async with telegram_bot(telegram, require_mention=False) as bot:
        assert "/setprivacy" in await bot.told(ConnectorState.RUNNING)


async def test_only_the_groups_of_the_settings_are_heard(telegram: TelegramServer) -> None:
    async with telegram_bot(telegram, channels=(str(GROUP),)) as bot:
        await telegram.say(-7, ADA, "in another group")
        await telegram.say(GROUP, ADA, "here")
        await telegram.say(ADA, ADA, "in private")
        assert [one.content for one in await bot.heard(2)] == ["here", "in private"]


async def test_a_group_that_moves_is_still_one_of_the_settings(telegram: TelegramServer) -> None:
    async with telegram_bot(telegram, channels=("-5",)) as bot:
        await telegram.say(-5, ADA, "", migrate_to_chat_id=GROUP)
        await telegram.say(GROUP, ADA, "", migrate_from_chat_id=-5)
        await telegram.say(GROUP, ADA, "here now")
        assert [one.content for one in await bot.heard(1)] == ["here now"]
        assert bot.context.moves == {"-5": str(GROUP)}
    async with telegram_bot(telegram, bot.context, channels=("-5",)) as later:
        await telegram.say(GROUP, ADA, "and after a restart")
        await later.heard(2)


# Albums.


async def album(telegram: TelegramServer, *names: str, chat: int = ADA) -> list[int]:
    """Send photos as one album, each told of by itself."""
    kept = [telegram.chats.keep(name, b"x") for name in names]
    more: list[dict[str, Any]] = [{"caption": "all of them"}, *[{} for _ in names[1:]]]
    return [
        await telegram.send_file(chat, ADA, "photo", file, media_group_id="13", **said)
        for file, said in zip(kept, more, strict=True)
    ]


async def test_an_album_is_one_message(bot: TelegramBot) -> None:
    first, *_ = await album(bot.telegram, "a", "b", "c")
    await bot.telegram.say(ZOE, ZOE, "meanwhile")
    await bot.heard(2)
    one, other = bot.context.inbox
    assert (one.id, one.content, len(one.attachments)) == (str(first), "all of them", 3)
    assert other.content == "meanwhile"
    await until(lambda: bot.telegram.bots[TOKEN].waiting == [])


async def test_an_album_that_was_not_confirmed_comes_again_as_the_same_message(telegram: TelegramServer) -> None:
    context = MemoryContext(crash=StoreBusy("the process died here"))
    async with telegram_bot(telegram, context) as bot:
        await album(telegram, "a", "b")
        await bot.heard(1)
    async with telegram_bot(telegram, context):
        await until(lambda: telegram.bots[TOKEN].waiting == [])
    assert [len(one.attachments) for one in context.inbox] == [2]


def part(number: int, group: str = "", chat: int = 1) -> dict[str, Any]:
    return {"update_id": number, "message": {"chat": {"id": chat}, **({"media_group_id": group} if group else {})}}


def test_only_what_no_unfinished_album_reaches_into_is_settled() -> None:
    one, a1, two, b1, a2 = part(1), part(2, "a"), part(3), part(4, "b"), part(5, "a")
    found = group_albums([one, a1, two, b1, a2])
    assert found == [[one], [a1, a2], [two], [b1]]
    assert confirmable_groups(found, []) == found
    assert confirmable_groups(found, [[b1]]) == [
        [one]
    ]  # an album that ends behind the first unfinished part waits with it
    assert confirmable_groups(found, [[a1, a2]]) == [[one]]


def test_an_album_is_open_until_a_second_after_its_last_part() -> None:
    albums, one, two, other = OpenAlbums(), part(1, "a"), part(2, "a"), part(3)
    assert albums.find_open([[one], [other]], 10.0) == [[one]]
    assert albums.find_open([[one, two], [other]], 10.9) == [[one, two]]  # it has grown
    assert albums.find_open([[one, two], [other]], 11.8) == [[one, two]]
    assert albums.find_open([[one, two], [other]], 12.0) == []


def test_albums_of_two_chats_are_two() -> None:
    assert len(group_albums([part(1, "a", chat=1), part(2, "a", chat=2)])) == 2


# Buttons.


async def test_a_press_says_what_the_button_stands_for_and_is_confirmed_afterwards(bot: TelegramBot) -> None:
    buttons = (Button(label="Yes", value="yes, do it"), Button(label="No", value="no"))
    message = chunk("pick", GROUP, thread="4", buttons=buttons)
    receipt = await bot.connector.send(message)
    bot.context.buttons[message.key] = buttons
    bot.context.before_accept = asyncio.Event()
    press = await bot.telegram.press(GROUP, ADA, int(receipt.platform_message_id), 0)
    assert bot.telegram.api.answered == []
    bot.context.before_accept.set()
    await bot.telegram.until_called("answerCallbackQuery")
    [said] = bot.context.inbox
    assert (said.id, said.content, said.reply_to) == (f"press:{press}", "yes, do it", receipt.platform_message_id)
    assert (said.user_id, said.address.thread, said.is_direct) == (str(ADA), "4", False)
    assert bot.telegram.api.answered[0]["callback_query_id"] == press


async def test_a_button_that_means_nothing_any_more_says_so(bot: TelegramBot) -> None:
    receipt = await bot.connector.send(chunk("pick", ADA, buttons=(Button(label="Yes", value="yes"),)))
    await bot.telegram.press(ADA, ADA, int(receipt.platform_message_id), 0)
    [call] = await bot.telegram.until_called("answerCallbackQuery")
    assert ("expired" in call.arguments["text"], bot.context.inbox) == (True, [])


async def test_a_press_where_nobody_listens_is_confirmed_all_the_same(telegram: TelegramServer) -> None:
    buttons = (Button(label="Yes", value="yes"),)
    async with telegram_bot(telegram, channels=(str(GROUP),)) as bot:
        message = chunk("pick", -7, buttons=buttons)
        receipt = await bot.connector.send(message)
        bot.context.buttons[message.key] = buttons
        await telegram.press(-7, ADA, int(receipt.platform_message_id), 0)
        await telegram.until_called("answerCallbackQuery")
        assert bot.context.inbox == []


async def test_a_press_that_telegram_has_forgotten_holds_up_nobody(bot: TelegramBot) -> None:
    bot.telegram.fail("answerCallbackQuery", Fault.refused("Bad Request: query is too old"))
    receipt = await bot.connector.send(chunk("pick", ADA, buttons=(Button(label="Yes", value="yes"),)))
    await bot.telegram.press(ADA, ADA, int(receipt.platform_message_id), 0)
    await bot.telegram.say(ADA, ADA, "hi")
    assert [one.content for one in await bot.heard(1)] == ["hi"]

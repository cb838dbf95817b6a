"""What the connector takes in from the gateway, met with the real discord.py over its wire."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from connectors.base import AccountRefused, AmbiguousSend, ConnectorState, KnownChannel
from connectors.discord import connector as connecting
from maestro.domain.errors import StoreBusy
from maestro.domain.messages import Addressing, IncomingMessage
from tests.support.discord_bot import address, bot, chunk, connected, heard, states
from tests.support.discord_server import TOKEN, Channel, DiscordServer, Fault, User
from tests.support.instance import until
from tests.support.memory_context import MemoryContext


async def has_heard(context: MemoryContext, *contents: str) -> None:
    """Wait until these were taken in, and nothing else, in this order."""
    await until(lambda: len(heard(context)) >= len(contents), 10, what=f"{contents}, but only {heard(context)}")
    assert heard(context) == list(contents)


async def test_a_message_comes_in(discord: DiscordServer, context: MemoryContext, ann: User, square: Channel) -> None:
    async with connected(discord, context):
        said = discord.say(ann, square, "hello")
        await has_heard(context, "hello")
    [message] = context.inbox
    assert message == IncomingMessage(
        id=str(said.id),
        address=address(square),
        user_id=str(ann.id),
        user_name="Ann",
        content="hello",
        sent_at=said.at.replace(microsecond=said.at.microsecond // 1000 * 1000),
    )


async def test_a_direct_message_and_a_thread(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        thread = discord.channel("a thread", parent=square)
        discord.say(ann, discord.direct(ann), "in private")
        await has_heard(context, "in private")
        discord.say(ann, thread, "in the thread")
        await has_heard(context, "in private", "in the thread")
    private, threaded = context.inbox
    assert private.is_direct
    assert (threaded.is_direct, threaded.address) == (False, address(thread))
    assert (threaded.address.channel, threaded.address.thread) == (str(square.id), str(thread.id))


async def test_what_was_told_three_times_is_taken_once(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        said = discord.say(ann, square, "once")
        discord.tell(said)
        discord.tell(said)
        discord.say(ann, square, "then")
        await has_heard(context, "once", "then")


async def test_messages_are_committed_in_the_order_of_their_arrival(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    """discord.py hands each to a task of its own."""
    said = [f"number {n}" for n in range(50)]
    context.before_accept = asyncio.Event()
    async with connected(discord, context):
        for content in said:
            discord.say(ann, square, content)
        context.before_accept.set()
        await has_heard(context, *said)


async def test_our_own_messages_and_announcements_are_none(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        await connector.send(chunk(square, "our own"))
        discord.say(ann, square, "", kind=7)
        discord.say(ann, square, "a person's")
        await has_heard(context, "a person's")


async def test_bots_and_webhooks_are_told_apart_from_people(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        discord.say(discord.user("other", bot=True), square, "a bot")
        discord.say(ann, square, "a webhook", webhook=True)
        discord.say(ann, square, "a person")
        await has_heard(context, "a bot", "a webhook", "a person")
    assert [message.from_bot for message in context.inbox] == [True, True, False]


async def test_an_edit_names_its_message_and_a_preview_is_none(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        said = discord.say(ann, square, "frist")
        discord.unfurl(said)
        discord.edit(said, "first")
        await has_heard(context, "frist", "first")
    assert [message.edit_of for message in context.inbox] == ["", str(said.id)]
    assert context.inbox[1].id != str(said.id)


async def test_a_reply_says_to_what_and_mentions_have_names(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context) as connector:
        receipt = await connector.send(chunk(square, "our own"))
        bob = discord.user("bob")
        discord.say(ann, square, f"<@{bob.id}> look", mentions=[bob], reply_to=int(receipt.platform_message_id))
        await has_heard(context, "@Bob look")
    assert context.inbox[0].reply_to == receipt.platform_message_id


async def test_what_is_said_to_us_is_told_apart(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    """By a mention, by the role that Discord makes of a bot, or by a reply; one who answers ann means ann."""
    us = discord.user("maestro")
    async with connected(discord, context) as connector:
        ours = await connector.send(chunk(square, "our own"))
        asked = discord.say(ann, square, "plain")
        discord.say(ann, square, f"<@{us.id}> by name", mentions=[us])
        discord.say(ann, square, "by role", mentions_role=True)
        discord.say(ann, square, "a reply", reply_to=int(ours.platform_message_id), mentions=[us])
        discord.say(ann, square, "to ann", reply_to=asked.id)
        await until(lambda: len(context.inbox) == 5)
    plain, to_us, by_role, reply, to_ann = (message.addressing for message in context.inbox)
    assert (plain, to_us, by_role) == (Addressing.NOBODY, Addressing.US, Addressing.US)
    assert (reply, to_ann) == (Addressing.REPLY, Addressing.NOBODY)


async def test_a_bot_that_hears_every_line_is_spoken_to_by_each(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context, require_mention=False):
        discord.say(ann, square, "hello")
        await has_heard(context, "hello")
    assert context.inbox[0].addressing is Addressing.ANYBODY


async def test_nothing_old_is_answered_at_first_sight(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    discord.write(ann, square, "long ago")
    async with connected(discord, context):
        discord.say(ann, square, "now")
        await has_heard(context, "now")
    assert discord.asked("history") == []


async def test_what_was_said_while_we_were_away_is_read_in_order(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    direct = discord.direct(ann)
    async with connected(discord, context):
        discord.say(ann, square, "before")
        await has_heard(context, "before")
        discord.say(ann, direct, "privately")
        await has_heard(context, "before", "privately")
    discord.forget_sessions()
    missed = [f"missed {n}" for n in range(120)]
    for content in missed:
        discord.write(ann, square, content)
    discord.write(ann, direct, "privately missed")
    context.inbox.clear()
    async with connected(discord, context):
        discord.say(ann, square, "after")
        await until(lambda: len(context.inbox) == len(missed) + 2)
    assert [m.content for m in context.inbox if not m.is_direct] == [*missed, "after"]
    assert [m.content for m in context.inbox if m.is_direct] == ["privately missed"]
    assert context.passed_over == []


async def test_a_thread_that_began_while_we_were_away_is_no_old_one(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    old = discord.channel("old", parent=square)
    discord.write(ann, old, "long ago")
    async with connected(discord, context):
        await until(lambda: context.marks.get((str(square.id), str(old.id)), "") != "")
        discord.say(ann, square, "before")
        await has_heard(context, "before")
    discord.write(ann, discord.channel("new", parent=square), "in the new thread")
    context.marks.pop((str(square.id), str(old.id)))
    async with connected(discord, context):
        await has_heard(context, "before", "in the new thread")


async def test_a_store_that_is_broken_for_a_moment_loses_nothing(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.discord.catch_up.PAUSES", (0.01,))
    context.failure = OSError("the disk is full")
    async with connected(discord, context):
        discord.say(ann, square, "first")
        discord.say(ann, square, "second")
        await until(lambda: len(discord.asked("history")) > 1)
        context.failure = None
        await has_heard(context, "first", "second")


@pytest.mark.parametrize("direct", [False, True])
async def test_an_invalid_session_loses_nothing(
    discord: DiscordServer,
    context: MemoryContext,
    ann: User,
    square: Channel,
    direct: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of direct channels no event tells that they have a gap; whatever comes first in one is reason to look."""
    channel = discord.direct(ann) if direct else square
    monkeypatch.setattr("connectors.discord.gateway.IDENTIFY_SECONDS", 0.01)
    async with connected(discord, context):
        discord.say(ann, channel, "before")
        await has_heard(context, "before")
        discord.forget_sessions()
        discord.write(ann, channel, "in the gap")
        discord.drop()
        await until(lambda: len(discord.identified) == 2)
        discord.say(ann, channel, "after")
        await has_heard(context, "before", "in the gap", "after")


async def test_a_connection_that_was_cut_is_resumed(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    async with connected(discord, context):
        discord.drop()
        discord.say(ann, square, "in the gap")
        await has_heard(context, "in the gap")
        discord.ask_to_reconnect()
        await until(lambda: discord.resumed == 2)
        discord.say(ann, square, "after")
        await has_heard(context, "in the gap", "after")
    assert len(discord.identified) == 1


async def test_no_more_is_read_than_the_caps_allow(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    quiet = discord.channel("quiet")
    context.marks = {(str(square.id), ""): str(square.id), (str(quiet.id), ""): "1"}
    for n in range(5):
        discord.write(ann, square, f"missed {n}")
    discord.write(ann, quiet, "yesterday", at=datetime.now(UTC) - timedelta(hours=30))
    discord.write(ann, quiet, "today")
    async with connected(discord, context, catch_up_messages=3):
        await until(lambda: len(context.passed_over) == 2)
    assert sorted(heard(context)) == ["missed 2", "missed 3", "missed 4", "today"]
    assert sorted(context.passed_over) == sorted(
        [
            (str(square.id), 0, "more than 3 messages were missed (catchUpMessages)"),
            (str(quiet.id), 1, "they are older than 24 hours (catchUpHours)"),
        ]
    )


async def test_a_full_inbox_keeps_nobody_out_for_good(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.discord.catch_up.PAUSES", (0.01,))
    context.limit = 0
    async with connected(discord, context):
        discord.say(ann, square, "first")
        discord.say(ann, square, "second")
        await until(lambda: len(discord.asked("history")) > 1)
        context.limit = 10
        await has_heard(context, "first", "second")


async def test_only_chosen_channels_are_heard(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    chosen = discord.channel("chosen")
    async with connected(discord, context, channels=(str(chosen.id),)):
        discord.say(ann, square, "not for us")
        discord.say(ann, chosen, "for us")
        await has_heard(context, "for us")


async def test_without_the_privileged_intent_mentions_and_direct_messages_are_read(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel
) -> None:
    discord.withhold_intents()
    async with connected(discord, context, message_content=False):
        discord.say(ann, square, "to everybody")
        discord.say(ann, square, "to us", mentions=[discord.user("maestro")])
        await has_heard(context, "to us")


async def test_a_wrong_token_is_a_clear_state_and_no_loop(discord: DiscordServer, context: MemoryContext) -> None:
    connector = bot(discord, context, token="a-wrong-token")
    with pytest.raises(AccountRefused, match="refuses the bot's token") as refused:
        await connector.run()
    assert context.states[-1] == (ConnectorState.FAILED, str(refused.value))
    assert "a-wrong-token" not in str(context.states)
    assert len(discord.requests) == 1


async def test_missing_intents_are_a_clear_state_and_no_loop(discord: DiscordServer, context: MemoryContext) -> None:
    discord.withhold_intents()
    with pytest.raises(AccountRefused, match="Message Content Intent"):
        await bot(discord, context).run()
    assert states(context)[-1] is ConnectorState.FAILED
    assert len(discord.identified) == 1


async def test_an_outage_is_told_and_survived(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "PAUSES", (0.05,))
    async with connected(discord, context):
        discord.say(ann, square, "before")
        await has_heard(context, "before")
        discord.refuse_sockets()
        discord.drop()
        await until(lambda: ConnectorState.DEGRADED in states(context))
        discord.write(ann, square, "meanwhile")
        discord.fail("GET", "me", Fault(503), times=2)
        discord.allow_sockets()
        await has_heard(context, "before", "meanwhile")
        await until(lambda: states(context)[-1] is ConnectorState.RUNNING)


async def test_the_token_is_in_no_line_of_any_library(
    discord: DiscordServer,
    context: MemoryContext,
    ann: User,
    square: Channel,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "PAUSES", (0.01,))
    discord.fail("GET", "me", Fault(503))
    # Maestro silences this logger for the whole process; here all of it is to be heard.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="discord"):
        async with connected(discord, context) as connector:
            discord.say(ann, square, "hello")
            await has_heard(context, "hello")
            discord.drop()
            discord.fail("POST", "messages", Fault.cut_after())
            with pytest.raises(AmbiguousSend):
                await connector.send(chunk(square, "answer"))
            await until(lambda: discord.resumed == 1)
        with pytest.raises(AccountRefused):
            await bot(discord, context, token=f"{TOKEN}x").run()
    assert "discord.gateway" in {record.name for record in caplog.records}
    assert TOKEN.rpartition(".")[2] not in caplog.text + str(context.states)


async def test_a_store_that_is_broken_at_first_costs_no_direct_message(
    discord: DiscordServer, context: MemoryContext, ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.discord.catch_up.PAUSES", (0.01,))
    monkeypatch.setattr("connectors.discord.gateway.GUILDS_SECONDS", 0.01)
    direct, broken = discord.direct(ann), [OSError("the disk is full")] * 3
    context.marks, context.direct = {(str(direct.id), ""): str(direct.id)}, {(str(direct.id), "")}

    async def known() -> Sequence[KnownChannel]:
        if broken:
            raise broken.pop()
        return await MemoryContext.known_channels(context)

    monkeypatch.setattr(context, "known_channels", known)
    discord.write(ann, direct, "while you were away")
    async with connected(discord, context):
        await has_heard(context, "while you were away")


async def test_a_store_that_is_busy_at_the_report_gets_the_state_later(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, failures = context.report, [StoreBusy("the database is locked")] * 2

    async def fail_twice(state: ConnectorState, detail: str = "") -> None:
        if state is ConnectorState.RUNNING and failures:
            raise failures.pop()
        await report(state, detail)

    monkeypatch.setattr(context, "report", fail_twice)
    async with connected(discord, context):
        await until(lambda: states(context)[-1] is ConnectorState.RUNNING, what="the state RUNNING")
    assert failures == []


async def test_what_breaks_in_an_event_is_told_without_what_was_said(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "what somebody wrote"

    def broken(_: object) -> None:
        raise ValueError(secret)

    monkeypatch.setattr("connectors.discord.gateway.event_channel", broken)
    with structlog.testing.capture_logs() as lines:
        async with connected(discord, context):
            discord.say(ann, square, "hello")
            await until(lambda: any(line["event"] == "discord.event_failed" for line in lines))
    [line] = [line for line in lines if line["event"] == "discord.event_failed"]
    error = line.pop("exc_info")  # of which the log writes where it happened, and not its text
    assert (line["happened"], line["error"], type(error)) == ("on_message", "ValueError", ValueError)
    assert secret not in str(line)

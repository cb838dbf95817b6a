"""Tests of received events: messages, edits, commands, bots and malformed events."""

from typing import Any

import pytest
from conftest import Account
from maestro_matrix.inbound import UNREADABLE
from matrix_homeserver import ADA, BOT, Homeserver, Json

from maestro.domain.messages import Addressing

BEN = "@ben:example.org"
MENTION = {"m.mentions": {"user_ids": [BOT]}}


async def said(account: Account, text: str, people: tuple[str, ...] = (ADA, BEN), **extra: Any) -> Any:
    """Write a message as Ada in a room with these people, and return the received message."""
    room = await account.server.room(*people)
    await account.start()
    await account.server.say(room, text, **extra)
    return (await account.heard(1))[0]


@pytest.mark.parametrize(
    ("text", "extra", "addressing"),
    [
        ("a line", {}, Addressing.NOBODY),
        ("a line", MENTION, Addressing.US),
        ("Maestro, a line", {}, Addressing.US),
        (f"what does {BOT} say", {}, Addressing.US),
        ("my @maestros", {}, Addressing.NOBODY),
        ("a line", {"m.mentions": {"room": True}}, Addressing.NOBODY),
    ],
)
async def test_in_a_group_it_is_known_who_is_meant(
    account: Account, text: str, extra: Any, addressing: Addressing
) -> None:
    message = await said(account, text, **extra)
    assert (message.addressing, message.is_direct, message.content) == (addressing, False, text)


async def test_a_reply_to_us_is_told_from_others(server: Homeserver, account: Account) -> None:
    room = await server.room(ADA, BEN)
    ours, theirs = await server.say(room, "mine", BOT), await server.say(room, "his", BEN)
    await account.start()
    for answered in (ours, theirs):
        quoted = f"> <{answered}> as it was\n> more\n\nyes"
        await server.say(room, quoted, relation={"m.in_reply_to": {"event_id": answered}})
    found = [(one.reply_to, one.addressing, one.content) for one in await account.heard(2)]
    assert found == [(ours, Addressing.REPLY, "yes"), (theirs, Addressing.NOBODY, "yes")]


async def test_a_thread_is_a_place_of_its_own(server: Homeserver, account: Account) -> None:
    room = await server.room(ADA, BEN)
    root = await server.say(room, "mine", BOT)
    await account.start()
    thread = {"rel_type": "m.thread", "event_id": root, "m.in_reply_to": {"event_id": root}, "is_falling_back": True}
    await server.say(room, "within", relation=thread)
    [message] = await account.heard(1)
    assert (message.address.thread, message.reply_to, message.addressing) == (root, "", Addressing.REPLY)


async def test_an_edit_says_what_it_changes(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    first = await server.say(room, "helo")
    new: Json = {"m.new_content": {"msgtype": "m.text", "body": "hello"}}
    edit = await server.say(room, "* hello", relation={"rel_type": "m.replace", "event_id": first}, **new)
    found = [(one.id, one.edit_of, one.content) for one in await account.heard(2)]
    assert found == [(first, "", "helo"), (edit, first, "hello")]


async def test_bots_and_emotes_are_known_as_such(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await server.say(room, "beep", msgtype="m.notice")
    await server.say(room, "waves", msgtype="m.emote")
    await server.say(room, "verify me", msgtype="m.key.verification.request")
    await server.say(room, "my own", BOT)
    await server.say(room, "the end")
    found = [(one.content, one.from_bot) for one in await account.heard(3)]
    assert found == [("beep", True), ("* Ada waves", False), ("the end", False)]


@pytest.mark.parametrize("text", ["Maestro: /stop", f"{BOT} /stop", "@maestro, /stop", "/stop"])
async def test_a_command_can_be_said(account: Account, text: str) -> None:
    assert (await said(account, text)).content == "/stop"


async def test_a_room_of_two_is_direct_until_a_third_comes(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await server.say(room, "alone")
    await server.member(room, BEN, "join")
    await server.say(room, "with Ben")
    await server.member(room, BEN, "leave")
    await server.say(room, "alone again")
    assert [one.is_direct for one in await account.heard(3)] == [True, False, True]


async def test_only_chosen_rooms_are_listened_to_besides_direct_ones(server: Homeserver, account: Account) -> None:
    chosen, other, direct = await server.room(ADA, BEN), await server.room(ADA, BEN), await server.room()
    await account.start(channels=(chosen,), require_mention=False)
    for room in (other, chosen, direct):
        await server.say(room, room)
    found = {(one.content, one.addressing) for one in await account.heard(2)}
    assert found == {(chosen, Addressing.ANYBODY), (direct, Addressing.ANYBODY)}


async def test_an_encrypted_room_is_told_once_that_it_cannot_be_read(server: Homeserver, account: Account) -> None:
    room, open_room = await server.room(), await server.room()
    server.remembers_keys = False
    for times in (1, 2):
        await account.start()
        await server.event(room, ADA, "m.room.encrypted", {"algorithm": "m.megolm.v1.aes-sha2"})
        await server.say(open_room, "hello")
        await account.heard(times)
        await account.stop()
    assert server.shown(room) == [UNREADABLE]
    assert account.context.passed_over == [(room, 1, "they are encrypted")] * 2


@pytest.mark.parametrize(
    "broken",
    [
        {"content": {"msgtype": "m.text", "body": "x", "m.relates_to": "nonsense"}},
        {"content": {"msgtype": ["m.text"]}},
        {"content": {"msgtype": "m.file", "url": "mxc://a/b", "info": {"size": "much"}}},
        {"content": {"msgtype": "m.text", "body": "x"}, "event_id": "$" * 300},
        {"content": {}, "type": "m.room.tombstone"},
    ],
)
async def test_what_is_no_message_holds_up_none(server: Homeserver, account: Account, broken: Any) -> None:
    room = await server.room()
    await account.start()
    await server.event(room, ADA, **{"kind": "m.room.message", **broken})
    await server.say(room, "hello")
    assert [one.content for one in await account.heard(1)] == ["hello"]


async def test_a_time_that_cannot_be_does_no_harm(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    for when in (10**30, -5, "soon"):
        content = {"msgtype": "m.text", "body": str(when)}
        await server.event(room, ADA, "m.room.message", content, origin_server_ts=when)
    assert [one.content for one in await account.heard(3)] == [str(10**30), "-5", "soon"]

"""What comes in, and what does not."""

from typing import Any

import pytest
from conftest import Account, until
from maestro_matrix.inbound import UNREADABLE
from matrix_homeserver import ADA, BOT, TOKEN, Fault, Homeserver, Json

from connectors.base import AccountRefused, ConnectorState
from maestro.domain.messages import Addressing

BEN, EVE = "@ben:example.org", "@eve:elsewhere.net"
MENTION = {"m.mentions": {"user_ids": [BOT]}}


async def test_what_was_said_before_the_first_connection_is_not_for_us(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await server.say(room, "long ago")
    await account.start()
    await server.say(room, "now")
    [message] = await account.heard(1)
    assert (message.content, message.user_name, message.is_direct) == ("now", "Ada", True)


async def test_the_line_that_is_written_with_an_invitation_is_heard(server: Homeserver, account: Account) -> None:
    await account.start()
    room = await server.room(ADA, BEN)
    await server.member(room, BOT, "leave")
    await server.say(room, "among us")
    await server.member(room, BOT, "invite", sender=ADA)
    await server.say(room, "welcome")
    await account.heard(1)
    await server.member(room, BOT, "join", name="Helper")  # a new name is no new beginning
    await server.say(room, "and on")
    await account.heard(2)
    assert account.texts() == ["welcome", "and on"]


@pytest.mark.parametrize(
    ("auto_join", "inviter", "joins"),
    [
        ("homeserver", ADA, True),
        ("homeserver", EVE, False),
        ("homeserver", "@eve:elsewhere.net:example.org", False),
        ("always", EVE, True),
        ("never", ADA, False),
    ],
)
async def test_an_invitation_is_accepted_from_whom_it_may_be(
    server: Homeserver, account: Account, auto_join: str, inviter: str, joins: bool
) -> None:
    known = await server.room()
    await account.start(auto_join=auto_join)
    room = await server.room(inviter, invites=inviter)
    await server.say(known, "something after it")
    await account.heard(1)
    assert server.rooms[room].members[BOT][0] == ("join" if joins else "invite")


async def test_a_room_that_cannot_be_joined_holds_up_no_other(server: Homeserver, account: Account) -> None:
    known = await server.room()
    await account.start()
    server.faults["join"].append(Fault(502, {"errcode": "M_UNKNOWN"}))
    room = await server.room(invites=ADA)
    await server.say(known, "hello")
    assert (await account.heard(1))[0].content == "hello"
    assert [name for name, _ in server.requests].count("join") == 1
    server.faults["join"].append(Fault.refused("M_LIMIT_EXCEEDED", 429, retry_after_ms=10))
    await server.member(room, BOT, "invite", sender=ADA)
    await until(lambda: server.rooms[room].members[BOT][0] == "join", "our own server only asked to wait")


async def test_a_long_gap_is_filled_in_order(server: Homeserver, account: Account) -> None:
    room, other = await server.room(), await server.room()
    await account.start()
    await account.stop()
    said = [f"line {number}" for number in range(130)]
    for text in said:
        await server.say(room, text)
    await server.say(other, "elsewhere")
    await account.start()
    await account.heard(131)
    assert [text for text in account.texts() if text != "elsewhere"] == said
    assert account.context.passed_over == []


async def test_an_invitation_that_waited_long_is_no_loss(server: Homeserver, account: Account) -> None:
    await account.start(auto_join="never", require_mention=False)
    room, other = await server.room(ADA, BEN), await server.room()
    await server.member(room, BOT, "leave")
    for _ in range(60):
        await server.say(room, "among us")
    await server.member(room, BOT, "invite", sender=ADA)
    said = [f"line {number}" for number in range(70)]
    for text in said:
        await server.say(room, text)
    await server.say(other, "elsewhere")
    await account.heard(1)
    await server.member(room, BOT, "join")
    await account.heard(71)
    assert account.texts() == ["elsewhere", *said]


async def test_who_came_during_a_gap_is_known(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start(catch_up_messages=5)
    await server.say(room, "alone")
    await account.heard(1)
    async with server.silence():
        await server.member(room, BEN, "join")
        for number in range(130):
            await server.say(room, f"line {number}")
    found = [(one.content, one.is_direct) for one in await account.heard(6)]
    assert found == [("alone", True), *((f"line {number}", False) for number in range(125, 130))]


async def test_no_more_of_a_gap_is_read_than_is_wanted(server: Homeserver, account: Account) -> None:
    room, quiet = await server.room(), await server.room()
    await account.start()
    await account.stop()
    for number in range(130):
        await server.say(room, f"line {number}")
    await server.say(quiet, "one")
    await account.start(catch_up_messages=20)
    await account.heard(21)
    assert "one" in account.texts()
    assert [text for text in account.texts() if text != "one"] == [f"line {number}" for number in range(110, 130)]
    [(place, count, why)] = account.context.passed_over
    assert (place, count) == (room, 0)
    assert "too many" in why


async def test_what_is_too_old_is_not_read_but_told(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await account.stop()
    old = server.events[0][1]["origin_server_ts"] - 3 * 3_600_000
    await server.event(room, ADA, "m.room.message", {"msgtype": "m.text", "body": "old"}, origin_server_ts=old)
    await server.say(room, "young")
    await account.start(catch_up_hours=2)
    await account.heard(1)
    assert account.texts() == ["young"]
    [(place, count, why)] = account.context.passed_over
    assert (place, count, "too old" in why) == (room, 1, True)


async def test_a_homeserver_that_forgot_where_we_were_is_begun_with_anew(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.context.advance(BOT, "0000000000000007 of-another-life-and-long")
    await account.start()
    await server.say(room, "hello")
    await account.heard(1)
    assert [place for place, _, _ in account.context.passed_over] == [BOT]
    assert account.context.marks[BOT, ""].startswith("0000000000000009 ")


async def said(account: Account, text: str, people: tuple[str, ...] = (ADA, BEN), **extra: Any) -> Any:
    """Let Ada say something in a room with these people, and return what is heard."""
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


async def test_a_room_that_was_replaced_is_followed(server: Homeserver, account: Account) -> None:
    old, new = await server.room(), await server.room(ADA, invites=ADA)
    await account.start(auto_join="never")
    await server.event(old, ADA, "m.room.tombstone", {"replacement_room": new}, state_key="")
    await until(lambda: account.context.moves == {old: new}, "it moved")
    await server.say(new, "here")
    assert [one.address.channel for one in await account.heard(1)] == [new]


@pytest.mark.parametrize("asked", ["whoami", "sync"])
@pytest.mark.parametrize("soft", [True, False])
async def test_a_token_that_is_not_valid_ends_it(server: Homeserver, account: Account, asked: str, soft: bool) -> None:
    await account.start()
    await account.stop()
    server.faults[asked].append(Fault.refused("M_UNKNOWN_TOKEN", 401, soft_logout=soft))
    account.connect()
    with pytest.raises(AccountRefused, match="same device" if soft else "M_UNKNOWN_TOKEN: log in,"):
        await account.ended()
    state, detail = account.context.states[-1]
    assert state is ConnectorState.FAILED
    assert TOKEN not in detail


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(502)],
        [Fault(cut=True)] * 2,  # the library itself makes a call once more when its connection was closed
        [Fault.refused("M_LIMIT_EXCEEDED", 429, retry_after_ms=20)],
        [Fault(200)],
    ],
)
async def test_a_poll_that_fails_is_made_again(server: Homeserver, account: Account, faults: list[Fault]) -> None:
    room = await server.room()
    await account.start()
    await account.stop()
    server.faults["sync"] += faults
    await server.say(room, "while away")
    await account.start()
    await account.heard(1)
    states = [state for state, _ in account.context.states]
    assert states[-2:] == [ConnectorState.DEGRADED, ConnectorState.RUNNING]

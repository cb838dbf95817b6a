"""Tests of polling: missed messages, invitations and failures."""

import asyncio
from datetime import timedelta

import pytest
from conftest import Account, until
from maestro_matrix.errors import Busy
from maestro_matrix.sync import wait
from matrix_homeserver import ADA, BOT, TOKEN, Fault, Homeserver

from connectors.base import AccountRefused, ConnectorState

BEN, EVE = "@ben:example.org", "@eve:elsewhere.net"


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
    await server.member(room, BOT, "join", name="Helper")  # a new name is no new join
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


async def test_an_outage_while_it_runs_is_one_too(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start(catch_up_hours=2)
    gate = asyncio.Event()
    server.faults["sync"].append(Fault(502, gate=gate))
    await server.say(room, "before it")
    await until(lambda: not server.faults["sync"], "the poll that fails")
    old = server.events[0][1]["origin_server_ts"] - 3 * 3_600_000
    await server.event(room, ADA, "m.room.message", {"msgtype": "m.text", "body": "old"}, origin_server_ts=old)
    await server.say(room, "young")
    gate.set()
    await account.heard(2)
    assert (account.texts(), len(account.context.passed_over)) == (["before it", "young"], 1)


async def test_who_asks_to_wait_is_waited_for(account: Account) -> None:
    begun = asyncio.get_running_loop().time()
    await wait(account.context, Busy(timedelta(seconds=0.3)), 0)
    assert asyncio.get_running_loop().time() - begun >= 0.29
    assert account.context.states == [(ConnectorState.DEGRADED, "the homeserver asked to wait 0.3 s")]


async def test_a_homeserver_that_forgot_where_we_were_is_begun_with_anew(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.context.advance(BOT, "0000000000000007 of-another-life-and-long")
    await account.start()
    await server.say(room, "hello")
    await account.heard(1)
    assert [place for place, _, _ in account.context.passed_over] == [BOT]
    assert account.context.marks[BOT, ""].startswith("0000000000000009 ")


async def test_a_room_that_was_replaced_is_followed(server: Homeserver, account: Account) -> None:
    old, new = await server.room(), await server.room(invites=ADA)
    server.rooms[new].predecessor = old
    await account.start(auto_join="never")
    await server.event(old, ADA, "m.room.tombstone", {"replacement_room": new}, state_key="")
    await until(lambda: account.context.moves == {old: new}, "it moved")
    await server.say(new, "here")
    assert [one.address.channel for one in await account.heard(1)] == [new]


async def test_nobody_moves_a_room_into_one_of_others(server: Homeserver, account: Account) -> None:
    eves, theirs = await server.room(EVE), await server.room(ADA, BEN)
    server.rooms[theirs].predecessor = "!another:example.org"
    await account.start()
    await server.event(eves, EVE, "m.room.tombstone", {"replacement_room": theirs}, state_key="")
    await server.say(theirs, "hello")
    await account.heard(1)
    assert account.context.moves == {}


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
        [Fault(cut=True)] * 2,  # the library repeats a call once when its connection was closed
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

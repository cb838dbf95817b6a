"""One socket's line: order, no doubles, and what happens when nobody reads."""

import asyncio
import json

from connectors.web.frames import SocketHub, SocketQueue, TooSlow
from maestro.domain.messages import Address, OutgoingMessage


def message(number: int, channel: str = "c") -> OutgoingMessage:
    """Return the delivery with this id."""
    return OutgoingMessage(id=number, address=Address(platform="web", channel=channel), content="x")


async def written(line: SocketQueue) -> list[int | str]:
    """Return what is on the line: ids of deliveries, types of everything else."""
    out: list[int | str] = []

    async def send(text: str) -> None:
        frame = json.loads(text)
        out.append(frame.get("id", frame["type"]))

    draining = asyncio.create_task(line.write_to_socket(send))
    await asyncio.sleep(0.01)
    draining.cancel()
    return out


async def is_full(line: SocketQueue) -> bool:
    """Tell whether the line gave its client up."""
    try:
        async with asyncio.timeout(0.01):
            await line.wait_until_full()
    except TooSlow:
        return True
    except TimeoutError:
        pass
    return False


async def test_held_deliveries_and_missed_ones_merge_by_id() -> None:
    line = SocketQueue(limit=10, cursor=2)
    for number in (2, 5, 4):
        line.push_delivery(message(number))
    line.replay_missed([message(3)])
    line.push_delivery(message(5))
    line.push_delivery(message(6))
    assert await written(line) == [3, 4, 5, 6]
    assert line.cursor == 6


async def test_a_full_line_gives_up() -> None:
    line = SocketQueue(limit=3, cursor=0)
    line.replay_missed(())
    for number in range(1, 4):
        line.push_delivery(message(number))
    assert not await is_full(line)
    line.push_delivery(message(4))
    assert await is_full(line)


async def test_too_much_during_a_replay_gives_up_too() -> None:
    line = SocketQueue(limit=3, cursor=0)
    for number in range(1, 5):
        line.push_delivery(message(number))
    assert await is_full(line)


async def test_a_long_absence_is_not_a_slow_reader() -> None:
    line = SocketQueue(limit=3, cursor=0)
    line.replay_missed(message(number) for number in range(1, 101))
    line.put_frame({"type": "resumed"})
    assert not await is_full(line)
    assert (await written(line))[-2:] == [100, "resumed"]


async def test_a_page_is_written_before_the_next_is_wanted_and_live_deliveries_wait() -> None:
    line, out = SocketQueue(limit=3, cursor=0), list[int]()
    writable = asyncio.Event()

    async def send(text: str) -> None:
        await writable.wait()
        out.append(json.loads(text)["id"])

    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(line.write_to_socket(send))
        replaying = tasks.create_task(line.replay_missed_page([message(number) for number in range(1, 6)]))
        await asyncio.sleep(0.01)
        for number in (5, 6, 7):
            line.push_delivery(message(number))
        assert not replaying.done()
        writable.set()
        await replaying
        assert out == [1, 2, 3, 4, 5]
        line.replay_missed([message(6)])
        await asyncio.sleep(0.01)
        draining.cancel()
    assert out == [1, 2, 3, 4, 5, 6, 7]
    assert not await is_full(line)


async def test_typing_is_dropped_while_something_waits() -> None:
    line = SocketQueue(limit=3, cursor=0)
    line.put_optional_frame({"type": "typing"})
    line.replay_missed(())
    line.push_delivery(message(1))
    line.put_optional_frame({"type": "typing"})
    assert await written(line) == [1]
    line.put_optional_frame({"type": "typing"})
    assert await written(line) == ["typing"]


async def test_the_hub_forgets_a_line_that_left() -> None:
    hub, line = SocketHub(), SocketQueue(limit=3, cursor=0)
    with hub.subscribe("c", line):
        assert hub.client_count == 1
    assert hub.client_count == 0
    hub.push_delivery(message(1))
    line.replay_missed(())
    assert await written(line) == []


def test_the_hub_remembers_what_just_went_out() -> None:
    hub = SocketHub()
    for number in (1, 2, 3):
        hub.push_delivery(message(number, "c" if number != 2 else "other"))
    assert [kept.id for kept in hub.list_recent("c", 0)] == [1, 3]
    assert [kept.id for kept in hub.list_recent("c", 1)] == [3]

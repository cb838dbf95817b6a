"""People who talk to Maestro over real WebSockets; lean, because they share the machine with what they measure."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect

PATIENCE = 60.0
"""Seconds for one answer: only a failure takes them."""

TEXT = (
    "Please tell me, as briefly as you can, what the weather will be like in the Alps on Saturday, whether the train "
    "to the valley runs on time, and what I should take along for a walk of three hours. This is message {number}."
)


class Person:
    """One client in a channel of its own, who waits for each answer before the next message."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def ask(self, content: str = TEXT) -> float:
        """Send a message and return the seconds until its answer is there; raises ``RuntimeError`` if refused."""
        return await self.answered(await self.send(content))

    async def send(self, content: str = TEXT) -> float:
        """Send a message, in which its number takes the place of ``{number}``, and return when."""
        frame = json.dumps({"type": "message", "content": content.format(number=next(self._numbers))})
        started = time.perf_counter()
        await self._socket.send(frame)
        return started

    async def answered(self, started: float, patience: float = PATIENCE) -> float:
        """Return the seconds from then until the answer is there; raises ``RuntimeError`` if refused."""
        async with asyncio.timeout(patience):
            while True:
                answer = str(await self._socket.recv())
                if answer.startswith('{"type":"message"'):
                    return time.perf_counter() - started
                if answer.startswith('{"type":"error"'):
                    raise RuntimeError(answer)


@asynccontextmanager
async def people(port: int, count: int, of: str = "") -> AsyncIterator[Sequence[Person]]:
    """Connect so many people, each to a new channel, or to the channels that ``channel_of`` names."""
    async with AsyncExitStack() as stack:
        yield [await _person(port, stack, channel_of(of, number) if of else "") for number in range(count)]


def channel_of(name: str, number: int) -> str:
    """Return the channel of one of many people who belong together."""
    return f"{name}-{number}"


async def in_a_row(person: Person, count: int) -> list[float]:
    """Let one person ask again and again; return the seconds of each answer."""
    return [await person.ask() for _ in range(count)]


async def closed_loop(crowd: Sequence[Person], messages: int) -> tuple[float, list[float]]:
    """Have everybody talk until so many messages are answered in all.

    Return the seconds it took, and those of each answer.
    """
    left = itertools.count(messages, -1)
    waited: list[float] = []

    async def talk(person: Person) -> None:
        while next(left) > 0:
            waited.append(await person.ask())

    started = time.perf_counter()
    async with asyncio.TaskGroup() as talking:
        for person in crowd:
            talking.create_task(talk(person))
    return time.perf_counter() - started, waited


async def all_at_once(crowd: Sequence[Person]) -> list[float]:
    """Have everybody ask one question at the same moment; return the seconds of each answer from that moment on."""
    return list(await asyncio.gather(*(person.ask() for person in crowd)))


async def _person(port: int, stack: AsyncExitStack, channel: str) -> Person:
    # Without compression, and without a bound that makes the library pause the socket.
    socket = await stack.enter_async_context(
        connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None, max_queue=None)
    )
    await socket.send(json.dumps({"type": "auth", **({"channelId": channel} if channel else {})}))
    welcome = json.loads(await socket.recv())
    if welcome["type"] != "auth_ok":
        raise RuntimeError(f"not let in: {welcome}")
    return Person(socket)

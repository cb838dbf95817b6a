"""Users with real WebSockets; lean, because they share the machine with the Maestro that they measure."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect

ANSWER_TIMEOUT = 60.0
"""Seconds for one answer."""

TEXT = (
    "Please tell me, as briefly as you can, what the weather will be like in the Alps on Saturday, whether the train "
    "to the valley runs on time, and what I should take along for a walk of three hours. This is message {number}."
)


class WebUser:
    """A user with a channel of its own, and one question at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def ask(self, content: str = TEXT) -> float:
        """Send a message and return the seconds until its answer; raises ``RuntimeError`` if it is refused."""
        return await self.wait_for_answer(await self.send(content))

    async def send(self, content: str = TEXT) -> float:
        """Send a message, with its number for ``{number}``; return the time in seconds of ``time.perf_counter``."""
        frame = json.dumps({"type": "message", "content": content.format(number=next(self._numbers))})
        started = time.perf_counter()
        await self._socket.send(frame)
        return started

    async def wait_for_answer(self, started: float, seconds: float = ANSWER_TIMEOUT) -> float:
        """Return the seconds from ``started`` until the answer; raises ``RuntimeError`` if the message is refused."""
        async with asyncio.timeout(seconds):
            while True:
                answer = str(await self._socket.recv())
                if answer.startswith('{"type":"message"'):
                    return time.perf_counter() - started
                if answer.startswith('{"type":"error"'):
                    raise RuntimeError(answer)


@asynccontextmanager
async def connect_users(port: int, count: int, of: str = "") -> AsyncIterator[Sequence[WebUser]]:
    """Connect so many users, each to a new channel, or to the channels that ``channel_of`` names."""
    async with AsyncExitStack() as stack:
        yield [await _connect_user(port, stack, channel_of(of, number) if of else "") for number in range(count)]


def channel_of(name: str, number: int) -> str:
    """Return the channel of a user of a group."""
    return f"{name}-{number}"


async def ask_in_sequence(user: WebUser, count: int) -> list[float]:
    """Have a user ask so many questions, each after the last answer; return the seconds of each answer."""
    return [await user.ask() for _ in range(count)]


async def ask_in_parallel(users: Sequence[WebUser], messages: int) -> tuple[float, list[float]]:
    """Have all users ask, each after the last answer, until ``messages`` are answered in all.

    Return the seconds in all, and those of each answer.
    """
    left = itertools.count(messages, -1)
    waited: list[float] = []

    async def ask(user: WebUser) -> None:
        while next(left) > 0:
            waited.append(await user.ask())

    started = time.perf_counter()
    async with asyncio.TaskGroup() as talking:
        for user in users:
            talking.create_task(ask(user))
    return time.perf_counter() - started, waited


async def ask_at_once(users: Sequence[WebUser]) -> list[float]:
    """Have all users ask one question at the same moment; return the seconds until each answer."""
    return list(await asyncio.gather(*(user.ask() for user in users)))


async def _connect_user(port: int, stack: AsyncExitStack, channel: str) -> WebUser:
    # Without compression, and without a bound that makes the library pause the socket.
    socket = await stack.enter_async_context(
        connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None, max_queue=None)
    )
    await socket.send(json.dumps({"type": "auth", **({"channelId": channel} if channel else {})}))
    welcome = json.loads(await socket.recv())
    if welcome["type"] != "auth_ok":
        raise RuntimeError(f"the web connector refused the client: {welcome}")
    return WebUser(socket)

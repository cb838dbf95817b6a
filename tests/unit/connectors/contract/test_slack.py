"""The Slack connector keeps the contract of connectors, with the real slack-sdk and Socket Mode."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from connectors.base import AccountRefused
from connectors.contract import Bench, ConnectorContract
from connectors.contract import Fault as Trouble
from maestro.domain.messages import Address
from tests.support.memory_context import MemoryContext
from tests.support.slack_app import slack_app
from tests.support.slack_server import BOT_TOKEN, Fault, SlackServer
from tests.support.slack_server.socket_mode import Envelope

DIRECT, ADA = "D1", "U1"
FAULTS = {
    Trouble.BUSY: Fault.limited(1),
    Trouble.BROKEN: Fault.broken(),
    Trouble.CUT: Fault.cut_after(),
    Trouble.NO_CHANNEL: Fault.refused("channel_not_found"),
    Trouble.BAD_TOKEN: Fault.refused("token_revoked"),
    Trouble.BAD_MESSAGE: Fault.refused("msg_too_long"),
}


class SlackBench:
    """An app in a direct channel."""

    faults = frozenset(FAULTS)
    place = Address(platform="slack", channel=DIRECT)
    token = BOT_TOKEN

    def __init__(self, slack: SlackServer, stack: contextlib.AsyncExitStack) -> None:
        self.context = MemoryContext()
        self._slack = slack
        self._stack = stack
        self._said: dict[str, Envelope] = {}
        slack.workspace.person(ADA, "Ada")

    async def connect(self) -> None:
        """Run a connector that listens."""
        self._running = await self._stack.enter_async_context(contextlib.AsyncExitStack())
        app = await self._running.enter_async_context(slack_app(self._slack, self.context))
        self.connector = app.connector

    async def say(self, text: str) -> str:
        """Let Ada write."""
        message = self._slack.write(DIRECT, ADA, text)
        self._said[message["ts"]] = await self._slack.tell(DIRECT, message)
        return str(message["ts"])

    async def repeat(self, message_id: str) -> None:
        """Tell of a message again."""
        await self._slack.socket.redeliver(self._said[message_id])

    async def come_back(self) -> None:
        """Connect another one, and tell it what was not acknowledged."""
        await self._running.aclose()
        await self.connect()
        await self._slack.socket.redeliver_all()

    def arm(self, fault: Trouble) -> None:
        """Let the next message fail."""
        self._slack.fail("chat.postMessage", FAULTS[fault])

    async def posts(self) -> Sequence[str]:
        """Return what the app wrote."""
        return [message["text"] for message in self._slack.posted(DIRECT)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one."""
    # Whose token was refused ends by itself, and says so to who runs it.
    with contextlib.suppress(AccountRefused):
        async with SlackServer.running() as slack, contextlib.AsyncExitStack() as stack:
            made = SlackBench(slack, stack)
            await made.connect()
            yield made


class TestSlack(ConnectorContract):
    """The promises, kept by the Slack connector."""

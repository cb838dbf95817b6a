"""The Slack connector beside a local Slack, with the real slack-sdk between them and no Maestro around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from connectors.options import Instance
from connectors.slack.connector import SlackConnector
from connectors.slack.platform import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, SlackOptions
from maestro.domain.messages import Address, OutgoingMessage
from tests.support import slack_server
from tests.support.listening import Listening
from tests.support.memory_context import MemoryContext
from tests.support.slack_server import SlackServer

FAST = {"pace_seconds": 0, "history_seconds": 0}


@dataclass
class SlackApp(Listening):
    """A connector, what it may ask of Maestro, and the Slack it is connected to."""

    slack: SlackServer
    context: MemoryContext
    connector: SlackConnector
    running: asyncio.Task[None] | None = field(default=None)

    async def start(self) -> None:
        """Let it run; returns at once."""
        self.running = asyncio.create_task(self.connector.run())

    def said(self, channel: str) -> list[str]:
        """Return what is in the inbox from a channel."""
        return [one.content for one in self.context.inbox if one.address.channel == channel]


def instance(slack: SlackServer, **options: Any) -> Instance:
    """Return an account at a local Slack."""
    secrets = {
        BOT_TOKEN: slack_server.BOT_TOKEN,
        APP_TOKEN: slack_server.APP_TOKEN,
        SIGNING_SECRET: slack_server.SIGNING_SECRET,
    }
    local = {"base_url": slack.api_url, "media_hosts": ("127.0.0.1",)}
    found = SlackOptions(**{**FAST, **local, **options})
    return Instance("default", {name: SecretStr(value) for name, value in secrets.items()}, found, "digest")


@asynccontextmanager
async def slack_app(
    slack: SlackServer, context: MemoryContext | None = None, *, start: bool = True, **options: Any
) -> AsyncIterator[SlackApp]:
    """Connect an app for the length of a block; in Socket Mode it listens when the block begins."""
    kept = context or MemoryContext()
    made = SlackConnector(instance(slack, **options), kept)
    app = SlackApp(slack, kept, made)
    try:
        if start:
            sockets = slack.socket.opened
            await app.start()
            if not made.routes():
                await slack.connected(sockets + 1)
        yield app
    finally:
        await app.stop()


def chunk(content: str, channel: str = "C1", thread: str = "", number: int = 1, **extra: Any) -> OutgoingMessage:
    """Return a chunk on its way to a channel."""
    address = Address(platform="slack", account="default", channel=channel, thread=thread)
    return OutgoingMessage(id=number, address=address, content=content, key=f"key{number:021d}", **extra)


@asynccontextmanager
async def slack_and_app(**options: Any) -> AsyncIterator[SlackApp]:
    """Run a local Slack in which Ada is ``U1``, and connect an app to it."""
    async with SlackServer.running() as slack:
        slack.workspace.person("U1", "Ada")
        async with slack_app(slack, **options) as app:
            yield app

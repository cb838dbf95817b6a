"""A Discord connector without a Maestro around it, connected to a local server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from pydantic import SecretStr

from connectors.base import ConnectorState
from connectors.discord.connector import DiscordConnector
from connectors.discord.platform import DiscordOptions
from connectors.options import Instance
from maestro.domain.messages import Address, OutgoingMessage
from tests.support.discord_server import TOKEN, Channel, DiscordServer
from tests.support.instance import until
from tests.support.memory_context import MemoryContext


def bot(discord: DiscordServer, context: MemoryContext, token: str = TOKEN, **options: Any) -> DiscordConnector:
    """Return a connector that would talk to this server."""
    chosen = DiscordOptions(base_url=discord.base_url, gateway_url=discord.gateway_url, **options)
    return DiscordConnector(Instance("default", {"token": SecretStr(token)}, chosen), context)


@contextlib.asynccontextmanager
async def connected(discord: DiscordServer, context: MemoryContext, **options: Any) -> AsyncIterator[DiscordConnector]:
    """Run a connector for the length of a block; it is connected when the block begins."""
    connector, before = bot(discord, context, **options), discord.greeted
    running = asyncio.create_task(connector.run())
    try:
        await until(lambda: running.done() or discord.greeted > before)
        yield connector
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def states(context: MemoryContext) -> list[ConnectorState]:
    """Return what the connector said of itself."""
    return [state for state, _ in context.states]


def heard(context: MemoryContext) -> list[str]:
    """Return what was taken in, in order."""
    return [message.content for message in context.inbox]


def address(channel: Channel) -> Address:
    """Return where an answer to a channel goes."""
    parent, thread = (channel.parent_id, str(channel.id)) if channel.parent_id else (channel.id, "")
    return Address(platform="discord", channel=str(parent), thread=thread)


def chunk(channel: Channel, content: str, key: str = "key1", **fields: Any) -> OutgoingMessage:
    """Return a chunk on its way to a channel."""
    return OutgoingMessage(id=1, address=address(channel), content=content, key=key, **fields)
